//! How the gateway logs in to another cluster, and checks that it is the right one.

use std::time::Duration;

use super::*;
use crate::support::{apiserver::terminate, authority::Ca};

/// A cluster behind TLS, and Argo CD's cluster that has its Secret.
struct Pair {
    own: Cluster,
    cluster: Cluster,
    ca: Ca,
    port: u16,
}

impl Pair {
    /// A cluster with a certificate for `names`. Clients need a certificate of its CA if `wants_certificate`.
    async fn start(names: &[&str], wants_certificate: bool) -> Self {
        let (own, cluster) = (Cluster::start(&[]).await, Cluster::start(&["a"]).await);
        let ca = Ca::new("cluster");
        let (certificate, key) = ca.certificate(names);
        let clients = wants_certificate.then(|| ca.pem.clone());
        let port = terminate((&certificate, &key), clients.as_deref(), cluster.upstream.address).await;
        Self { own, cluster, ca, port }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// What a gateway answers if Argo CD's Secret has this URL and `config`.
    async fn ask(&self, url: &str, config: Value, more: Value) -> Reply {
        self.own.set("/api/v1/namespaces/argocd/secrets", vec![cluster_secret("one", url, &config)]);
        let clusters = extended(json!({"labelSelector": "env=prod"}), more);
        self.own.gateway(json!({"clusters": clusters})).await.ask("apps", json!({})).await
    }
}

fn pem(text: &str) -> String {
    STANDARD.encode(text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_trusted_by_its_own_ca_only() {
    let pair = Pair::start(&["localhost"], false).await;
    pair.cluster.accept("token-of-one");
    let config = |tls: Value| json!({"bearerToken": "token-of-one", "tlsClientConfig": tls});
    let right = config(json!({"insecure": false, "caData": pem(&pair.ca.pem)}));
    assert_eq!(values(&pair.ask(&pair.url(), right.clone(), json!({})).await, "name"), ["a"]);
    let before = pair.cluster.requests().len();
    let other = Ca::new("another").pem;
    for tls in [json!({"caData": pem(&other)}), json!({})] {
        let reply = pair.ask(&pair.url(), config(tls), json!({})).await;
        let message = refused(&reply, 502, "backend_failed", "its certificate is not trusted");
        assert!(message.contains("tlsClientConfig.caData of its Secret does not verify it"), "{message}");
    }
    let insecure = config(json!({"insecure": true}));
    let reply = pair.ask(&pair.url(), insecure.clone(), json!({})).await;
    refused(&reply, 502, "backend_failed", "`clusters.allowInsecure: true`");
    assert_eq!(pair.cluster.requests().len(), before, "no token went there");
    assert_eq!(values(&pair.ask(&pair.url(), insecure, json!({"allowInsecure": true})).await, "name"), ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_have_another_name_than_its_url() {
    let pair = Pair::start(&["kubernetes.cluster.example"], false).await;
    let tls =
        |name: &str| json!({"bearerToken": "x", "tlsClientConfig": {"serverName": name, "caData": pem(&pair.ca.pem)}});
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("https://{host}:{}", pair.port);
        let reply = pair.ask(&url, tls("kubernetes.cluster.example"), json!({})).await;
        assert_eq!(values(&reply, "name"), ["a"], "{host}");
        let reply = pair.ask(&url, tls("other.cluster.example"), json!({})).await;
        refused(&reply, 502, "backend_failed", "its certificate is not trusted");
        let reply = pair.ask(&url, json!({"tlsClientConfig": {"caData": pem(&pair.ca.pem)}}), json!({})).await;
        refused(
            &reply,
            502,
            "backend_failed",
            &format!("GET {url}/api/v1: cannot connect: its certificate is not trusted"),
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_is_shown() {
    let pair = Pair::start(&["localhost"], true).await;
    let (cert, key) = pair.ca.client("gateway", "readers");
    let tls = |more: Value| {
        let tls = extended(json!({"caData": pem(&pair.ca.pem)}), more);
        json!({"tlsClientConfig": tls})
    };
    let own = json!({"certData": pem(&cert), "keyData": pem(&key)});
    assert_eq!(values(&pair.ask(&pair.url(), tls(own), json!({})).await, "name"), ["a"]);
    let reply = pair.ask(&pair.url(), tls(json!({})), json!({})).await;
    refused(&reply, 502, "backend_failed", "GET https://localhost");
    let (_, other) = pair.ca.client("gateway", "readers");
    let reply = pair.ask(&pair.url(), tls(json!({"certData": pem(&cert), "keyData": pem(&other)})), json!({})).await;
    refused(&reply, 502, "backend_failed", "tlsClientConfig.keyData is not that of the certificate");
    let requests = pair.cluster.upstream.requests();
    assert!(requests.iter().all(|request| request.header("authorization").is_none()), "no token goes there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_and_a_password_are_sent_as_argo_cd_sends_them() {
    let pair = Pair::start(&["localhost"], false).await;
    pair.cluster.state().authorization = Some(format!("Basic {}", STANDARD.encode("admin:hunter22")));
    let config = |password: &str| json!({"username": "admin", "password": password, "tlsClientConfig": {"caData": pem(&pair.ca.pem)}});
    assert_eq!(values(&pair.ask(&pair.url(), config("hunter22"), json!({})).await, "name"), ["a"]);
    let message = refused(&pair.ask(&pair.url(), config("hunter33"), json!({})).await, 502, "backend_failed", "401");
    assert!(!message.contains("hunter33"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ca_that_was_replaced_in_its_secret_is_used() {
    let pair = Pair::start(&["localhost"], false).await;
    let config = |ca: &str| json!({"bearerToken": "x", "tlsClientConfig": {"caData": pem(ca)}});
    let publish = |config: Value| {
        pair.own.set("/api/v1/namespaces/argocd/secrets", vec![cluster_secret("one", &pair.url(), &config)]);
    };
    publish(config(&pair.ca.pem));
    let app = pair.own.gateway(json!({"clusters": {"labelSelector": "env=prod"}})).await;
    assert_eq!(values(&app.ask("apps", json!({})).await, "name"), ["a"]);
    publish(config(&Ca::new("another").pem));
    app.clock.advance(Duration::from_mins(5));
    let reply = app.ask("apps", json!({})).await;
    assert_eq!(values(&reply, "name"), ["a"], "as it was last");
    assert!(reply.header("cache-status").is_some_and(|status| status.contains("detail=backend_")), "{reply:?}");
    publish(config(&pair.ca.pem));
    app.clock.advance(Duration::from_mins(30));
    let reply = app.ask("apps", json!({})).await;
    assert_eq!(reply.header("x-appset-gateway-elements"), Some("present=1, absent=0, last-known=0, unknown=0"));
}

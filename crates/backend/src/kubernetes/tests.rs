use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    cluster_secret::{ClusterSecret, own_described, without_logins},
    config::Clusters,
    rules::Rules,
    selection::is_name,
};
use domain::{
    clock::SystemClock,
    file::base_dir::BaseDir,
    problem::{Path, Problems},
    secret::SecretRef,
    section::Section,
};
use outbound::{
    Outbound,
    kubernetes::{ApiAccess, ApiServer},
};

/// A cluster Secret with these texts as its data.
fn secret(data: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<String, Value> =
        data.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value).into())).collect();
    let annotations = json!({"team": "a", "kubectl.kubernetes.io/last-applied-configuration": "{\"hunter2\": 1}"});
    let labels = json!({"env": "prod", "argocd.argoproj.io/secret-type": "cluster"});
    json!({"metadata": {"name": "cluster-a", "uid": "1", "labels": labels, "annotations": annotations}, "data": data})
}

fn rules(allow_insecure: bool) -> Rules {
    Rules {
        namespace: "argocd".to_owned(),
        label_selector: None,
        has_own: false,
        allow_insecure,
        identities: Vec::new(),
    }
}

/// The URL of the server that a Secret with `data` leads to, or why there is none.
fn server(data: &[(&str, &str)], allow_insecure: bool) -> Result<String, String> {
    let outbound = Outbound::new(Arc::new(SystemClock));
    let (folder, mut problems) = (tempfile::tempdir().unwrap(), Problems::default());
    std::fs::write(folder.path().join("token"), "own-token").unwrap();
    let base = BaseDir::new(folder.path());
    let (token, ca) = (SecretRef::File("token".into()), "ca.crt".into());
    let url = "http://localhost:1/".parse().ok();
    let access = ApiAccess { url, token: &token, ca: &ca, concurrency: 1 };
    let own = ApiServer::build(access, &outbound, &mut Section::new(&base, Path::root(), &mut problems)).unwrap();
    let found = ClusterSecret::read(&secret(data)).server(&own, &rules(allow_insecure), &outbound);
    found.map(|(server, _)| server.url().to_string()).map_err(|error| error.message)
}

#[test]
fn a_secret_names_its_cluster_and_hides_its_login() {
    let config = r#"{"bearerToken": "hunter2"}"#;
    let read = ClusterSecret::read(&secret(&[
        ("name", "prod"),
        ("server", "https://prod.example.com/"),
        ("project", "team-a"),
        ("config", config),
    ]));
    assert_eq!((&*read.secret, &*read.name, &*read.server), ("cluster-a", "prod", "https://prod.example.com"));
    let labels = json!({"env": "prod", "argocd.argoproj.io/secret-type": "cluster"});
    let expected = json!({
        "name": "prod", "server": "https://prod.example.com", "project": "team-a", "labels": labels, "annotations": {"team": "a"},
    });
    assert_eq!(read.described, expected);
    let unnamed = |data| ClusterSecret::read(&secret(data)).name;
    assert_eq!(unnamed(&[("server", "https://a.example.com")]), "https://a.example.com", "as Argo CD calls it");
    assert_eq!(unnamed(&[]), "cluster-a", "it is a cluster of which nothing is known, and hides no other");
    assert_eq!(own_described()["name"], "in-cluster");
}

#[test]
fn a_login_is_used_as_argo_cd_would_or_refused_with_a_reason() {
    let at = |url: &'static str, config: &'static str| [("name", "prod"), ("server", url), ("config", config)];
    let prod = "https://prod.example.com";
    for (url, config) in [
        (prod, r#"{"bearerToken": "hunter2"}"#),
        (prod, r#"{"username": "admin", "password": "hunter2", "tlsClientConfig": null, "awsAuthConfig": null}"#),
        (prod, r#"{"tlsClientConfig": {"insecure": false, "serverName": "kubernetes"}}"#),
        ("https://kubernetes.default.svc", r#"{"bearerToken": "hunter2"}"#),
    ] {
        assert_eq!(server(&at(url, config), false), Ok(format!("{url}/")), "{config}");
    }
    let own = server(&at("https://kubernetes.default.svc", r#"{"tlsClientConfig": {"insecure": false}}"#), false);
    assert_eq!(own.as_deref(), Ok("http://localhost:1/"), "the gateway's own login");
    for (url, config, says) in [
        (prod, "hunter2", "is not the JSON object"),
        (prod, r#"["hunter2"]"#, "is not the JSON object"),
        (prod, r#"{"bearerToken": 2}"#, "is not the JSON object"),
        (prod, r#"{"bearerToken": "hunter2", "bearerToken": "x"}"#, "is not the JSON object"),
        (prod, r#"{"bearerToken": "hunter2\n"}"#, "no header can carry"),
        (prod, r#"{"bearerToken": "hunter2", "proxyUrl": "http://p"}"#, "`proxyUrl`"),
        (prod, r#"{"tlsClientConfig": {"caData": "hunter2!"}}"#, "`tlsClientConfig.caData` is not base64"),
        (prod, r#"{"tlsClientConfig": {"caData": "aHVudGVyMg=="}}"#, "tlsClientConfig.caData holds no certificate"),
        (prod, r#"{"tlsClientConfig": {"certData": "aHVudGVyMg=="}}"#, "only one of `certData` and `keyData`"),
        (prod, r#"{"tlsClientConfig": {"certData": "eA==", "keyData": "aHVudGVyMg=="}}"#, "holds no certificate"),
        (prod, r#"{"tlsClientConfig": {"serverName": "10.0.0.1"}}"#, "`serverName` is not a name"),
        (prod, r#"{"tlsClientConfig": {"insecure": true}}"#, "`clusters.allowInsecure: true`"),
        ("http://prod.example.com", r#"{"bearerToken": "hunter2"}"#, "`clusters.allowInsecure: true`"),
        ("ftp://prod.example.com", "{}", "`server` is not a URL"),
        ("https://u:hunter2@prod.example.com", "{}", "`server` is not a URL"),
        (prod, r#"{"execProviderConfig": {"command": "sh", "args": ["hunter2"]}}"#, "runs `sh`"),
        (prod, r#"{"awsAuthConfig": {"clusterName": "prod"}}"#, "a cluster of AWS, where the pod has no identity"),
        (prod, r#"{"awsAuthConfig": {"clusterName": "prod", "profile": "x"}}"#, "`profile`"),
    ] {
        let why = server(&at(url, config), false).expect_err(config);
        assert!(why.starts_with("the cluster Secret cluster-a: ") && why.contains(says), "{config}: {why}");
        assert!(!why.contains("hunter2"), "{why}");
    }
    assert!(server(&at(prod, r#"{"tlsClientConfig": {"insecure": true}}"#), true).is_ok());
}

#[test]
fn a_recorded_list_of_secrets_has_no_login() {
    let config = r#"{"bearerToken": "hunter2"}"#;
    let secret =
        secret(&[("name", "prod"), ("server", "https://prod.example.com"), ("config", config), ("x", "hunter2")]);
    let list =
        json!({"apiVersion": "v1", "kind": "SecretList", "metadata": {"resourceVersion": "7"}, "items": [secret]});
    let recorded: Value = serde_json::from_slice(&without_logins(list.to_string().as_bytes())).unwrap();
    let text = recorded.to_string();
    assert!(!text.contains("hunter2") && !text.contains(&STANDARD.encode("hunter2")), "{text}");
    assert_eq!((&recorded["kind"], &recorded["metadata"]["resourceVersion"]), (&json!("SecretList"), &json!("7")));
    let read = ClusterSecret::read(&recorded["items"][0]);
    assert_eq!(read.described, ClusterSecret::read(&list["items"][0]).described, "a replay sees the same cluster");
    assert_eq!(without_logins(b"hunter2"), "");
}

#[test]
fn clusters_are_a_word_or_an_object() {
    let read = |text: &str| serde_json::from_str::<Clusters>(text).map_err(|error| error.to_string());
    assert!(matches!(read("\"self\""), Ok(Clusters::Own)));
    let Ok(Clusters::Argocd(all)) = read("\"argocd\"") else { panic!() };
    assert_eq!((all.namespace.as_str(), all.label_selector, all.own_cluster), ("argocd", None, None));
    let Ok(Clusters::Argocd(some)) = read(r#"{"labelSelector": "env=prod"}"#) else { panic!() };
    assert_eq!(some.label_selector.as_deref(), Some("env=prod"));
    assert!(read("\"all\"").unwrap_err().starts_with("`all` is neither `self` nor `argocd`"));
    assert!(read(r#"{"labels": "x"}"#).unwrap_err().contains("unknown field `labels`"));
    assert!(read("1").unwrap_err().contains("`self`, `argocd`, or an object"));
}

#[test]
fn a_name_is_one_segment_of_a_path() {
    for (text, expected) in [
        ("team-a", true),
        ("a.b", true),
        ("", false),
        (".", false),
        ("..", false),
        ("a/b", false),
        ("A", false),
        ("-a", false),
    ] {
        assert_eq!(is_name(text), expected, "{text}");
    }
}

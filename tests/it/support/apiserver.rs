//! A Kubernetes API server over TLS that has ApplicationSets and takes patches and Events, as its documentation says. It fails on demand.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Instant,
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde_json::{Map, Value, json};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

use super::{
    authority::Ca,
    upstream::{Request, Step, Upstream, response},
};

/// The annotation that makes Argo CD reconcile an ApplicationSet.
const ANNOTATION: &str = "argocd.argoproj.io/application-set-refresh";

/// An ApplicationSet that was annotated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refreshed {
    /// The namespace and the name.
    pub set: String,
    /// The value of the annotation.
    pub value: String,
    /// When.
    pub at: Instant,
}

#[derive(Default)]
struct State {
    token: String,
    /// The ApplicationSets, by namespace and name.
    sets: Vec<(String, String, Value)>,
    refreshed: Vec<Refreshed>,
    events: Vec<Value>,
    /// What the next requests of this method and a path that ends so are answered: status and `Retry-After`.
    failures: Vec<(&'static str, &'static str, u16, Option<u32>)>,
}

/// A Kubernetes API server.
pub(crate) struct ApiServer {
    /// Its URL.
    pub url: String,
    /// Its CA.
    pub ca: String,
    state: Arc<Mutex<State>>,
    upstream: Upstream,
}

/// An ApplicationSet whose plugin generator, in a matrix, points at `config_map`.
fn application_set(namespace: &str, name: &str, config_map: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-of-{name}"), "annotations": {}},
        "spec": {"generators": [{"matrix": {"generators": [
            {"pullRequest": {"github": {"owner": "org", "repo": "app"}}},
            {"plugin": {"configMapRef": {"name": config_map}, "input": {"parameters": {}}}},
        ]}}]},
    })
}

impl ApiServer {
    /// A server that accepts `token`.
    pub(crate) async fn start(token: &str) -> Self {
        let state = Arc::new(Mutex::new(State { token: token.to_owned(), ..State::default() }));
        let own = Arc::clone(&state);
        let upstream = Upstream::start(move |request| {
            let answer = own.lock().unwrap().answer(request);
            vec![if answer.is_empty() { Step::Hang } else { Step::Send(answer) }]
        })
        .await;
        let ca = Ca::new("cluster");
        let (certificate, key) = ca.certificate(&["localhost"]);
        let port = terminate((&certificate, &key), None, upstream.address).await;
        Self { url: format!("https://localhost:{port}"), ca: ca.pem, state, upstream }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Adds an ApplicationSet.
    pub(crate) fn add(&self, namespace: &str, name: &str, config_map: &str) {
        let set = application_set(namespace, name, config_map);
        self.state().sets.push((namespace.to_owned(), name.to_owned(), set));
    }

    /// Adds an ApplicationSet with this specification, and with these Applications in its status.
    pub(crate) fn add_with(&self, namespace: &str, name: &str, spec: Value, applications: &[&str]) {
        let mut set = application_set(namespace, name, "");
        let resource = |application: &&str| {
            json!({"group": "argoproj.io", "version": "v1alpha1", "kind": "Application",
            "namespace": namespace, "name": application})
        };
        set["spec"] = spec;
        set["status"] = json!({"resources": applications.iter().map(resource).collect::<Value>()});
        self.state().sets.push((namespace.to_owned(), name.to_owned(), set));
    }

    /// Removes an ApplicationSet.
    pub(crate) fn remove(&self, namespace: &str, name: &str) {
        self.state().sets.retain(|(ns, set, _)| (&**ns, &**set) != (namespace, name));
    }

    /// Accepts only `token` from now on.
    pub(crate) fn set_token(&self, token: &str) {
        token.clone_into(&mut self.state().token);
    }

    /// Answers the next requests of `method` on a path that ends with `path` with this status; 0: never. `path` may end with `?` and a part
    /// of the query.
    pub(crate) fn fail(&self, method: &'static str, path: &'static str, statuses: &[(u16, Option<u32>)]) {
        let failures = statuses.iter().map(|(status, after)| (method, path, *status, *after));
        self.state().failures.extend(failures);
    }

    /// The annotated ApplicationSets, in the order of time.
    pub(crate) fn refreshed(&self) -> Vec<Refreshed> {
        self.state().refreshed.clone()
    }

    /// The names of the annotated ApplicationSets.
    pub(crate) fn refreshed_sets(&self) -> Vec<String> {
        self.refreshed().into_iter().map(|refreshed| refreshed.set).collect()
    }

    /// The events.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.state().events.clone()
    }

    /// Removes the events, as an API server does after an hour.
    pub(crate) fn expire_events(&self) {
        self.state().events.clear();
    }

    /// Refuses connections from now on, or no longer.
    pub(crate) async fn set_away(&mut self, is_away: bool) {
        if is_away { self.upstream.refuse().await } else { self.upstream.listen().await }
    }
}

/// Ends TLS before `target`, as the owner of a certificate and its key. Clients need a certificate of the CA `clients`, if there is one. Returns the
/// port.
pub(crate) async fn terminate((certificate, key): (&str, &str), clients: Option<&str>, target: SocketAddr) -> u16 {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let certificate = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = builder.with_single_cert(certificate, key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                if let Ok(mut target) = TcpStream::connect(target).await {
                    let _ = copy_bidirectional(&mut stream, &mut target).await;
                }
            });
        }
    });
    port
}

impl State {
    fn answer(&mut self, request: &Request) -> Vec<u8> {
        if request.header("authorization") != Some(&format!("Bearer {}", self.token)) {
            return status(401, "Unauthorized", None);
        }
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let failing = |(method, end, ..): &(&str, &str, u16, Option<u32>)| {
            let (end, asked) = end.split_once('?').unwrap_or((end, ""));
            *method == request.method
                && query.contains(asked)
                && (path.ends_with(end) || path.contains(&format!("{end}/")))
        };
        if let Some(at) = self.failures.iter().position(failing) {
            let (_, _, code, after) = self.failures.remove(at);
            return if code == 0 { Vec::new() } else { status(code, "it fails", after) };
        }
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match (&*request.method, &parts[..]) {
            ("GET", ["apis", "argoproj.io", "v1alpha1", "namespaces", namespace, "applicationsets"]) => {
                self.list(namespace, query)
            }
            ("PATCH", ["apis", "argoproj.io", "v1alpha1", "namespaces", namespace, "applicationsets", name]) => {
                assert_eq!(request.header("content-type"), Some("application/merge-patch+json"));
                self.annotate(namespace, name, &request.body)
            }
            ("POST", ["api", "v1", "namespaces", _, "events"]) => {
                self.events.push(serde_json::from_slice(&request.body).unwrap());
                ok(201, &json!({}))
            }
            ("PATCH", ["api", "v1", "namespaces", _, "events", name]) => {
                assert_eq!(request.header("content-type"), Some("application/merge-patch+json"));
                let fields: Map<String, Value> = serde_json::from_slice(&request.body).unwrap();
                let Some(event) = self.events.iter_mut().find(|event| event["metadata"]["name"] == **name) else {
                    return status(404, "NotFound", None);
                };
                event.as_object_mut().unwrap().extend(fields);
                ok(200, &json!({}))
            }
            _ => status(404, "NotFound", None),
        }
    }

    /// At most two items a page, whatever the limit.
    fn list(&self, namespace: &str, query: &str) -> Vec<u8> {
        assert!(query.contains("limit="), "{query}");
        let first = query.split('&').find_map(|pair| pair.strip_prefix("continue=")?.parse().ok()).unwrap_or(0);
        let all: Vec<&Value> = self.sets.iter().filter(|(ns, ..)| ns == namespace).map(|(.., set)| set).collect();
        let items: Vec<&Value> = all.iter().copied().skip(first).take(2).collect();
        let next = if first + 2 < all.len() { (first + 2).to_string() } else { String::new() };
        ok(200, &json!({"kind": "ApplicationSetList", "metadata": {"continue": next}, "items": items}))
    }

    fn annotate(&mut self, namespace: &str, name: &str, body: &[u8]) -> Vec<u8> {
        let Some((.., set)) = self.sets.iter().find(|(ns, set, _)| (&**ns, &**set) == (namespace, name)) else {
            return status(404, "NotFound", None);
        };
        let patch: Value = serde_json::from_slice(body).unwrap();
        let value = patch["metadata"]["annotations"][ANNOTATION].as_str().unwrap().to_owned();
        let only = json!({"metadata": {"annotations": {ANNOTATION: value}}});
        assert_eq!(patch, only, "the admission policy allows nothing else");
        self.refreshed.push(Refreshed { set: format!("{namespace}/{name}"), value, at: Instant::now() });
        ok(200, set)
    }
}

fn ok(code: u16, body: &Value) -> Vec<u8> {
    response(code, "Content-Type: application/json", body.to_string())
}

fn status(code: u16, reason: &str, retry_after: Option<u32>) -> Vec<u8> {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code});
    let after = retry_after.map(|seconds| format!("\r\nRetry-After: {seconds}")).unwrap_or_default();
    response(code, &format!("Content-Type: application/json{after}"), body.to_string())
}

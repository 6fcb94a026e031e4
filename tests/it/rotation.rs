//! Files that Kubernetes renews by a swapped link under load: a registry's password, and a configuration with its Secret. No
//! call fails, and no restart is needed.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use auth::hash_token;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use nix::sys::signal::Signal;
use oci::Digest;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::support::{
    ADMIN_TOKEN, TOKEN,
    binary::Gateway,
    mounted::mount,
    upstream::{Request, Upstream},
    wire::{argo_request, exchange},
};

const SERVER: &str = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n";
const FILE_TYPE: &str = "Content-Type: application/vnd.oci.image.manifest.v1+json";
const MANIFEST: &str = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json"}"#;

/// Callers who send one new request after the other, and expect a good answer to each.
struct Callers {
    is_over: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    /// Their current token.
    token: Arc<Mutex<&'static str>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Callers {
    fn start(gateway: &Gateway, token: &'static str) -> Self {
        let (is_over, count, token) = (Arc::default(), Arc::default(), Arc::new(Mutex::new(token)));
        let mut callers = Self { is_over, count, token, tasks: Vec::new() };
        for _ in 0..4 {
            let (address, token) = (gateway.address, Arc::clone(&callers.token));
            let (is_over, count) = (Arc::clone(&callers.is_over), Arc::clone(&callers.count));
            callers.tasks.push(tokio::spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    let body = json!({"input": {"parameters": {"n": format!("{}", fastrand::u64(..))}}}).to_string();
                    let token = *token.lock().unwrap();
                    let request = argo_request("/r/api/v1/getparams.execute", token, body.as_bytes());
                    let reply = exchange(address, &request).await;
                    assert_eq!(reply.status, 200, "{}", reply.text());
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
        callers
    }

    /// Waits until `more` further requests were sent.
    async fn go_on(&self, more: usize) {
        let target = self.count.load(Ordering::SeqCst) + more;
        let asked = async {
            while self.count.load(Ordering::SeqCst) < target {
                assert!(self.tasks.iter().all(|task| !task.is_finished()), "a call failed");
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), asked).await.expect("they are answered");
    }

    async fn end(self) {
        self.is_over.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

async fn wait_until(what: &str, is_so: impl AsyncFn() -> bool) {
    let waited = async {
        while !is_so().await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), waited).await.unwrap_or_else(|_| panic!("{what}"));
}

fn basic(password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("ci:{password}")))
}

/// A registry that has every tag, for each of the passwords.
async fn registry(passwords: &Arc<Mutex<Vec<&'static str>>>) -> Upstream {
    let passwords = Arc::clone(passwords);
    let is_right = move |request: &Request| {
        let sent = request.header("authorization").unwrap_or_default();
        passwords.lock().unwrap().iter().any(|password| basic(password) == sent)
    };
    let headers = format!("{FILE_TYPE}\r\nDocker-Content-Digest: {}", Digest::of(MANIFEST.as_bytes()));
    Upstream::start(move |request| {
        if is_right(request) {
            request.answer(200, &headers, MANIFEST)
        } else {
            request.answer(401, "WWW-Authenticate: Basic realm=\"r\"", "")
        }
    })
    .await
}

fn mount_password(secret: &Path, version: &str, host: &str, password: &str) {
    let config = json!({"auths": {host: {"username": "ci", "password": password}}});
    // With the key of a Secret of the type `kubernetes.io/dockerconfigjson`.
    mount(secret, version, &[(".dockerconfigjson", &config.to_string())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registrys_password_is_renewed_under_load() {
    let passwords = Arc::new(Mutex::new(vec!["old"]));
    let (folder, registry) = (tempfile::tempdir().unwrap(), registry(&passwords).await);
    let (secret, host) = (folder.path().join("secret"), registry.address.to_string());
    std::fs::create_dir(&secret).unwrap();
    mount_password(&secret, "v1", &host, "old");
    let image = json!({"a": {"image": format!("{host}/org/app:{{{{ params.n }}}}")}});
    let registries = json!({&host: {"plainHttp": true, "dockerConfig": "secret/.dockerconfigjson"}});
    let auth = json!({"tokens": [{"name": "test", "sha256": hash_token(TOKEN)}]});
    let routes = json!([{"name": "r", "backend": {"digests": {"images": image}}}]);
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, format!("{SERVER}registries: {registries}\nauth: {auth}\nroutes: {routes}\n")).unwrap();
    let mut gateway = Gateway::serve(&file);
    let callers = Callers::start(&gateway, TOKEN);
    let sent = |password: &str| {
        let requests = registry.requests();
        requests.iter().filter(|request| request.header("authorization") == Some(&basic(password))).count()
    };
    callers.go_on(50).await;
    // For a while both passwords are valid, as in a careful rotation.
    *passwords.lock().unwrap() = vec!["old", "new"];
    assert_eq!(sent("new"), 0);
    mount_password(&secret, "v2", &host, "new");
    wait_until("the new one is sent", async || sent("new") > 0).await;
    callers.go_on(50).await;
    *passwords.lock().unwrap() = vec!["new"];
    let before = sent("old");
    callers.go_on(50).await;
    assert_eq!(sent("old"), before, "the old one is forgotten");
    callers.end().await;
    gateway.signal(Signal::SIGTERM);
    let (status, log) = gateway.wait(Duration::from_secs(20));
    assert!(status.success(), "{log}");
}

/// A configuration with these tokens and routes, as JSON, which is valid YAML.
fn configuration(tokens: &[&str], routes: &[&str]) -> String {
    let mut tokens: Vec<Value> = tokens.iter().map(|name| json!({"name": name, "file": name})).collect();
    tokens.push(json!({"name": "operator", "role": "admin", "sha256": hash_token(ADMIN_TOKEN)}));
    let route = |name: &&str| json!({"name": name, "backend": {"fixed": {"parameters": [{"a": name}]}}});
    let routes: Vec<Value> = routes.iter().map(route).collect();
    format!("{SERVER}auth: {}\nroutes: {}\n", json!({"tokens": tokens}), json!(routes))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_is_renewed_together_with_its_secret_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let put = |version: &str, tokens: &[&str], routes: &[&str]| {
        let config = configuration(tokens, routes);
        let secrets = tokens.iter().map(|name| (*name, *name));
        let files: Vec<_> = [("gateway.yaml", config.as_str())].into_iter().chain(secrets).collect();
        // As in a projected volume: one link for all files.
        mount(folder.path(), version, &files);
    };
    put("v1", &["one"], &["r"]);
    let mut gateway = Gateway::serve(&folder.path().join("gateway.yaml"));
    let address = gateway.address;
    let status = async |token: &str, route: &str| {
        exchange(address, &argo_request(&format!("/{route}/api/v1/getparams.execute"), token, b"{}")).await.status
    };
    let callers = Callers::start(&gateway, "one");
    assert_eq!((status("one", "r").await, status("two", "r").await, status("one", "s").await), (200, 403, 404));
    callers.go_on(20).await;
    put("v2", &["one", "two"], &["r", "s"]);
    wait_until("both are taken", async || status("two", "s").await == 200).await;
    callers.go_on(20).await;
    *callers.token.lock().unwrap() = "two";
    callers.go_on(20).await;
    put("v3", &["two"], &["r", "s"]);
    wait_until("the old one is not", async || status("one", "r").await == 403).await;
    callers.go_on(20).await;
    // A configuration that names a missing Secret changes nothing.
    mount(folder.path(), "v4", &[("gateway.yaml", &configuration(&["three"], &["r"])), ("two", "two")]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!((status("two", "s").await, status("three", "r").await), (200, 403));
    callers.end().await;
    gateway.signal(Signal::SIGTERM);
    let (status, log) = gateway.wait(Duration::from_secs(20));
    assert!(status.success() && log.contains("the one before stays in use"), "{log}");
}

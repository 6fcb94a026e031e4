//! The real program: files that change under load, and SIGHUP.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use nix::sys::signal::Signal;

use super::*;
use crate::support::{
    binary::Gateway,
    mounted::mount,
    wire::{argo_request, exchange, exchange_admin, operator_request},
};

fn file(routes: &[&str]) -> String {
    let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n";
    config(server, routes)
}

async fn shown(gateway: &Gateway) -> Value {
    let request = operator_request("GET", "/admin/config", "");
    serde_json::from_slice(&exchange_admin(gateway.admin, request.as_bytes()).await.body).unwrap()
}

async fn wait_for(gateway: &Gateway, what: &str, is_there: impl Fn(&Value) -> bool) -> Value {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let shown = shown(gateway).await;
            if is_there(&shown) {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_is_renewed_under_load() {
    let folder = tempfile::tempdir().unwrap();
    mount(folder.path(), "v1", &[("gateway.yaml", &file(&[A]))]);
    let mut gateway = Gateway::serve(&folder.path().join("gateway.yaml"));
    let address = gateway.address;
    let (is_over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (is_over, count) = (Arc::clone(&is_over), Arc::clone(&count));
            tokio::spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    let reply = exchange(address, &argo_request("/a/api/v1/getparams.execute", TOKEN, b"{}")).await;
                    assert_eq!(reply.sets(), r#"[{"a":"1"}]"#);
                    count.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    mount(folder.path(), "v2", &[("gateway.yaml", &file(&[A, B]))]);
    wait_for(&gateway, "a new one", |shown| shown["generation"] == 2).await;
    let reply = exchange(address, &argo_request("/b/api/v1/getparams.execute", TOKEN, b"{}")).await;
    assert_eq!(reply.sets(), r#"[{"b":"1"}]"#);
    mount(folder.path(), "v3", &[("gateway.yaml", "routes: [ {")]);
    wait_for(&gateway, "a bad one", |shown| shown["lastReload"]["isGood"] == false).await;
    mount(folder.path(), "v4", &[("gateway.yaml", &file(&[A]))]);
    let last = wait_for(&gateway, "a good one", |shown| shown["generation"] == 3).await;
    assert_eq!(last["lastReload"]["changes"]["gone"], json!(["b"]));
    is_over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    assert!(count.load(Ordering::SeqCst) > 0);
    gateway.signal(Signal::SIGTERM);
    let (status, log) = gateway.wait(Duration::from_secs(20));
    assert!(status.success());
    let served = "its callers have parameter sets of the configuration before";
    for line in ["another configuration is in use", "route b: gone", served, "the one before stays in use"] {
        assert!(log.contains(line), "{line}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_reloads_and_includes_plugins() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = |version: &str| {
        let at = folder.path().join("plugins/p");
        std::fs::create_dir_all(&at).unwrap();
        let manifest = format!(
            "apiVersion: argoproj.io/v1alpha1\nkind: GeneratorPlugin\nmetadata: {{ name: p }}\n\
             spec: {{ version: {version}, generate: {{ command: [echo, '[{{\"v\":\"{version}\"}}]'] }} }}\n"
        );
        // As an editor writes a file.
        std::fs::write(at.join("new"), manifest).unwrap();
        std::fs::rename(at.join("new"), at.join("plugin.yaml")).unwrap();
    };
    plugin("v1.0");
    let path = folder.path().join("gateway.yaml");
    std::fs::write(&path, format!("plugins: {{ path: plugins }}\n{}", file(&[A]))).unwrap();
    let mut gateway = Gateway::serve(&path);
    let ask = async |gateway: &Gateway| {
        exchange(gateway.address, &argo_request("/p/api/v1/getparams.execute", TOKEN, b"{}")).await.sets()
    };
    assert_eq!(ask(&gateway).await, r#"[{"v":"v1.0"}]"#);
    plugin("v1.1");
    wait_for(&gateway, "the plugin's", |shown| shown["generation"] == 2).await;
    assert_eq!(ask(&gateway).await, r#"[{"v":"v1.1"}]"#);
    // Nothing has changed, but SIGHUP reloads anyway.
    gateway.signal(Signal::SIGHUP);
    let shown = wait_for(&gateway, "a hangup's", |shown| shown["generation"] == 3).await;
    assert_eq!(shown["lastReload"]["changes"]["same"], json!(3));
    gateway.signal(Signal::SIGTERM);
    gateway.wait(Duration::from_secs(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_reload_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    std::fs::write(&path, file(&[A])).unwrap();
    let mut gateway = Gateway::serve(&path);
    let late = file(&[A]).replace("tokens: [", "tokens: [ { name: late, file: late },");
    assert_ne!(late, file(&[A]));
    std::fs::write(&path, late).unwrap();
    let shown = wait_for(&gateway, "a bad one", |shown| shown["lastReload"]["isGood"] == false).await;
    let tried = shown["lastReload"]["at"].clone();
    // Any change in the folder starts another try.
    let again = async {
        loop {
            std::fs::write(folder.path().join("other"), "").unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = again => {}
        _ = wait_for(&gateway, "another try", |shown| shown["lastReload"]["at"] != tried) => {}
    }
    std::fs::write(folder.path().join("late"), "late-token").unwrap();
    wait_for(&gateway, "a good one", |shown| shown["generation"] == 2).await;
    let reply = exchange(gateway.address, &argo_request("/a/api/v1/getparams.execute", "late-token", b"{}")).await;
    assert_eq!(reply.sets(), r#"[{"a":"1"}]"#);
    gateway.signal(Signal::SIGTERM);
    let (_, log) = gateway.wait(Duration::from_secs(20));
    assert_eq!(log.matches("the one before stays in use").count(), 1, "the same is told once: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_configuration_blocks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    std::fs::write(&path, file(&[A])).unwrap();
    let mut gateway = Gateway::serve(&path);
    std::fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let shown = wait_for(&gateway, "a bad one", |shown| shown["lastReload"]["isGood"] == false).await;
    let problems = shown["lastReload"]["problems"].to_string();
    // The gateway may have looked between the two calls.
    assert!(problems.contains("not a regular file") || problems.contains("No such file"), "{problems}");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, file(&[A, B])).unwrap();
    wait_for(&gateway, "a good one", |shown| shown["generation"] == 2).await;
    gateway.signal(Signal::SIGTERM);
    gateway.wait(Duration::from_secs(20));
}

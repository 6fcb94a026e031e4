//! `check` warns of credentials that anybody between the gateway and another machine could read.

use serde_json::{Value, json};

use crate::support::{TestApp, binary::command};

/// The warnings about cleartext for `config`, by path.
fn warnings(config: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for name in ["secret", "config.json"] {
        std::fs::write(folder.path().join(name), "{}").unwrap();
    }
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, config).unwrap();
    let output = command().args(["check", "-o", "json", "-c"]).arg(&file).output().unwrap();
    let found: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let in_cleartext = found.iter().filter(|finding| finding["message"].as_str().unwrap().contains("in cleartext"));
    in_cleartext
        .map(|finding| {
            assert_eq!(finding["severity"], "warning");
            finding["path"].as_str().unwrap().to_owned()
        })
        .collect()
}

fn backend(backend: &Value) -> String {
    format!("{}routes: {}\n", TestApp::auth(), json!([{"name": "r", "backend": backend}]))
}

#[test]
fn every_credential_in_cleartext_is_a_warning() {
    let secret = json!({"file": "secret"});
    let url = |scheme: &str| format!("{scheme}://h.example.com/x");
    for (what, of, path) in [
        (
            "a header",
            &(|host: &str| json!({"http": {"url": host, "headers": {"X-Key": secret}}})) as &dyn Fn(&str) -> Value,
            "http.url",
        ),
        ("a bearer", &|host| json!({"http": {"url": host, "credential": {"bearer": secret}}}), "http.url"),
        (
            "a password",
            &|host| json!({"http": {"url": host, "credential": {"basic": {"username": "u", "password": secret}}}}),
            "http.url",
        ),
        (
            "a template",
            &|host| json!({"http": {"url": format!("{host}/{{{{ params.x }}}}"), "credential": {"bearer": secret}}}),
            "http.url",
        ),
        ("a plugin", &|host| json!({"http": {"plugin": {"baseUrl": host, "token": secret}}}), "http.plugin.baseUrl"),
        (
            "a client secret",
            &|host| json!({"http": {"url": "https://h.example.com/", "credential": {"oauth2": {"tokenUrl": host, "clientId": "c", "clientSecret": secret}}}}),
            "http.credential.oauth2.tokenUrl",
        ),
        (
            "a pipeline",
            &|host| json!({"pipeline": [{"http": {"url": host, "credential": {"bearer": secret}}}]}),
            "pipeline[0].http.url",
        ),
    ] {
        assert_eq!(warnings(&backend(&of(&url("http")))), [format!("routes[0].backend.{path}")], "{what}");
        assert_eq!(warnings(&backend(&of(&url("https")))), [""; 0], "{what}");
        assert_eq!(warnings(&backend(&of("http://127.0.0.1:1/x"))), [""; 0], "{what}");
    }
    assert_eq!(warnings(&backend(&json!({"http": {"url": url("http")}}))), [""; 0], "without a credential");
    let fixed = json!({"fixed": {"parameters": [{"a": "b"}]}});
    for (more, path) in [
        (
            "outbound: { proxy: { url: \"http://proxy.example.com:3128\", username: u, password: { file: secret } } }\n",
            "outbound.proxy.url",
        ),
        (
            "traces: { endpoint: \"http://traces.example.com:4318\", headers: { x-key: { file: secret } } }\n",
            "traces.endpoint",
        ),
        (
            "cache: { shared: { url: \"redis://store.example.com:6379\", password: { file: secret } } }\n",
            "cache.shared.url",
        ),
        (
            "cache: { shared: { cluster: [\"redis://store.example.com:6379\"], password: { file: secret } } }\n",
            "cache.shared.cluster",
        ),
        (
            "registries: { r.example.com: { plainHttp: true, dockerConfig: config.json } }\n",
            "registries.r.example.com.plainHttp",
        ),
    ] {
        let config = format!("{more}{}", backend(&fixed));
        assert_eq!(warnings(&config), [path], "{more}");
        let safe = config
            .replace("http://", "https://")
            .replace("redis://", "rediss://")
            .replace("plainHttp: true", "plainHttp: false");
        assert_eq!(warnings(&safe), [""; 0], "{safe}");
    }
}

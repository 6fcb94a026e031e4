//! Hostile names in hosts, in the questions of a `forEach`, in the commands that `match` asks, and in plugins of Argo CD's own kind.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{NUL, serve, urls::sent, values::values};
use crate::support::{
    TOKEN, TestApp,
    upstream::{Upstream, json_response, refused},
    wire::argo_request,
};

async fn upstream() -> Upstream {
    Upstream::always(json_response(r#"[{"a":"b"}]"#)).await
}

/// A value in a host leads to an allowed one, by whichever spelling, or nowhere.
#[tokio::test]
async fn a_host_is_an_allowed_one() {
    let upstream = upstream().await;
    let (port, own) = (upstream.address.port(), upstream.address.to_string());
    for host in ["{{ params.v }}", "127.0.0.1{{ params.v }}", "{{ params.v }}127.0.0.1"] {
        let http = json!({"url": format!("http://{host}:{port}/list"), "allowedHosts": [own]});
        let app = serve(json!({"http": http}), json!({})).await;
        // Each request is checked to be one at the upstream, by its own name.
        for (value, request) in sent(&upstream, &app).await {
            assert!(request.is_none_or(|request| request.target == "/list"), "{host} {value:?}");
        }
        let reply = app.ask("r", json!({"v": if host.len() > 14 { "" } else { "127.0.0.1" }})).await;
        assert_eq!(reply.sets(), r#"[{"a":"b"}]"#, "{host}");
    }
}

#[tokio::test]
async fn an_item_that_is_asked_about_stays_in_its_place() {
    let upstream = upstream().await;
    let url = format!("http://{}/v1/{{{{ each.v }}}}/end?v={{{{ each.v }}}}&end", upstream.address);
    let steps = json!([
        {"fixed": {"parameters": [{"a": "b"}]}},
        {"select": "[params]"},
        {"http": {"url": url, "forEach": "items", "parameters": "body"}},
    ]);
    let app = serve(json!({"pipeline": steps}), json!({})).await;
    let mut arrived = 0;
    for (value, request) in sent(&upstream, &app).await {
        let Some(request) = request else { continue };
        arrived += 1;
        let (path, query) = request.target.split_once('?').unwrap();
        let decoded = |part: &str| percent_encoding::percent_decode_str(part).decode_utf8().unwrap().into_owned();
        let part = path.strip_prefix("/v1/").and_then(|rest| rest.strip_suffix("/end")).unwrap();
        assert_eq!((part.contains('/'), decoded(part)), (false, value.clone()));
        assert_eq!(decoded(query.strip_prefix("v=").and_then(|rest| rest.strip_suffix("&end")).unwrap()), value);
    }
    assert!(arrived > 0, "everything was refused");
}

/// A command that is asked whether a call is its own is told them as they are, on standard input and in its environment.
#[tokio::test]
async fn a_command_of_match_is_told_them_as_they_are() {
    let by_input = ["jq", "-r", r#".input.parameters | select((.v | @base64) == .w) | "mine""#];
    let by_environment =
        ["sh", "-c", r#"[ "$(printf %s "$PARAM_V" | base64 -w0)" = "$PARAM_W" ] && echo mine || true"#];
    for command in [by_input, by_environment] {
        let app = serve(json!({"fixed": {"parameters": [{"a": "b"}]}}), json!({"match": {"command": command}})).await;
        let call = async |value: &str, encoded: &str| {
            let body = json!({"applicationSetName": value, "input": {"parameters": {"v": value, "w": encoded}}});
            app.send(&argo_request("/api/v1/getparams.execute", TOKEN, body.to_string().as_bytes())).await
        };
        for value in values() {
            let reply = call(&value, &STANDARD.encode(&value)).await;
            assert_eq!(reply.status, 200, "{value:?}: {}", reply.text());
        }
        assert_eq!(call("x", "other").await.status, 404, "it decides");
        refused(&call(NUL, "").await, 422, "invalid_input", "NUL");
    }
}

#[tokio::test]
async fn a_config_management_plugin_is_told_them_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("plugins/p");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::create_dir(folder.path().join("work")).unwrap();
    // In base64, since a program writes what YAML does not allow as it stands.
    let program = "jq -n '{kind: \"X\", data: {v: env.PARAM_V, name: env.ARGOCD_APP_NAME, all: env.ARGOCD_APP_PARAMETERS} \
                   | map_values(@base64)}'";
    let manifest = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ConfigManagementPlugin", "metadata": {"name": "p"},
        "spec": {"generate": {"command": ["sh", "-c", program]}, "parameters": {"static": [{"name": "v"}]}},
    });
    std::fs::write(package.join("plugin.yaml"), manifest.to_string()).unwrap();
    let source = json!({"folder": "work", "cache": {"ttl": "0s"}, "parameters": "items.map(i, i.data)"});
    let plugins = json!({"path": "plugins", "sources": {"p": source}});
    let app = TestApp::start_in(folder, &format!("{}plugins: {plugins}\n", TestApp::auth())).await;
    for value in values() {
        let body = json!({"applicationSetName": value, "input": {"parameters": {"v": value}}});
        let reply = app.call("/p/api/v1/getparams.execute", &body).await;
        assert_eq!(reply.status, 200, "{value:?}: {}", reply.text());
        let told = reply.json()["output"]["parameters"][0].take();
        let [v, name, all] = ["v", "name", "all"].map(|key| STANDARD.decode(told[key].as_str().unwrap()).unwrap());
        assert_eq!([v, name], [value.as_bytes(), value.as_bytes()]);
        let all: Value = serde_json::from_slice(&all).unwrap();
        assert!(all.as_array().unwrap().iter().any(|one| one["string"] == *value), "{all}");
    }
    refused(&app.ask("p", json!({"v": NUL})).await, 422, "invalid_input", "NUL");
}

//! Hostile names in hosts, in `forEach`, in the commands of `match`, and in Config Management Plugins.

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

/// A value in a host, however spelled, leads to an allowed host or to no request.
#[tokio::test]
async fn hostile_hosts_lead_to_allowed_hosts_only() {
    let upstream = upstream().await;
    let (port, own) = (upstream.address.port(), upstream.address.to_string());
    for host in ["{{ params.v }}", "127.0.0.1{{ params.v }}", "{{ params.v }}127.0.0.1"] {
        let http = json!({"url": format!("http://{host}:{port}/list"), "allowedHosts": [own]});
        let app = serve(json!({"http": http}), json!({})).await;
        // The name of each request is unique at the upstream.
        for (value, request) in sent(&upstream, &app).await {
            assert!(request.is_none_or(|request| request.target == "/list"), "{host} {value:?}");
        }
        let reply = app.ask("r", json!({"v": if host.len() > 14 { "" } else { "127.0.0.1" }})).await;
        assert_eq!(reply.sets(), r#"[{"a":"b"}]"#, "{host}");
    }
}

#[tokio::test]
async fn each_item_of_for_each_stays_one_path_segment() {
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

/// A command of `match` gets the values unchanged, on standard input and in its environment.
#[tokio::test]
async fn match_commands_receive_hostile_values_unchanged() {
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
async fn config_management_plugins_receive_hostile_values_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("plugins/p");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::create_dir(folder.path().join("work")).unwrap();
    // In base64, since a program can write text that YAML does not allow unencoded.
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
        let returned_set = reply.json()["output"]["parameters"][0].take();
        let [v, name, all] =
            ["v", "name", "all"].map(|key| STANDARD.decode(returned_set[key].as_str().unwrap()).unwrap());
        assert_eq!([v, name], [value.as_bytes(), value.as_bytes()]);
        let all: Value = serde_json::from_slice(&all).unwrap();
        assert!(all.as_array().unwrap().iter().any(|one| one["string"] == *value), "{all}");
    }
    refused(&app.ask("p", json!({"v": NUL})).await, 422, "invalid_input", "NUL");
}

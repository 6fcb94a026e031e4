//! Hostile names in requests over HTTP: paths, queries, headers, image references.

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::{NUL, serve, values::values};
use crate::support::{
    TestApp,
    upstream::{Request, Upstream, json_response, refused},
};

/// Sends each value as the parameter `v`. Returns the request that the upstream got, or `None` if the value was refused.
pub(super) async fn sent(upstream: &Upstream, app: &TestApp) -> Vec<(String, Option<Request>)> {
    let mut all = Vec::new();
    for value in values().into_iter().chain([NUL.to_owned()]) {
        let before = upstream.requests().len();
        let reply = app.ask("r", json!({"v": value})).await;
        assert_eq!((reply.header("x-pwned"), reply.header("set-cookie")), (None, None), "{value:?}");
        let request = upstream.requests().get(before).cloned();
        match &request {
            Some(request) => {
                assert_eq!(reply.status, 200, "{value:?}: {}", reply.text());
                assert_eq!(request.header("x-pwned"), None, "{value:?}");
                assert_eq!(request.header("host"), Some(&*upstream.address.to_string()), "{value:?}");
            }
            None => _ = refused(&reply, 422, "invalid_input", ""),
        }
        all.push((value, request));
    }
    all
}

/// An `http` backend with these keys.
async fn asking(upstream: &Upstream, target: &str, more: Value) -> TestApp {
    let mut http = json!({"url": format!("http://{}{target}", upstream.address)});
    http.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serve(json!({"http": http}), json!({})).await
}

async fn upstream() -> Upstream {
    Upstream::always(json_response(r#"[{"a":"b"}]"#)).await
}

fn decoded(part: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~%".contains(c);
    assert!(part.chars().all(is_plain), "{part}");
    percent_decode_str(part).decode_utf8().unwrap().into_owned()
}

#[tokio::test]
async fn a_value_stays_one_path_segment() {
    let upstream = upstream().await;
    let app = asking(&upstream, "/v1/{{ params.v }}/end", json!({})).await;
    for (value, request) in sent(&upstream, &app).await {
        // A server that reads `%2F` or `\` as `/` would leave the path.
        let leaves = value.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."));
        assert_eq!(request.is_none(), leaves, "{value:?}");
        if let Some(request) = request {
            let part = request.target.strip_prefix("/v1/").and_then(|rest| rest.strip_suffix("/end")).unwrap();
            assert_eq!(decoded(part), value);
        }
    }
}

#[tokio::test]
async fn a_value_stays_one_query_parameter() {
    let upstream = upstream().await;
    let app = asking(&upstream, "/v1?v={{ params.v }}&end", json!({})).await;
    for (value, request) in sent(&upstream, &app).await {
        let target = request.unwrap_or_else(|| panic!("{value:?}")).target;
        let part = target.strip_prefix("/v1?v=").and_then(|rest| rest.strip_suffix("&end")).unwrap();
        assert_eq!(decoded(part), value);
    }
}

#[tokio::test]
async fn a_value_stays_one_header_line() {
    let upstream = upstream().await;
    let app = asking(&upstream, "/", json!({"headers": {"X-Branch": "<{{ params.v }}>"}})).await;
    for (value, request) in sent(&upstream, &app).await {
        // A tab may be in a header. Characters beyond ASCII arrive unchanged.
        let has_control = value.chars().any(|c| c.is_ascii_control() && c != '\t');
        assert_eq!(request.is_none(), has_control, "{value:?}");
        if let Some(request) = request {
            assert_eq!(request.header("x-branch"), Some(&*format!("<{value}>")));
        }
    }
}

#[tokio::test]
async fn a_value_stays_in_one_image_reference() {
    let words = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
    let registry = Upstream::start(move |request| request.answer(404, "Content-Type: application/json", words)).await;
    let host = registry.address.to_string();
    for (image, before, after) in [
        ("org/app:{{ params.v | tag }}", "/v2/org/app/manifests/", ""),
        ("org/app:{{ params.v | slug }}", "/v2/org/app/manifests/", ""),
        ("org/app:{{ params.v }}", "/v2/org/app/manifests/", ""),
        ("org/{{ params.v }}:1", "/v2/org/", "/manifests/1"),
        ("org/{{ params.v }}/app:1", "/v2/org/", "/app/manifests/1"),
    ] {
        // `onMissing: omit` would take an impossible tag for proven absent, and not refuse it.
        let placeholder = format!("{host}/org/app@sha256:{}", "0".repeat(64));
        let images = json!({"a": {"image": format!("{host}/{image}"), "placeholder": placeholder}});
        let digests = json!({"images": images, "onMissing": "placeholder"});
        let routes = json!([{"name": "r", "backend": {"digests": digests}, "output": {"a": "{{ a.digest }}"}}]);
        let registries = json!({&host: {"plainHttp": true}});
        let app = TestApp::start(&format!("{}registries: {registries}\nroutes: {routes}\n", TestApp::auth())).await;
        let mut arrived = 0;
        for (value, request) in sent(&registry, &app).await {
            let Some(request) = request else { continue };
            arrived += 1;
            let part = request.target.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            let part = part.unwrap_or_else(|| panic!("{value:?}: {}", request.target));
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            // A value may go deeper into the repository path, but never above the fixed part before it.
            let names: Vec<&str> = if after.is_empty() { vec![part] } else { part.split('/').collect() };
            let is_name = |name: &&str| !name.is_empty() && name.chars().all(fits) && !name.starts_with(['.', '-']);
            assert!(part.len() <= 128 && names.iter().all(is_name), "{value:?}: {part}");
            // Without a filter the value is unchanged.
            assert!(image.contains('|') || part == value, "{value:?}: {part}");
        }
        assert!(arrived > 0, "{image}: everything was refused");
        assert!(app.ask("r", json!({"v": "main"})).await.sets().contains("sha256:0000"));
    }
}

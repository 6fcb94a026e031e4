//! Requests of callers: a body, a path.

use std::{path::Path, sync::Arc, sync::LazyLock};

use appset_gateway::{
    app::App,
    config::Loaded,
    http::{
        edge::Site,
        server::{self, request::GetParamsRequest},
    },
};
use axum::body::Body;
use domain::{clock::SystemClock, file::base_dir::BaseDir};
use http::{Request, Uri};
use http_body_util::BodyExt;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{messages::is_one_line, numbers::as_the_library_writes};

/// An accepted body contains what was read from it, and that survives being written and read again.
pub(super) fn request_body(data: &[u8]) {
    let call = match GetParamsRequest::parse(data) {
        Ok(call) => call,
        Err(error) => return is_one_line(&error.to_string()),
    };
    let document: Value = serde_json::from_slice(data).expect("what is accepted is JSON");
    assert_eq!(*call.application_set, *document["applicationSetName"].as_str().unwrap_or_default());
    let parameters = document.pointer("/input/parameters").and_then(Value::as_object);
    assert_eq!(as_the_library_writes(&call.parameters), json!(parameters.cloned().unwrap_or_default()));
    let [name, parameters] =
        [json!(*call.application_set).to_string(), serde_json::to_string(&*call.parameters).unwrap()];
    let printed = format!(r#"{{"applicationSetName":{name},"input":{{"parameters":{parameters}}}}}"#);
    assert_eq!(GetParamsRequest::parse(printed.as_bytes()).unwrap(), call, "{printed}");
}

/// A path leads to the route whose name its first segment spells, percent-encoded or not, and no other spelling does. A caller
/// gets nothing from a route outside its scope.
pub(super) fn route_path(data: &[u8]) {
    let Ok(uri) = Uri::try_from(data) else { return };
    let wanted = wanted(uri.path());
    assert_eq!(GATEWAY.ask(&uri, "all"), (wanted.is_some(), wanted), "{uri}");
    let open = wanted.filter(|route| *route == "open");
    assert_eq!(GATEWAY.ask(&uri, "scoped"), (open.is_some(), open), "{uri}");
}

/// The route for `path`, by the documentation. `open` takes paths that name none.
fn wanted(path: &str) -> Option<&'static str> {
    let name = path.strip_suffix("/api/v1/getparams.execute")?;
    if name.is_empty() {
        return Some("open");
    }
    let segment = name.strip_prefix('/').filter(|segment| !segment.contains('/'))?;
    let name = percent_decode_str(segment).decode_utf8().ok()?;
    ["open", "closed"].into_iter().find(|route| *route == name)
}

/// Two routes, a token for both, and a token for the first.
struct Gateway {
    runtime: Runtime,
    site: Site,
}

static GATEWAY: LazyLock<Gateway> = LazyLock::new(|| {
    let token = |name: &str, routes: &str| json!({"name": name, "sha256": auth::hash_token(name), "routes": [routes]});
    let answer = |name: &str| json!({"fixed": {"parameters": [{"route": name}]}});
    let config = json!({
        "auth": {"tokens": [token("all", "*"), token("scoped", "open")]},
        "routes": [
            {"name": "open", "match": {}, "backend": answer("open")},
            {"name": "closed", "backend": answer("closed")},
        ],
    });
    let loaded = Loaded::parse("gateway.yaml", config.to_string(), BaseDir::default()).unwrap();
    let (app, _) = App::build(loaded, Arc::new(SystemClock), Path::new("/proc/self/exe")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    Gateway { runtime, site: server::site(&Arc::new(app)) }
});

impl Gateway {
    /// Whether `uri` is answered with a success, and by which route.
    fn ask(&self, uri: &Uri, token: &str) -> (bool, Option<&'static str>) {
        let request = Request::post(uri.clone()).header("authorization", format!("Bearer {token}"));
        let request = request.body(Body::from("{}")).unwrap();
        self.runtime.block_on(async {
            let response = self.site.answer(request).await.unwrap();
            let status = response.status();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let document: Value = serde_json::from_slice(&body).unwrap();
            let answered_by = document.pointer("/output/parameters/0/route");
            let route = ["open", "closed"].into_iter().find(|route| answered_by == Some(&json!(route)));
            (status.is_success(), route)
        })
    }
}

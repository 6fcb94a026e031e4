//! The backend `kubernetes`: lists of objects, read whole, of one cluster and of all that Argo CD knows.

mod check;
mod clusters;
mod faults;
mod logins;
mod objects;
mod recorded;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use url::form_urlencoded;

use crate::support::{
    Reply, TestApp,
    upstream::{Request, Step, Upstream, json_response, refused, response},
};

/// How many objects a page has, whatever the limit.
const PAGE: usize = 2;

/// What a cluster has.
#[derive(Default)]
struct State {
    /// The token that it accepts; any if it is empty.
    token: String,
    /// The value of `Authorization` that it accepts in place of the token.
    authorization: Option<String>,
    /// The objects, by the paths of their lists in a namespace, or of all for objects without one.
    objects: BTreeMap<&'static str, Vec<Value>>,
    /// The version of all lists.
    version: u32,
    /// Whether it has the custom resource.
    has_teams: bool,
    /// What it answers to requests with this text, in place of what it has: how often (`None`: always), and the answer.
    faults: Vec<(&'static str, Option<usize>, Vec<Step>)>,
}

/// An API server, as the documentation of Kubernetes describes it.
struct Cluster {
    upstream: Upstream,
    state: Arc<Mutex<State>>,
}

impl Cluster {
    /// A cluster with these namespaces.
    async fn start(namespaces: &[&str]) -> Self {
        let state = State { has_teams: true, version: 7, ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let own = Arc::clone(&state);
        let upstream = Upstream::start_apart(move |request| own.lock().unwrap().answer(request)).await;
        let cluster = Self { upstream, state };
        cluster.set("/api/v1/namespaces", namespaces.iter().map(|name| object(name, json!({"team": name}))).collect());
        cluster
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Accepts this token only from now on.
    fn accept(&self, token: &str) {
        token.clone_into(&mut self.state().token);
    }

    /// The objects in the list at `path` from now on.
    fn set(&self, path: &'static str, objects: Vec<Value>) {
        let mut state = self.state();
        state.version += 1;
        state.objects.insert(path, objects);
    }

    /// Answers requests with `text` so from now on.
    fn fail(&self, text: &'static str, steps: Vec<Step>) {
        self.state().faults.push((text, None, steps));
    }

    /// Answers the next request with `text` so.
    fn fail_once(&self, text: &'static str, steps: Vec<Step>) {
        self.state().faults.push((text, Some(1), steps));
    }

    fn heal(&self) {
        self.state().faults.clear();
    }

    fn url(&self) -> String {
        format!("http://{}", self.upstream.address)
    }

    /// The paths and queries of its requests.
    fn requests(&self) -> Vec<String> {
        self.upstream.requests().into_iter().map(|request| request.target).collect()
    }

    /// A gateway with a route `apps` that reads this cluster as its own, with `more` keys of the backend.
    async fn gateway(&self, more: Value) -> TestApp {
        gateway(&self.url(), more).await
    }
}

/// A gateway whose own cluster is at `api`, with a route `apps`. `more` has keys of the backend.
async fn gateway(api: &str, more: Value) -> TestApp {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "own-token").unwrap();
    TestApp::start_in(folder, &config(api, more)).await
}

fn config(api: &str, more: Value) -> String {
    let backend = json!({"apiVersion": "v1", "kind": "Namespace", "api": api, "token": {"file": "token"}});
    let backend = extended(backend, more);
    let route = json!({
        "name": "apps",
        "backend": {"kubernetes": backend},
        "cache": {"ttl": "10s", "staleWhileRevalidate": "0s", "staleIfError": "24h", "prefetch": false},
        "guard": {"onEmpty": "allow", "maxShrink": "100%"},
    });
    format!("{}routes: {}\n", TestApp::auth(), json!([route]))
}

/// `value` with the keys of `more`.
fn extended(mut value: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("not an object: {more}") };
    value.as_object_mut().unwrap().extend(more);
    value
}

/// An object without `apiVersion` and `kind`, as lists of Kubernetes' own types have them.
fn object(name: &str, labels: Value) -> Value {
    let mut object = json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")}});
    object["metadata"]["labels"] = labels;
    object
}

/// An object in a namespace.
fn object_in(namespace: &str, name: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "uid": format!("uid-of-{name}")}, "data": {"key": name}})
}

/// One of Argo CD's cluster Secrets.
fn cluster_secret(name: &str, server: &str, config: &Value) -> Value {
    let data = |text: &str| STANDARD.encode(text);
    let mut secret =
        object(&format!("cluster-{name}"), json!({"argocd.argoproj.io/secret-type": "cluster", "env": "prod"}));
    secret["data"] = json!({"name": data(name), "server": data(server), "config": data(&config.to_string())});
    secret
}

/// The values of `key` in an answer.
fn values(reply: &Reply, key: &str) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let sets: Value = serde_json::from_str(&reply.sets()).unwrap();
    sets.as_array().unwrap().iter().map(|set| set[key].as_str().unwrap().to_owned()).collect()
}

fn status(code: u16, reason: &str) -> Vec<Step> {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "code": code});
    vec![Step::Send(response(code, "Content-Type: application/json", body.to_string()))]
}

fn ok(body: &Value) -> Vec<Step> {
    vec![Step::Send(json_response(body.to_string()))]
}

impl State {
    fn answer(&mut self, request: &Request) -> Vec<Step> {
        if let Some(at) = self.faults.iter().position(|(text, ..)| request.target.contains(text)) {
            let (_, left, steps) = &mut self.faults[at];
            let steps = steps.clone();
            if let Some(left) = left {
                *left -= 1;
                if *left == 0 {
                    self.faults.remove(at);
                }
            }
            return steps;
        }
        let expected = self.authorization.clone().unwrap_or_else(|| format!("Bearer {}", self.token));
        let is_any = self.token.is_empty() && self.authorization.is_none();
        if !is_any && request.header("authorization") != Some(&expected) {
            return status(401, "Unauthorized");
        }
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let query: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        match path.split('/').skip(1).collect::<Vec<_>>()[..] {
            ["api", "v1"] => {
                ok(&resources("v1", &[("namespaces", "Namespace"), ("configmaps", "ConfigMap"), ("secrets", "Secret")]))
            }
            ["apis", "example.com", "v1"] if self.has_teams => ok(&resources("example.com/v1", &[("teams", "Team")])),
            ["api", "v1", "namespaces"] => self.list("v1", "Namespace", path, None, &query),
            ["api", "v1", "configmaps"] => self.list("v1", "ConfigMap", path, None, &query),
            ["api", "v1", "namespaces", namespace, "configmaps"] => {
                self.list("v1", "ConfigMap", "/api/v1/configmaps", Some(namespace), &query)
            }
            ["api", "v1", "namespaces", "argocd", "secrets"] => self.list("v1", "Secret", path, None, &query),
            ["apis", "example.com", "v1", "teams"] if self.has_teams => {
                self.list("example.com/v1", "Team", path, None, &query)
            }
            _ => status(404, "the server could not find the requested resource"),
        }
    }

    /// One page of the objects at `path`. A `continue` has the version of its list; that of another version has expired.
    fn list(
        &self,
        version: &str,
        kind: &str,
        path: &str,
        namespace: Option<&str>,
        query: &BTreeMap<String, String>,
    ) -> Vec<Step> {
        assert_eq!(query["limit"], "250");
        let text = |object: &Value, path: &str| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let is_meant = |object: &&Value| {
            let selector = query.get("labelSelector").map(String::as_str).unwrap_or_default();
            let mut pairs = selector.split(',').filter_map(|pair| pair.split_once('='));
            namespace.is_none_or(|name| text(object, "/metadata/namespace").as_deref() == Some(name))
                && pairs.all(|(key, value)| object["metadata"]["labels"][key] == *value)
        };
        let objects: Vec<&Value> = self.objects.get(path).into_iter().flatten().filter(is_meant).collect();
        let first = match query.get("continue").map(|token| token.split_once('-').unwrap()) {
            Some((of, _)) if of != self.version.to_string() => {
                return status(410, "The provided continue parameter is too old");
            }
            Some((_, first)) => first.parse().unwrap(),
            None => 0,
        };
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if first + PAGE < objects.len() {
            metadata["continue"] = format!("{}-{}", self.version, first + PAGE).into();
        }
        let items: Vec<_> = objects.into_iter().skip(first).take(PAGE).collect();
        ok(&json!({"apiVersion": version, "kind": format!("{kind}List"), "metadata": metadata, "items": items}))
    }
}

fn resources(version: &str, kinds: &[(&str, &str)]) -> Value {
    let resource = |(name, kind): &(&str, &str)| {
        let verbs = json!(["get", "list", "watch"]);
        json!({"name": name, "singularName": "", "namespaced": *name != "namespaces", "kind": kind, "verbs": verbs})
    };
    let mut resources: Vec<Value> = kinds.iter().map(resource).collect();
    let (name, kind) = kinds[0];
    resources.push(json!({"name": format!("{name}/status"), "singularName": "", "namespaced": false, "kind": kind, "verbs": ["get"]}));
    json!({"kind": "APIResourceList", "groupVersion": version, "resources": resources})
}

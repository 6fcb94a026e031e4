//! A gateway with hooks that refreshes the ApplicationSets of an API server.

use super::*;
use crate::support::{apiserver::ApiServer, wire::operator_request};

/// Another commit.
pub(super) const OTHER: &str = "ffffffffffffffffffffffffffffffffffffffff";
/// What the API server accepts.
pub(super) const SERVICE_TOKEN: &str = "the token of the service account";

/// A scene whose gateway refreshes the ApplicationSets of an API server.
pub(super) struct RefreshScene {
    /// The gateway and its source.
    pub scene: Scene,
    /// The API server.
    pub api: ApiServer,
}

impl RefreshScene {
    /// With more keys in `argocd.refresh`, and the lines `more` of the configuration. Routes have `cache`.
    pub(super) async fn start(refresh: Value, more: &str, cache: Value) -> Self {
        Self::of(json!([hook("github", "secret")]), refresh, more, cache).await
    }

    /// The same with these hooks.
    pub(super) async fn of(hooks: Value, refresh: Value, more: &str, cache: Value) -> Self {
        let api = ApiServer::start(SERVICE_TOKEN).await;
        for name in ["a", "b", "c"] {
            api.add("argocd", name, "gateway");
        }
        api.add("argocd", "stranger", "another-gateway");
        let mut settings = json!({"namespaces": ["argocd", "teams"], "configMaps": ["gateway"], "api": api.url,
            "token": {"file": "service-token"}, "ca": "cluster.crt"});
        settings.as_object_mut().unwrap().extend(refresh.as_object().unwrap().clone());
        let more = format!("{more}argocd: {{ refresh: {settings} }}\n");
        let files = [("service-token", SERVICE_TOKEN), ("cluster.crt", &*api.ca)];
        let scene = Scene::of(hooks, &more, cache, &files).await;
        Self { scene, api }
    }

    /// With a hook of GitHub, and answers that are fresh for an hour.
    pub(super) async fn usual() -> Self {
        Self::start(json!({}), "", json!({"ttl": "1h"})).await
    }

    /// Asks for the ApplicationSet `set`.
    pub(super) async fn ask(&self, set: &str, sha: &str, n: usize) -> Reply {
        ask_for(&self.scene.gateway, set, sha, n).await
    }

    /// Starts the gateway again, with `from` replaced by `to` in its configuration.
    pub(super) fn restart_with(&mut self, from: &str, to: &str) {
        let file = self.scene.folder.path().join("gateway.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&file, text.replace(from, to)).unwrap();
        self.scene.gateway = Gateway::serve(&file);
    }

    /// CI has finished the commit.
    pub(super) async fn finish(&self) {
        let body = github(SHA);
        let reply = self.scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(&body))], &body).await;
        assert_eq!(reply.status, 202, "{}", reply.text());
    }

    /// An operator releases the held answer.
    pub(super) async fn release(&self) {
        let admin = self.scene.gateway.admin;
        let held = exchange_admin(admin, operator_request("GET", "/admin/held", "").as_bytes()).await;
        let id = held.json()["held"][0]["id"].as_str().unwrap().to_owned();
        let release = operator_request("POST", &format!("/admin/held/{id}/release"), "");
        assert_eq!(exchange_admin(admin, release.as_bytes()).await.status, 200);
    }

    /// How many looks there were.
    pub(super) async fn looks(&self) -> u64 {
        let mut count = 0;
        for result in ["changed", "unchanged", "held", "failed"] {
            count += self.scene.metric(&format!("appset_gateway_hook_rechecks_total{{result=\"{result}\"}}")).await;
        }
        count
    }

    /// Waits until exactly these were told, and a moment more.
    pub(super) async fn refreshes(&self, expected: &[&str]) {
        within("the ApplicationSets are told", async || self.api.refreshed().len() >= expected.len()).await;
        sleep(Duration::from_millis(500)).await;
        let mut sets = self.api.refreshed_sets();
        sets.sort();
        assert_eq!(sets, expected);
    }
}

/// Waits until `is_reached`.
pub(super) async fn within(what: &str, mut is_reached: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + Duration::from_mins(5);
    while !is_reached().await {
        assert!(Instant::now() < until, "not in time: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Asks for the ApplicationSet `set`.
pub(super) async fn ask_for(gateway: &Gateway, set: &str, sha: &str, n: usize) -> Reply {
    let parameters = json!({"sha": sha, "n": n.to_string()});
    let body = json!({"applicationSetName": set, "input": {"parameters": parameters}}).to_string();
    exchange(gateway.address, &argo_request("/h/api/v1/getparams.execute", TOKEN, body.as_bytes())).await
}

//! A gateway on a day with some trouble, as an operator would meet it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use appset_gateway::http::server;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use super::auth;
use crate::support::{
    TestApp,
    upstream::{Step, Upstream, json_response},
    wire,
};

/// A branch that would do harm if it were more than text.
pub(super) const HOSTILE: &str = "fix/<img src=x onerror=alert(1)>\u{202e}gnp.exe";

/// A running gateway, its source, and its listener for hooks.
pub(super) struct Scene {
    pub(super) app: TestApp,
    _source: Upstream,
    is_failing: Arc<AtomicBool>,
    hooks: SocketAddr,
    hooks_task: JoinHandle<bool>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.hooks_task.abort();
    }
}

impl Scene {
    /// A gateway whose sources all answer, after a day of calls.
    pub(super) async fn good_day() -> Self {
        Self::good_day_with(HOSTILE).await
    }

    /// The same with this name of a branch.
    async fn good_day_with(branch: &str) -> Self {
        let is_failing = Arc::new(AtomicBool::new(false));
        let fails = Arc::clone(&is_failing);
        let source = Upstream::start_apart(move |request| {
            let tenants = ["north", "south", "west"].map(|name| json!({"id": name, "cluster": "https://one.example"}));
            let body = json!({ "items": tenants }).to_string();
            if fails.load(Ordering::SeqCst) {
                request.answer(503, "Retry-After: 90", "the inventory is being moved")
            } else {
                vec![Step::Send(json_response(body))]
            }
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "a secret of the sender").unwrap();
        super::print(folder.path(), &["main"]);
        let config = json!({
            "server": {"hooks": "127.0.0.1:0"},
            "hooks": [{"name": "builds", "kind": "generic", "token": {"file": "secret"}, "header": "X-Token",
                "subjects": "[{'route': body.route, 'parameters': {'repository': body.repository}}]"}],
            "routes": routes(source.address),
        });
        let app = TestApp::start_in(folder, &format!("{}{}", auth(), yaml(&config))).await;
        let hooks = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = hooks.local_addr().unwrap();
        let (edge, router) = (server::hooks::edge(&app.app), server::hooks::router(Arc::clone(&app.app)));
        let phase = app.app.lifecycle.watch();
        let hooks_task = tokio::spawn(async move { edge.serve(hooks, router, phase, || Duration::ZERO).await });
        let scene = Self { app, _source: source, is_failing, hooks: address, hooks_task };
        scene.a_day_passes(branch).await;
        scene
    }

    /// The same, and then a source fails, and another one forgets branches.
    pub(super) async fn bad_day() -> Self {
        Self::bad_day_with(HOSTILE).await
    }

    /// The same with this name of a branch.
    pub(super) async fn bad_day_with(branch: &str) -> Self {
        let scene = Self::good_day_with(branch).await;
        scene.is_failing.store(true, Ordering::SeqCst);
        super::print(scene.app.folder.path(), &["main", "release-1.29", "docs"]);
        scene.app.clock.advance(Duration::from_mins(4));
        scene.ask("branches", "previews", json!({"repository": "shop"})).await;
        scene.ask("tenants", "tenants-prod", json!({"env": "production"})).await;
        scene.ask("mirrors", "mirrors", json!({"region": "eu"})).await;
        scene.app.settle().await;
        scene.app.clock.advance(Duration::from_mins(13));
        scene
    }

    /// Sends an event to the hook, and waits until it is settled.
    pub(super) async fn tell(&self, token: &str, repository: &str) -> u16 {
        let body = json!({"route": "branches", "repository": repository}).to_string();
        let length = body.len();
        let head = format!(
            "POST /hooks/builds HTTP/1.1\r\nHost: hooks\r\nX-Token: {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        wire::exchange_admin(self.hooks, head.as_bytes()).await.status
    }

    pub(super) async fn ask(&self, route: &str, application_set: &str, parameters: Value) {
        let body = json!({"applicationSetName": application_set, "input": {"parameters": parameters}});
        self.app.call(&format!("/{route}/api/v1/getparams.execute"), &body).await;
    }

    async fn a_day_passes(&self, branch: &str) {
        let mut names: Vec<String> =
            ["main", "release-1.29", "docs", "feature/login", branch].map(str::to_owned).into();
        for hour in 0..24 {
            if hour % 3 == 0 {
                names.push(format!("feature/cart-{hour}"));
            }
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            super::print(self.app.folder.path(), &names);
            self.ask("branches", "previews", json!({"repository": "shop"})).await;
            self.ask("branches", "previews", json!({"repository": "blog", "branch": branch})).await;
            self.ask("tenants", "tenants-prod", json!({"env": "production"})).await;
            self.ask("clusters", "platform", json!({})).await;
            self.app.admin("/metrics").await;
            self.app.clock.advance(Duration::from_hours(1));
        }
        self.ask("branches", "previews", json!({"repository": "shop"})).await;
        self.ask("tenants", "tenants-prod", json!({"env": "production"})).await;
        self.ask("clusters", "platform", json!({})).await;
        self.app.settle().await;
    }
}

fn routes(source: SocketAddr) -> Value {
    let http = |path: &str| {
        json!({"http": {"url": format!("http://{source}{path}"),
            "parameters": "body.items.map(t, {'name': t.id, 'server': t.cluster})"}})
    };
    json!([
        {"name": "branches", "backend": {"script": {"command": ["cat", "answer"], "allow": {"read": ["."]}}}},
        {"name": "tenants", "backend": http("/v1/tenants")},
        {"name": "mirrors", "backend": http("/v1/mirrors")},
        {"name": "clusters", "backend": {"fixed": {"parameters": [{"name": "one"}, {"name": "two"}]}}},
        {"name": "nightly", "backend": {"fixed": {"parameters": []}}},
    ])
}

fn yaml(config: &Value) -> String {
    let keys = config.as_object().unwrap().iter();
    keys.fold(String::new(), |all, (key, value)| all + key + ": " + &value.to_string() + "\n")
}

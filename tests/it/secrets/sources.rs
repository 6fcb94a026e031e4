//! Sources that repeat their requests, and a route for each way to give them a secret.

use serde_json::{Value, json};

use super::CANARY;
use crate::support::upstream::{Request, Upstream, response};

/// The servers that the gateway contacts.
pub(super) struct Sources {
    /// APIs, including a forge.
    pub api: Upstream,
    /// Publishes an issuer's keys. Separate, since the breaker opens for a failing server.
    pub keys: Upstream,
    /// A Kubernetes API server.
    pub review: Upstream,
    registry: Upstream,
    /// A registry's token server.
    identity: Upstream,
    /// A forward proxy.
    pub proxy: Upstream,
    /// Who takes spans.
    pub collector: Upstream,
}

/// Repeats the request, as careless services do.
async fn echoing(status: u16, headers: &'static str) -> Upstream {
    Upstream::start(move |request| {
        let body = String::from_utf8_lossy(&request.body);
        request.answer(status, headers, format!("you sent {:?} {body}", request.headers))
    })
    .await
}

/// A registry whose token server repeats the identity token.
async fn identity_registry() -> Upstream {
    Upstream::start(move |request| {
        if request.target.starts_with("/token") {
            return request.answer(400, "", format!("you sent {}", String::from_utf8_lossy(&request.body)));
        }
        let realm = format!("http://{}/token", request.header("host").unwrap());
        request.answer(401, &format!("WWW-Authenticate: Bearer realm=\"{realm}\""), "")
    })
    .await
}

impl Sources {
    /// Starts all of them. None ever succeeds.
    pub(super) async fn start() -> Self {
        Self {
            api: echoing(500, "").await,
            keys: echoing(500, "").await,
            review: echoing(500, "").await,
            registry: echoing(401, "WWW-Authenticate: Basic realm=\"r\"").await,
            identity: identity_registry().await,
            proxy: echoing(407, "Proxy-Authenticate: Basic").await,
            collector: Upstream::always(response(200, "", "")).await,
        }
    }

    /// All requests they got.
    pub(super) fn requests(&self) -> Vec<Request> {
        let all = [&self.api, &self.keys, &self.review, &self.registry, &self.identity, &self.proxy, &self.collector];
        all.map(Upstream::requests).concat()
    }

    /// The passwords of the registries.
    pub(super) fn docker_config(&self) -> Value {
        json!({"auths": {
            self.registry.address.to_string(): {"username": "ci", "password": format!("registry-{CANARY}")},
            self.identity.address.to_string(): {"identitytoken": format!("identity-{CANARY}")},
        }})
    }

    /// The `registries` configuration.
    pub(super) fn registries(&self) -> Value {
        let plain = json!({"plainHttp": true, "dockerConfig": "docker.json"});
        json!({self.registry.address.to_string(): plain, self.identity.address.to_string(): plain})
    }

    /// A route for each way to hold a secret.
    pub(super) fn routes(&self) -> Value {
        let (commit, api) = ("a".repeat(40), format!("http://{}", self.api.address));
        let image = |of: &Upstream| json!({"a": {"image": format!("{}/org/app:1", of.address)}});
        let http = |name: &str, url: &str, more: Value| {
            let mut http = json!({"url": url});
            http.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"name": name, "backend": {"http": http}})
        };
        let oauth2 = json!({"tokenUrl": api, "clientId": "gateway", "clientSecret": {"file": "client-secret"}});
        let app = json!({"id": 1, "installation": 2, "privateKey": {"file": "app.pem"}, "api": api});
        json!([
            {"name": "script", "backend": {"script": {"command": ["sh", "-c", "echo $SECRET >&2; echo $SECRET"],
                "env": {"SECRET": {"file": "variable"}}}}},
            {"name": "failing", "backend": {"script": {"command": ["sh", "-c", "env >&2; exit 1"],
                "env": {"SECRET": {"file": "variable"}}}}},
            http("http", &api, json!({"headers": {"Authorization": {"file": "header"}}})),
            http("bought", &api, json!({"credential": {"oauth2": oauth2}})),
            http("app", &api, json!({"credential": {"githubApp": app}})),
            http("basic", &api, json!({"credential": {"basic": {"username": "u", "password": {"file": "variable"}}}})),
            http("shown", &api.replace("http:", "https:"), json!({"clientCertificate": {"cert": "own.crt", "key": "own.key"}})),
            http("proxied", "http://source.example/", json!({})),
            {"name": "digests", "backend": {"digests": {"images": image(&self.registry)}}},
            {"name": "identity", "backend": {"digests": {"images": image(&self.identity)}}},
            {"name": "gated", "backend": {"digests": {"images": image(&self.registry), "gate": {"all": [
                {"github": {"api": api, "repository": "o/r", "sha": commit, "workflows": ["b"], "token": {"file": "forge"}}},
                {"gitlab": {"api": api, "project": "g/r", "sha": commit, "tokenKind": "bearer", "token": {"file": "forge"}}},
            ]}}}},
            {"name": "piped", "backend": {"pipeline": self.piped()}},
            {"name": "fixed", "match": {}, "backend": {"fixed": {"parameters": [{"a": "b"}]}}},
        ])
    }

    /// Steps: the first finds a secret, and the later ones repeat their input.
    fn piped(&self) -> Value {
        let finding = "echo \"[{\\\"found\\\": \\\"$SECRET\\\"}]\"";
        json!([
            {"script": {"command": ["sh", "-c", finding], "env": {"SECRET": {"file": "variable"}}}},
            {"merge": {"mergeKeys": ["found"], "backends": [
                {"script": {"command": ["sh", "-c", "grep -o items.* >&2; exit 1"]}},
                {"http": {"url": format!("http://{}/{{{{ items[0].found }}}}", self.api.address),
                    "headers": {"Authorization": {"file": "header"}}}},
            ]}},
        ])
    }
}

//! Whole deliveries of all senders, in the form that their documentation gives, with the headers that they send. `openssl` signs them.

use std::path::Path;

use super::*;
use crate::support::wire::operator_request;

/// How a sender proves a delivery.
enum Proof {
    /// The header and the beginning of an HMAC in hexadecimal.
    Hmac(&'static str, &'static str, &'static str),
    /// Standard Webhooks.
    Standard,
    /// The header and the beginning of the secret in it.
    Token(&'static str, &'static str),
    /// The secret in the path.
    Path,
}

/// A delivery of a sender: the hook's kind, the file, more headers, the proof, and what it is about.
struct Delivery {
    kind: &'static str,
    file: &'static str,
    headers: &'static [(&'static str, &'static str)],
    proof: Proof,
    about: Value,
}

const fn delivery(
    kind: &'static str,
    file: &'static str,
    headers: &'static [(&'static str, &'static str)],
    proof: Proof,
    about: Value,
) -> Delivery {
    Delivery { kind, file, headers, proof, about }
}

/// Forges.
fn forges() -> Vec<Delivery> {
    let image = |name: &str| json!([{"image": format!("{name}:main")}]);
    let commit = || json!([{"commit": SHA}]);
    let hub = Proof::Hmac("X-Hub-Signature-256", "sha256", "sha256=");
    let hub_again = Proof::Hmac("X-Hub-Signature-256", "sha256", "sha256=");
    vec![
        delivery(
            "github",
            "github-workflow-run",
            &[("X-GitHub-Event", "workflow_run"), ("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")],
            hub,
            commit(),
        ),
        delivery(
            "github",
            "ghcr-registry-package",
            &[("X-GitHub-Event", "registry_package"), ("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0959")],
            hub_again,
            image("ghcr.io/org/app"),
        ),
        delivery(
            "gitlab",
            "gitlab-pipeline",
            &[("X-Gitlab-Event", "Pipeline Hook"), ("X-Gitlab-Event-UUID", "13792a34-cac6-4fda-95a8-c58e00a3954e")],
            Proof::Standard,
            commit(),
        ),
        delivery(
            "gitea",
            "gitea-package",
            &[("X-Gitea-Event", "package"), ("X-Gitea-Delivery", "f6266f16-1bf3-46a5-9ea4-602e06ead473")],
            Proof::Hmac("X-Gitea-Signature", "sha256", ""),
            image("git.example.com/org/app"),
        ),
        delivery(
            "forgejo",
            "forgejo-status",
            &[("X-Forgejo-Event", "status"), ("X-Forgejo-Delivery", "f6266f16-1bf3-46a5-9ea4-602e06ead474")],
            Proof::Hmac("X-Forgejo-Signature", "sha256", ""),
            commit(),
        ),
        delivery(
            "bitbucket",
            "bitbucket-commit-status",
            &[
                ("X-Event-Key", "repo:commit_status_updated"),
                ("X-Request-UUID", "4a6b0d60-0f4b-4b6d-8d0e-0a8b6d6a1f5e"),
                ("X-Attempt-Number", "1"),
            ],
            Proof::Hmac("X-Hub-Signature", "sha256", "sha256="),
            commit(),
        ),
    ]
}

/// Registries and others.
fn registries() -> Vec<Delivery> {
    let image = |name: &str| json!([{"image": format!("{name}:main")}]);
    vec![
        delivery(
            "distribution",
            "distribution",
            &[("Content-Type", "application/vnd.docker.distribution.events.v1+json")],
            Proof::Token("Authorization", "Bearer "),
            image("registry.example.com/org/app"),
        ),
        delivery("harbor", "harbor", &[], Proof::Token("Authorization", ""), image("harbor.example.com/org/app")),
        delivery(
            "harbor",
            "harbor-cloudevent",
            &[("Content-Type", "application/cloudevents+json")],
            Proof::Token("Authorization", ""),
            image("harbor.example.com/org/app"),
        ),
        delivery("quay", "quay", &[], Proof::Path, image("quay.io/org/app")),
        delivery("dockerHub", "docker-hub", &[], Proof::Path, image("docker.io/org/app")),
        delivery("acr", "acr", &[], Proof::Token("Authorization", ""), image("example.azurecr.io/org/app")),
        delivery(
            "artifactRegistry",
            "artifact-registry",
            &[],
            Proof::Path,
            image("us-east1-docker.pkg.dev/project/repo/app"),
        ),
        delivery(
            "ecr",
            "ecr",
            &[],
            Proof::Token("Authorization", ""),
            // A registry of ECR has several names.
            json!([
                {"image": "123456789012.dkr.ecr.us-west-2.amazonaws.com/org/app:main"},
                {"image": "123456789012.dkr.ecr-fips.us-west-2.amazonaws.com/org/app:main"},
                {"image": "123456789012.dkr-ecr.us-west-2.on.aws/org/app:main"},
                {"image": "123456789012.dkr-ecr-fips.us-west-2.on.aws/org/app:main"},
            ]),
        ),
        delivery(
            "jfrog",
            "jfrog",
            &[],
            Proof::Token("X-JFrog-Event-Auth", ""),
            image("registry.example.com/docker-local/org/app"),
        ),
        delivery(
            "nexus",
            "nexus",
            &[("X-Nexus-Webhook-Id", "rm:repository:component"), ("X-Nexus-Webhook-Delivery", "f5d8a5b2")],
            Proof::Hmac("X-Nexus-Webhook-Signature", "sha1", ""),
            image("registry.example.com/org/app"),
        ),
        delivery(
            "cloudEvents",
            "cloudevents",
            &[("Content-Type", "application/cloudevents+json")],
            Proof::Standard,
            json!([{"commit": SHA}]),
        ),
    ]
}

fn body(file: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/hooks/deliveries").join(format!("{file}.json"));
    std::fs::read(path).unwrap()
}

/// The headers and the path that prove `body`.
fn prove(delivery: &Delivery, body: &[u8]) -> (String, Vec<(String, String)>) {
    let path = format!("/hooks/{}", delivery.kind);
    let one = |name: &str, value: String| vec![(name.to_owned(), value)];
    match delivery.proof {
        Proof::Hmac(header, digest, before) => {
            (path, one(header, format!("{before}{}", openssl(digest, SECRET, body))))
        }
        Proof::Token(header, before) => (path, one(header, format!("{before}{SECRET}"))),
        Proof::Path => (format!("{path}/{}", SECRET.replace(' ', "%20")), Vec::new()),
        Proof::Standard => {
            let (time, signature) = standard(SECRET, unix_now(), body);
            let headers =
                [("webhook-id", "msg_1".to_owned()), ("webhook-timestamp", time), ("webhook-signature", signature)];
            (path, headers.map(|(name, value)| (name.to_owned(), value)).into())
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_deliveries_of_all_senders_are_understood() {
    let all: Vec<Delivery> = forges().into_iter().chain(registries()).collect();
    let mut hooks: Vec<Value> = Vec::new();
    for delivery in &all {
        let key = match delivery.proof {
            Proof::Hmac(..) | Proof::Standard => "secret",
            Proof::Token(..) => "token",
            Proof::Path => "pathToken",
        };
        let mut hook = hook(delivery.kind, key);
        match delivery.kind {
            "jfrog" | "nexus" => hook["registry"] = json!("registry.example.com"),
            "cloudEvents" => hook["subjects"] = json!("[{'commit': body.data.subject.content.sha}]"),
            _ => {}
        }
        if !hooks.contains(&hook) {
            hooks.push(hook);
        }
    }
    let scene = Scene::start(json!(hooks)).await;
    for delivery in &all {
        let (file, body) = (delivery.file, body(delivery.file));
        let (path, proof) = prove(delivery, &body);
        let borrowed = proof.iter().map(|(name, value)| (&**name, &**value));
        let headers: Vec<(&str, &str)> = delivery.headers.iter().copied().chain(borrowed).collect();
        let reply = scene.post(&path, &headers, &body).await;
        assert_eq!((reply.status, reply.json()), (202, json!({"result": "taken"})), "{file}: {}", reply.text());
        // The same delivery again: it has an id, unless its sender gives none.
        let has_id = !matches!(delivery.kind, "harbor" | "quay" | "dockerHub" | "jfrog");
        let again = scene.post(&path, &headers, &body).await.json();
        assert_eq!(again, json!({"result": if has_id { "duplicate" } else { "taken" }}), "{file}");
        let request = operator_request(
            "POST",
            &format!("/admin/hooks/{}/concerns", delivery.kind),
            std::str::from_utf8(&body).unwrap(),
        );
        let concerns = exchange_admin(scene.gateway.admin, request.as_bytes()).await;
        assert_eq!(concerns.json()["subjects"], delivery.about, "{file}: {}", concerns.text());
        // Changed on the way.
        if !matches!(delivery.proof, Proof::Path | Proof::Token(..)) {
            let reply = scene.post(&path, &headers, &[&body[..], b" "].concat()).await;
            assert_eq!(reply.status, 403, "{file}");
        }
        // Cut off on the way.
        let cut = &body[..body.len() / 2];
        let (path, proof) = prove(delivery, cut);
        let headers: Vec<(&str, &str)> = proof.iter().map(|(name, value)| (&**name, &**value)).collect();
        let reply = scene.post(&path, &headers, cut).await;
        assert_eq!(reply.status, 400, "{file}: {}", reply.text());
        assert!(reply.message().contains("it ends too early"), "{file}: {}", reply.message());
    }
}

/// A repository is renamed: that says nothing about an answer. Later builds of it concern the same commits.
#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_repository_changes_nothing() {
    let scene = Scene::start(json!([hook("github", "secret")])).await;
    scene.ask(SHA, 1).await;
    let renamed = body("github-repository-renamed");
    let reply = scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(&renamed))], &renamed).await;
    assert_eq!((reply.status, reply.json()), (202, json!({"result": "ignored"})));
    scene.state.store(2, Ordering::SeqCst);
    let built = String::from_utf8(body("github-workflow-run")).unwrap().replace("Org/app", "Org/application");
    let reply =
        scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(built.as_bytes()))], built.as_bytes()).await;
    assert_eq!(reply.json(), json!({"result": "taken"}));
    scene.shows(SHA, 1, 2).await;
}

/// A body of one sender at the hook of another one is understood, ignored or refused, and harms nobody.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_another_kind_do_no_harm() {
    let all: Vec<Delivery> = forges().into_iter().chain(registries()).collect();
    let mut kinds: Vec<&str> = all.iter().map(|delivery| delivery.kind).collect();
    kinds.dedup();
    let hooks = kinds.iter().map(|kind| {
        let mut hook = json!({"name": kind, "kind": kind, "token": {"file": "secret"}, "header": "X-Token"});
        match *kind {
            "jfrog" | "nexus" => hook["registry"] = json!("registry.example.com"),
            "cloudEvents" => hook["subjects"] = json!("[{'commit': body.data.subject.content.sha}]"),
            _ => {}
        }
        hook
    });
    let scene = Scene::start(hooks.collect()).await;
    scene.ask("x", 1).await;
    for kind in &kinds {
        for other in all.iter().filter(|delivery| delivery.kind != *kind) {
            let (path, body) = (format!("/hooks/{kind}"), body(other.file));
            let reply = scene.post(&path, &[("X-Token", SECRET)], &body).await;
            assert!([202, 400].contains(&reply.status), "{kind} {}: {}", other.file, reply.text());
            assert!(!reply.text().contains(SHA), "{kind} {}: {}", other.file, reply.text());
        }
    }
    assert_eq!(scene.ask("x", 1).await, json!("1"));
    sleep(Duration::from_millis(500)).await;
    assert_eq!(scene.runs(), 1);
}

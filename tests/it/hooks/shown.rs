//! `GET /admin/events`: what became of deliveries.

use super::{
    refresh_scene::{RefreshScene, within},
    *,
};
use crate::support::wire::operator_request;

async fn events(scene: &Scene) -> Value {
    let request = operator_request("GET", "/admin/events", "");
    let reply = exchange_admin(scene.gateway.admin, request.as_bytes()).await;
    contract::conforms(Listener::Admin, request.as_bytes(), &reply);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_shows_what_it_concerned_and_whom_it_refreshed() {
    let told = RefreshScene::usual().await;
    let scene = &told.scene;
    assert_eq!(events(scene).await, json!({"events": [], "unproven": [], "kept": 100}));
    assert_eq!(told.ask("a", SHA, 7).await.status, 200);
    scene.state.store(2, Ordering::SeqCst);
    told.finish().await;
    told.refreshes(&["argocd/a"]).await;
    let first = events(scene).await["events"][0].clone();
    assert_eq!(
        [&first["hook"], &first["outcome"], &first["subjects"]],
        [&json!("github"), &json!("taken"), &json!([{"commit": SHA}])]
    );
    assert_eq!((&first["questionsTotal"], &first["questions"][0]["route"]), (&json!(1), &json!("h")), "{first:#}");
    assert_eq!(first["questions"][0]["input"], json!({"sha": SHA, "n": "7"}));
    assert_eq!(
        (&first["refreshedTotal"], &first["refreshed"][0]["applicationSet"]),
        (&json!(1), &json!("a")),
        "{first:#}"
    );
    let after = first["refreshed"][0]["afterSeconds"].as_f64().unwrap();
    assert!(after > 0.0 && after < 30.0, "{after}");
    assert_eq!(scene.metric("appset_gateway_event_to_refresh_duration_seconds_count").await, 1);
    // Another event finds nothing new, and refreshes nobody.
    told.finish().await;
    within("the look is shown", async || events(scene).await["events"][0]["rechecks"]["unchanged"].is_u64()).await;
    let events = events(scene).await;
    let [second, first] = &events["events"].as_array().unwrap()[..] else { panic!("{events:#}") };
    assert_eq!((&second["number"], &second["refreshedTotal"]), (&json!(2), &json!(0)));
    assert_eq!(
        (&first["number"], &first["refreshedTotal"], &first["rechecks"]),
        (&json!(1), &json!(1), &json!({"changed": 1}))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_requests_displace_no_delivery_and_no_secret_is_shown() {
    let scene = Scene::start(json!([hook("github", "secret")])).await;
    let body = json!({"zen": SECRET, "hook": {"config": {"secret": SECRET}}}).to_string().into_bytes();
    let proof = signed(&body);
    scene.post("/hooks/github", &[("X-Hub-Signature-256", &proof), ("X-GitHub-Delivery", "one")], &body).await;
    scene.post("/hooks/github", &[("X-Hub-Signature-256", &proof), ("X-GitHub-Delivery", "one")], &body).await;
    let malformed = b"no JSON, but signed";
    let reply = scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(malformed))], malformed).await;
    assert_eq!(reply.status, 400, "{}", reply.text());
    for number in 0..60 {
        let forged = format!("sha256={number:064x}");
        let reply = scene.post("/hooks/github", &[("X-Hub-Signature-256", &forged)], &github(SHA)).await;
        assert_eq!(reply.status, 403);
    }
    let shown = events(&scene).await;
    let outcomes: Vec<&str> =
        shown["events"].as_array().unwrap().iter().map(|event| event["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["malformed", "duplicate", "ignored"]);
    assert!(shown["events"][0]["message"].as_str().unwrap().contains("the body is not JSON"), "{shown:#}");
    assert_eq!((&shown["unproven"][0]["hook"], &shown["unproven"][0]["total"]), (&json!("github"), &json!(60)));
    assert!(!shown.to_string().contains(SECRET) && !shown.to_string().contains(&proof), "{shown:#}");
    let status = exchange_admin(scene.gateway.admin, operator_request("GET", "/admin/status", "").as_bytes()).await;
    assert_eq!(status.json()["alerts"][0]["kind"], "hooksRefused", "{}", status.text());
}

//! After an event, only the elements that it concerns are asked. What each costs is counted at the sources.

use oci::Digest;
use tokio::time::{Instant, sleep};

use super::*;
use crate::support::{
    TOKEN,
    binary::Gateway,
    upstream::Request,
    wire::{argo_request, exchange, exchange_admin},
};

const ELEMENTS: u32 = 20;

/// A registry whose tag `pr-N` has an image of its own, and CI that has passed each.
fn answer(request: &Request, rebuilt: &Mutex<BTreeMap<u32, u32>>) -> Vec<Step> {
    if let Some(number) = request.target.strip_prefix("/v2/org/shop/manifests/pr-") {
        let build = rebuilt.lock().unwrap().get(&number.parse().unwrap()).copied().unwrap_or_default();
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let manifest =
            json!({"schemaVersion": 2, "mediaType": kind, "annotations": {"of": number, "build": build}}).to_string();
        let digest = Digest::of(manifest.as_bytes());
        let headers = format!("Content-Type: {kind}\r\nDocker-Content-Digest: {digest}");
        return request.answer(200, &headers, manifest);
    }
    let body = match &*request.target {
        "/list" => (1..=ELEMENTS).map(|number| json!({"number": number})).collect(),
        _ => json!({"state": "passed"}),
    };
    vec![Step::Send(json_response(body.to_string()))]
}

fn config(source: &str) -> String {
    let each = json!({"key": ["number"], "digests": {
        "images": {"app": {"image": format!("{source}/org/shop:pr-{{{{ item.number }}}}")}},
        "gate": {"http": {"url": format!("http://{source}/ci/{{{{ item.number }}}}"), "verdict": "body.state"}},
    }});
    let list = json!({"http": {"url": format!("http://{source}/list")}});
    let route = json!({"name": "previews", "cache": {"ttl": "1h"}, "backend": {"pipeline": [list, {"each": each}]},
        "output": {"number": "{{ item.number }}", "digest": "{{ app.digest }}"}});
    let hook =
        json!({"name": "images", "kind": "generic", "token": {"file": "token"}, "subjects": "[{'image': body.image}]"});
    let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", hooks: \"127.0.0.1:0\", drain: 0s }";
    let registries = json!({source: {"plainHttp": true}});
    let (hooks, routes) = (json!([hook]), json!([route]));
    format!("{server}\n{}registries: {registries}\nhooks: {hooks}\nroutes: {routes}\n", TestApp::auth())
}

async fn ask(gateway: &Gateway) -> Value {
    let body = json!({"applicationSetName": "test", "input": {"parameters": {}}}).to_string();
    let request = argo_request("/previews/api/v1/getparams.execute", TOKEN, body.as_bytes());
    let reply = exchange(gateway.address, &request).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["output"]["parameters"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_push_costs_the_requests_of_one_element() {
    let built = Arc::new(Mutex::new(BTreeMap::new()));
    let builds = Arc::clone(&built);
    let source = Upstream::start(move |request| answer(request, &builds)).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "secret-of-the-sender").unwrap();
    std::fs::write(folder.path().join("gateway.yaml"), config(&source.address.to_string())).unwrap();
    let gateway = Gateway::serve(&folder.path().join("gateway.yaml"));
    let before = ask(&gateway).await;
    let targets = |from: usize| source.requests()[from..].iter().map(|each| each.target.clone()).collect::<Vec<_>>();
    let first = targets(0);
    let of_element = |number: u32, targets: &[String]| {
        let is_own =
            |target: &&String| target.ends_with(&format!("/pr-{number}")) || **target == format!("/ci/{number}");
        targets.iter().filter(is_own).count()
    };
    let cost = of_element(7, &first);
    assert!(cost >= 2, "CI and the registry: {first:?}");
    assert!((1..=ELEMENTS).all(|number| of_element(number, &first) == cost), "{first:?}");

    built.lock().unwrap().insert(7, 1);
    let event = json!({"image": format!("{}/org/shop:pr-7", source.address)}).to_string();
    let head = format!(
        "POST /hooks/images HTTP/1.1\r\nHost: g\r\nConnection: close\r\nAuthorization: Bearer secret-of-the-sender\r\nContent-Length: {}\r\n\r\n",
        event.len()
    );
    let reply = exchange_admin(gateway.hooks.unwrap(), (head + &event).as_bytes()).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    let until = Instant::now() + Duration::from_secs(20);
    let after = loop {
        let now = ask(&gateway).await;
        if now != before {
            break now;
        }
        assert!(Instant::now() < until, "the answer does not change");
        sleep(Duration::from_millis(20)).await;
    };
    let changed = |index: &usize| before[*index] != after[*index];
    assert_eq!((0..ELEMENTS as usize).filter(changed).collect::<Vec<_>>(), [6]);
    let asked = targets(first.len());
    assert_eq!((asked.len(), of_element(7, &asked)), (cost, cost), "{asked:?}");
}

//! A registry or gate without an answer: an error if nothing was built before, otherwise the last build; never an empty list.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde_json::json;

use super::{
    ask,
    fake::{Endpoint, Fake, Image, sha},
    previews, served_commit, start,
};
use crate::support::{
    Verdict,
    upstream::{Step, response},
};

/// Failures that any endpoint can have.
fn faults() -> Vec<(&'static str, Vec<Step>)> {
    let json = "Content-Type: application/json";
    let (html, page) = ("Content-Type: text/html", "<html><head><title>Sign in</title></head></html>");
    let wire = |status, headers: &str, body: &str| vec![Step::Send(response(status, headers, body))];
    vec![
        ("401", wire(401, json, r#"{"message":"Bad credentials"}"#)),
        ("403", wire(403, json, r#"{"errors":[{"code":"DENIED"}]}"#)),
        ("404 of a proxy", wire(404, html, page)),
        ("404 without a word", wire(404, "", "")),
        ("408", wire(408, "", "")),
        ("429", wire(429, "Retry-After: 60", "")),
        ("500", wire(500, json, r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#)),
        ("503", wire(503, "", "")),
        ("a redirect", wire(302, "Location: /sign-in", "")),
        ("204", wire(204, "", "")),
        ("a sign-in page", wire(200, html, page)),
        ("nothing", wire(200, json, "")),
        ("{}", wire(200, json, "{}")),
        ("[]", wire(200, json, "[]")),
        ("null", wire(200, json, "null")),
        ("half", wire(200, json, r#"{"total_count":1,"workflow_runs":[{"id":1"#)),
        ("an error in a 200", wire(200, json, r#"{"message":"down","workflow_runs":[]}"#)),
        ("a part", wire(206, json, &runs(2, "completed"))),
        ("a run in an unknown word", wire(200, json, &runs(2, "expired"))),
        ("a total that does not fit", wire(200, json, &runs(3, "completed"))),
        (
            "a next page that cannot be read",
            wire(200, &format!("{json}\r\nLink: <?page=2>; rel*=UTF-8''next"), &runs(2, "completed")),
        ),
        ("a reset", vec![Step::Reset]),
        ("an end", Vec::new()),
        ("silence", vec![Step::Hang]),
    ]
}

/// Successful runs of two commits, in another `status`, of a list that counts `total`.
fn runs(total: usize, status: &str) -> String {
    let run = |commit: char| {
        json!({
            "id": commit as u32, "name": "Build", "path": ".github/workflows/build.yml", "event": "push",
            "head_sha": sha(commit), "status": status, "conclusion": "success", "run_attempt": 1,
        })
    };
    json!({"total_count": total, "workflow_runs": [run('a'), run('b')]}).to_string()
}

/// Any failure of a registry or gate: an error if no build was seen before, otherwise the last build. The answer is never
/// empty, and never an unproven image.
#[tokio::test(flavor = "multi_thread")]
async fn a_witness_without_an_answer_makes_the_outcome_unknown() {
    let cell = async |endpoint: Endpoint, name: &'static str, steps: Vec<Step>| {
        let fake = Fake::start().await;
        // Only silence needs the deadline. All other answers must have time on a busy machine.
        let deadline = if name == "silence" { "5s" } else { "30s" };
        let app = start(&fake, &previews(&fake), json!({"cache": {"ttl": "60s"}, "deadline": deadline})).await;
        fake.push("main", &Image::of('a'));
        fake.run('a', "completed", Some("success"));
        let at_fault = || {
            let steps = steps.clone();
            fake.fail(endpoint, move |_| steps.clone());
        };
        at_fault();
        let reply = ask(&app, "main", 'a').await;
        assert!(matches!(reply.verdict(), Verdict::Error { .. }), "{endpoint:?} {name}: {}", reply.text());
        let part = if endpoint == Endpoint::Gate { "gate: " } else { "image app: " };
        // The deadline of the whole route may end first.
        assert!(["no answer within 5 s", part].iter().any(|text| reply.message().contains(text)), "{}", reply.text());
        fake.heal();
        app.clock.advance(Duration::from_hours(1));
        assert_eq!(served_commit(&ask(&app, "main", 'a').await), "a", "{endpoint:?} {name}");
        at_fault();
        app.clock.advance(Duration::from_mins(20));
        assert_eq!(served_commit(&ask(&app, "main", 'a').await), "a", "{endpoint:?} {name}");
        // The next commit is built and passed, but the failing endpoint hides it.
        fake.push("main", &Image::of('b'));
        fake.run('b', "completed", Some("success"));
        app.clock.advance(Duration::from_mins(20));
        let reply = ask(&app, "main", 'b').await;
        assert_eq!(served_commit(&reply), "a", "{endpoint:?} {name}");
        assert!(reply.header("cache-status").unwrap().contains("detail="), "{endpoint:?} {name}");
        fake.heal();
        app.clock.advance(Duration::from_hours(1));
        assert_eq!(served_commit(&ask(&app, "main", 'b').await), "b", "{endpoint:?} {name}");
    };
    let cells = Endpoint::ALL
        .into_iter()
        .flat_map(|endpoint| faults().into_iter().map(move |(name, steps)| (endpoint, name, steps)));
    // A few at a time: a busy machine must not look like a fault.
    stream::iter(cells).for_each_concurrent(16, |(endpoint, name, steps)| cell(endpoint, name, steps)).await;
}

//! Bitbucket Cloud: documents as of its REST API's pages "Commit statuses" and "Pagination".

use backend::digests::gate::{CiState, bitbucket::Bitbucket, memory::Remembered};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::error::ErrorKind;
use serde_json::{Value, json};

use super::forge::{
    ForgeContext, OTHER, SHA, TOKEN, answering, ask, ask_with, asked, check_commits, check_failures, check_memory,
    headers, json, ruled, unknown, with,
};
use crate::support::upstream::{Request, Step, Upstream};

const PATH: &str = "/2.0/repositories/team/app/commit/ec1a3b9d5f27a6c80b4e19d2f7c3a5e8b6d40f12/statuses";

fn request_description() -> String {
    format!("the statuses of commit ec1a3b9d, GET {PATH}")
}

fn config(api: &str, more: &Value) -> Value {
    let base = json!({"api": api, "repository": "team/app", "sha": "{{ params.sha }}", "token": {"file": "token"}});
    with(&base, more)
}

fn gate(context: &ForgeContext, upstream: &Upstream, more: &Value) -> Remembered<Bitbucket> {
    context.gate(&config(&format!("http://{}/2.0", upstream.address), more), Bitbucket::build)
}

/// A status of the commit; `second` is when it was last changed.
fn status(key: &str, state: &str, second: u8) -> Value {
    let api = "https://api.bitbucket.org/2.0/repositories/team/app/commit";
    json!({
        "type": "build", "uuid": "{0}", "key": key, "refname": "feature/x", "state": state, "name": "Pipeline #5",
        "url": format!("https://bitbucket.org/team/app/pipelines/results/{second}"), "description": "",
        "created_on": "2026-04-01T08:00:00.000000+00:00",
        "updated_on": format!("2026-04-01T08:00:{second:02}.250000+00:00"),
        "links": {
            "self": {"href": format!("{api}/{SHA}/statuses/build/{key}")},
            "commit": {"href": format!("{api}/{SHA}")}
        }
    })
}

fn page(values: &[Value]) -> Value {
    json!({"pagelen": 100, "page": 1, "size": values.len(), "values": values})
}

#[tokio::test]
async fn requests_are_sent_as_documented() {
    let context = ForgeContext::new();
    let upstream = answering(page(&[status("build", "SUCCESSFUL", 1), status("e2e", "SUCCESSFUL", 2)])).await;
    let verdict = ask(&gate(&context, &upstream, &json!({}))).await.unwrap();
    let run = |id: u8| format!("https://bitbucket.org/team/app/pipelines/results/{id}");
    assert_eq!((verdict.state, verdict.run_url), (CiState::Passed, Some(run(2))));
    assert_eq!(verdict.built_at.as_deref(), Some("2026-04-01T08:00:02.250000+00:00"));
    let evidence: Vec<String> = verdict.evidence.iter().map(ToString::to_string).collect();
    let present = |key: &str, id| format!("present, {}: `{key}`: SUCCESSFUL, {}", request_description(), run(id));
    assert_eq!(evidence, [present("build", 1), present("e2e", 2)]);

    let user = json!({"token": null, "username": "ci@example.com", "password": {"file": "token"}});
    ask(&gate(&context, &upstream, &user)).await.unwrap();
    ask(&gate(&context, &upstream, &json!({"token": null, "repository": "{1b2c}/app"}))).await.unwrap();
    let target = format!("GET {PATH}?pagelen=100");
    assert_eq!(asked(&upstream), [target.clone(), target.clone(), target.replace("/team/", "/%7B1b2c%7D/")]);
    let (requests, json) = (upstream.requests(), ("accept", "application/json"));
    assert_eq!(headers(&requests[0]), [json, ("authorization", &format!("Bearer {TOKEN}"))]);
    let basic = format!("Basic {}", STANDARD.encode(format!("ci@example.com:{TOKEN}")));
    assert_eq!(headers(&requests[1]), [json, ("authorization", &basic)]);
    assert_eq!(headers(&requests[2]), [json]);
}

#[tokio::test]
async fn each_status_has_its_meaning() {
    let context = ForgeContext::new();
    for (word, state) in [
        ("SUCCESSFUL", CiState::Passed),
        ("INPROGRESS", CiState::Pending),
        ("FAILED", CiState::Failed),
        ("STOPPED", CiState::Failed),
    ] {
        let upstream = answering(page(&[status("build", "SUCCESSFUL", 1), status("e2e", word, 2)])).await;
        let verdict = ask(&gate(&context, &upstream, &json!({}))).await.unwrap();
        assert_eq!(verdict.state, state);
        assert_eq!(verdict.run_url.as_deref(), Some("https://bitbucket.org/team/app/pipelines/results/2"));
        assert_eq!(verdict.built_at.is_some(), state != CiState::Pending);
    }
    let upstream = answering(page(&[status("build", "QUEUED", 1)])).await;
    unknown(&gate(&context, &upstream, &json!({})), ErrorKind::InvalidOutput, "`QUEUED`, which is unknown").await;
    let upstream = answering(page(&[])).await;
    let expected = (CiState::Pending, vec![format!("absent, {}: no status yet", request_description())]);
    assert_eq!(ruled(&gate(&context, &upstream, &json!({}))).await, expected);
}

#[tokio::test]
async fn only_the_commits_own_statuses_count() {
    let context = ForgeContext::new();
    let linked = json!({"links": {"commit": {"href": format!("https://api.bitbucket.org/2.0/x/commit/{OTHER}")}}});
    let named = json!({"commit": {"type": "commit", "hash": OTHER}});
    let upstream = answering(page(&[
        with(&status("a", "FAILED", 1), &linked),
        with(&status("b", "FAILED", 1), &named),
        with(&status("c", "SUCCESSFUL", 1), &json!({"commit": {"hash": SHA.to_uppercase()}})),
        with(&status("d", "SUCCESSFUL", 1), &json!({"links": {}})),
    ]))
    .await;
    let (state, evidence) = ruled(&gate(&context, &upstream, &json!({}))).await;
    assert_eq!((state, evidence.len()), (CiState::Passed, 2), "{evidence:?}");
}

#[tokio::test]
async fn required_keys_are_selected_and_the_latest_status_of_each_counts() {
    let context = ForgeContext::new();
    let upstream = answering(page(&[
        status("build", "SUCCESSFUL", 9),
        status("build", "FAILED", 3),
        status("e2e-1", "FAILED", 4),
        status("e2e-1", "INPROGRESS", 5),
        status("lint", "FAILED", 1),
    ]))
    .await;
    for (keys, state, request_description) in [
        (json!(["build"]), CiState::Passed, 1),
        (json!(["build", "/^e2e/"]), CiState::Pending, 2),
        (json!(["build", "deploy"]), CiState::Pending, 2),
        (json!(["build", "lint"]), CiState::Failed, 2),
    ] {
        let (ruled, evidence) = ruled(&gate(&context, &upstream, &json!({"keys": keys}))).await;
        assert_eq!((ruled, evidence.len()), (state, request_description), "{keys}: {evidence:?}");
    }
    let undated = with(&status("build", "FAILED", 3), &json!({"updated_on": null}));
    let upstream = answering(page(&[undated, status("build", "SUCCESSFUL", 9)])).await;
    unknown(&gate(&context, &upstream, &json!({})), ErrorKind::InvalidOutput, "it lists a key twice").await;
}

/// A commit with `pages` pages of statuses; the last page has a failed one.
fn in_pages(request: &Request, pages: u8) -> Vec<Step> {
    let number = request.target.split_once("page=").and_then(|(_, number)| number.parse().ok()).unwrap_or(1);
    let state = if number == pages { "FAILED" } else { "SUCCESSFUL" };
    let mut body = page(&[status(&format!("build-{number}"), state, number)]);
    if number < pages {
        let host = request.header("host").unwrap();
        body["next"] = json!(format!("http://{host}{PATH}?pagelen=100&page={}", number + 1));
    }
    json(request, "", &body)
}

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    let context = ForgeContext::new();
    let upstream = Upstream::start(|request| in_pages(request, 3)).await;
    let (state, evidence) = ruled(&gate(&context, &upstream, &json!({}))).await;
    assert_eq!((state, evidence.len()), (CiState::Failed, 3));
    let target = |query: &str| format!("GET {PATH}?pagelen=100{query}");
    assert_eq!(asked(&upstream), ["", "&page=2", "&page=3"].map(target));
    let upstream = Upstream::start(|request| in_pages(request, 21)).await;
    unknown(&gate(&context, &upstream, &json!({})), ErrorKind::InvalidOutput, "goes on after 20 pages").await;
}

#[tokio::test]
async fn an_incomplete_list_is_unknown() {
    let context = ForgeContext::new();
    let elsewhere = answering(page(&[])).await;
    for (next, says) in [
        (format!("{PATH}?pagelen=100"), "lead in a circle"),
        (format!("http://{}{PATH}?page=2", elsewhere.address), "is not at the address of the first"),
        ("/2.0/repositories/team/app/commits?page=2".to_owned(), "is not at the address of the first"),
    ] {
        let body = with(&page(&[status("build", "SUCCESSFUL", 1)]), &json!({"next": next}));
        let upstream = answering(body).await;
        unknown(&gate(&context, &upstream, &json!({})), ErrorKind::InvalidOutput, says).await;
    }
    assert_eq!(asked(&elsewhere), Vec::<String>::new(), "the token stays where it belongs");
    let upstream = Upstream::start(|request| {
        if request.target.ends_with("page=2") { request.answer(503, "", "") } else { in_pages(request, 2) }
    })
    .await;
    unknown(&gate(&context, &upstream, &json!({})), ErrorKind::Unavailable, "503").await;
}

#[tokio::test]
async fn failures_are_errors() {
    let context = ForgeContext::new();
    let build = |context: &ForgeContext, api: &str| context.gate(&config(api, &json!({})), Bitbucket::build);
    check_failures(&context, build).await;
    check_commits(&context, build).await;
    let user = json!({"token": null, "username": "ci", "password": {"file": "token"}});
    check_failures(&context, |context, api| context.gate(&config(api, &user), Bitbucket::build)).await;
    let upstream = answering(json!([])).await;
    let gate = gate(&context, &upstream, &json!({"repository": "{{ params.repository }}"}));
    for repository in ["app", "team/app/x", "../app", "/app"] {
        let error = ask_with(&gate, &json!({"sha": SHA, "repository": repository})).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
fn check_reports_the_problems_of_a_configuration() {
    let context = ForgeContext::new();
    let api = "https://api.bitbucket.org/2.0";
    let password = json!({"file": "token"});
    for (more, path, says) in [
        (json!({"api": "api.bitbucket.org"}), "api", "not a URL"),
        (json!({"keys": []}), "keys", "requires nothing"),
        (json!({"username": "ci", "password": password}), "", "the credential is not clear"),
        (json!({"token": null, "username": "ci"}), "", "the credential is not clear"),
        (json!({"token": null, "password": password}), "", "the credential is not clear"),
        (json!({"token": null, "username": "a:b", "password": password}), "username", "has no colon"),
        (json!({"token": null, "username": "ci", "password": {"file": "missing"}}), "password", "cannot read"),
    ] {
        let problems = context.problems(&config(api, &more), Bitbucket::build);
        assert_eq!(problems.len(), 1, "{more}: {problems:?}");
        assert!(problems[0].starts_with(&format!("{path}: ")) && problems[0].contains(says), "{problems:?}");
    }
    let gate = |more: &Value| context.reads_application_set(&config(api, more), Bitbucket::build);
    assert!(!gate(&json!({})));
    assert!(gate(&json!({"repository": "t/{{ applicationSet }}"})) && gate(&json!({"sha": "{{ applicationSet }}"})));
}

#[tokio::test]
async fn verdicts_are_cached_by_question() {
    let context = ForgeContext::new();
    let upstream = answering(page(&[status("build", "SUCCESSFUL", 1)])).await;
    let gate = gate(&context, &upstream, &json!({"repository": "team/{{ params.number }}"}));
    check_memory(&gate, &upstream, &[json!({"sha": OTHER}), json!({"number": "8"})]).await;
}

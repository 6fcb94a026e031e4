//! Gitea and Forgejo: documents in the form of their combined status (`CombinedStatus` and `CommitStatus` of their API).

use backend::digests::gate::{CiState, gitea::Gitea, memory::Remembered};
use domain::error::ErrorKind;
use serde_json::{Value, json};

use super::forge::{
    ForgeContext, OTHER, SHA, TOKEN, answering, ask, ask_with, asked, check_commits, check_failures, check_memory,
    headers, json, ruled, unknown, with,
};
use crate::support::upstream::{Request, Step, Upstream};

const REQUEST_DESCRIPTION: &str = "the statuses of commit ec1a3b9d, GET /git/api/v1/repos/org/app/commits/\
                    ec1a3b9d5f27a6c80b4e19d2f7c3a5e8b6d40f12/status";

fn config(api: &str, more: &Value) -> Value {
    let base = json!({"api": api, "repository": "org/app", "sha": "{{ params.sha }}", "token": {"file": "token"}});
    with(&base, more)
}

fn gate(context: &ForgeContext, upstream: &Upstream, more: &Value) -> Remembered<Gitea> {
    context.gate(&config(&format!("http://{}/git/api/v1", upstream.address), more), Gitea::build)
}

/// A status in the combined document. Gitea Actions give the pages of their runs without a host.
fn status(id: usize, context: &str, state: &str) -> Value {
    json!({
        "id": id, "status": state, "target_url": format!("/git/org/app/actions/runs/{id}/jobs/0"),
        "description": "Successful in 12s", "url": format!("http://git.example.com/git/api/v1/repos/org/app/statuses/{SHA}"),
        "context": context, "creator": null, "created_at": "2026-03-01T10:00:00Z", "updated_at": format!("2026-03-01T10:00:{id:02}Z")
    })
}

/// The combined document of `statuses`. `total_count` is their number, not that of all pages.
fn combined(statuses: &[Value]) -> Value {
    json!({
        "state": "success", "sha": SHA, "total_count": statuses.len(), "statuses": statuses, "repository": {"id": 1},
        "commit_url": format!("http://git.example.com/git/api/v1/repos/org/app/commits/{SHA}"), "url": ""
    })
}

/// The answer of Gitea and Forgejo for an empty page.
fn empty() -> Value {
    json!({"state": "", "sha": "", "total_count": 0, "statuses": null, "repository": null, "commit_url": "", "url": ""})
}

/// A commit with `statuses`, on pages of at most `limit`; its length in a header if `is_counted`.
async fn paged(statuses: Vec<Value>, limit: usize, is_counted: bool) -> Upstream {
    Upstream::start(move |request| {
        let page = page_of(request);
        let part: Vec<Value> = statuses.iter().skip((page - 1) * limit).take(limit).cloned().collect();
        let header = if is_counted { format!("X-Total-Count: {}", statuses.len()) } else { String::new() };
        // Without a status, the header is not sent.
        if part.is_empty() { json(request, "", &empty()) } else { json(request, &header, &combined(&part)) }
    })
    .await
}

fn page_of(request: &Request) -> usize {
    request.target.split(['?', '&']).find_map(|pair| pair.strip_prefix("page=")).unwrap().parse().unwrap()
}

#[tokio::test]
async fn requests_are_sent_as_documented() {
    let context = ForgeContext::new();
    let upstream = paged(vec![status(1, "ci / build (push)", "success"), status(2, "lint", "success")], 50, true).await;
    let verdict = ask(&gate(&context, &upstream, &json!({}))).await.unwrap();
    let page = |id: u64| format!("http://{}/git/org/app/actions/runs/{id}/jobs/0", upstream.address);
    assert_eq!(verdict.state, CiState::Passed);
    assert_eq!(verdict.run_url, Some(page(2)));
    assert_eq!(verdict.built_at.as_deref(), Some("2026-03-01T10:00:02Z"));
    let evidence: Vec<String> = verdict.evidence.iter().map(ToString::to_string).collect();
    let expected = [
        format!("present, {REQUEST_DESCRIPTION}: `ci / build (push)`: success, {}", page(1)),
        format!("present, {REQUEST_DESCRIPTION}: `lint`: success, {}", page(2)),
    ];
    assert_eq!(evidence, expected);
    ask(&gate(&context, &upstream, &json!({"token": null}))).await.unwrap();
    let target = format!("GET /git/api/v1/repos/org/app/commits/{SHA}/status?page=1&limit=50");
    assert_eq!(asked(&upstream), [&*target, &*target]);
    let (requests, json) = (upstream.requests(), ("accept", "application/json"));
    assert_eq!(headers(&requests[0]), [json, ("authorization", &format!("token {TOKEN}"))]);
    assert_eq!(headers(&requests[1]), [json]);
}

#[tokio::test]
async fn each_status_has_its_meaning() {
    let context = ForgeContext::new();
    for (word, strict, lenient) in [
        ("success", CiState::Passed, CiState::Passed),
        ("pending", CiState::Pending, CiState::Pending),
        ("error", CiState::Failed, CiState::Failed),
        ("failure", CiState::Failed, CiState::Failed),
        ("warning", CiState::Failed, CiState::Passed),
        ("skipped", CiState::Failed, CiState::Passed),
    ] {
        // The document's own `state` is of one page, and takes warnings for success.
        let upstream = paged(vec![status(1, "build", "success"), status(2, "test", word)], 50, true).await;
        let accept = json!({"accept": ["warning", "skipped"]});
        assert_eq!(ruled(&gate(&context, &upstream, &json!({}))).await.0, strict, "{word}");
        assert_eq!(ruled(&gate(&context, &upstream, &accept)).await.0, lenient, "{word}");
    }
    let upstream = paged(vec![status(1, "build", "blocked")], 50, true).await;
    unknown(&gate(&context, &upstream, &json!({})), ErrorKind::InvalidOutput, "`blocked`, which is unknown").await;
}

#[tokio::test]
async fn required_contexts_are_selected_by_name() {
    let context = ForgeContext::new();
    let statuses = [("build", "success"), ("e2e/a", "success"), ("e2e/b", "pending"), ("lint", "failure")];
    let statuses = statuses.iter().enumerate().map(|(id, (context, word))| status(id, context, word)).collect();
    let upstream = paged(statuses, 50, true).await;
    for (contexts, state, count) in [
        (json!(["build"]), CiState::Passed, 1),
        (json!(["build", "/^e2e/a$/"]), CiState::Passed, 2),
        (json!(["build", "/^e2e/"]), CiState::Pending, 3),
        (json!(["build", "deploy"]), CiState::Pending, 2),
        (json!(["build", "/deploy/"]), CiState::Pending, 2),
        (json!(["lint", "deploy"]), CiState::Failed, 2),
    ] {
        let (ruled, evidence) = ruled(&gate(&context, &upstream, &json!({"contexts": contexts}))).await;
        assert_eq!((ruled, evidence.len()), (state, count), "{contexts}: {evidence:?}");
    }
    // It is there, so it must not be waited for.
    let misspelt = gate(&context, &upstream, &json!({"contexts": ["Build"]}));
    unknown(&misspelt, ErrorKind::InvalidOutput, "there is no `Build`, but `build`").await;
    let (_, evidence) = ruled(&gate(&context, &upstream, &json!({"contexts": ["/deploy/", "e2e/b"]}))).await;
    assert_eq!(evidence[0], format!("absent, {REQUEST_DESCRIPTION}: no status `/deploy/` yet"));
    assert!(
        evidence[1].starts_with(&format!("absent, {REQUEST_DESCRIPTION}: `e2e/b`: pending, http://")),
        "{evidence:?}"
    );
}

#[tokio::test]
async fn no_status_is_not_a_success() {
    let context = ForgeContext::new();
    let newer = json!({"state": "pending", "sha": SHA, "total_count": 0, "statuses": [], "repository": {"id": 1}});
    for body in [empty(), newer] {
        let upstream = answering(body).await;
        let expected = (CiState::Pending, vec![format!("absent, {REQUEST_DESCRIPTION}: no status yet")]);
        assert_eq!(ruled(&gate(&context, &upstream, &json!({}))).await, expected);
    }
    // A document without its length proves nothing.
    let upstream = answering(json!({})).await;
    unknown(&gate(&context, &upstream, &json!({})), ErrorKind::InvalidOutput, "missing field").await;
}

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    let context = ForgeContext::new();
    // 51 statuses on pages of 30, the forge's own choice; only the last one failed.
    let many = |last: &str| -> Vec<Value> {
        let word = |id| if id == 51 { last } else { "success" };
        (1..=51).map(|id| status(id, &format!("job {id}"), word(id))).collect()
    };
    for (is_counted, pages) in [(true, 2), (false, 3)] {
        for (last, state) in [("failure", CiState::Failed), ("success", CiState::Passed)] {
            let upstream = paged(many(last), 30, is_counted).await;
            let (ruled, evidence) = ruled(&gate(&context, &upstream, &json!({}))).await;
            assert_eq!((ruled, evidence.len()), (state, 20), "{evidence:?}");
            let target = |page| format!("GET /git/api/v1/repos/org/app/commits/{SHA}/status?page={page}&limit=50");
            assert_eq!(asked(&upstream), (1..=pages).map(target).collect::<Vec<String>>());
        }
    }
    let endless = Upstream::start(|request| {
        let id = page_of(request);
        json(request, "", &combined(&[status(id, "x", "success")]))
    })
    .await;
    unknown(&gate(&context, &endless, &json!({})), ErrorKind::InvalidOutput, "goes on after 20 pages").await;
}

#[tokio::test]
async fn an_incomplete_list_is_unknown() {
    type Play = fn(&Request) -> Vec<Step>;
    let context = ForgeContext::new();
    let plays: [(Play, &str); 7] = [
        // A server without pages.
        (
            |request| json(request, "X-Total-Count: 2", &combined(&[status(1, "a", "success")])),
            "it lists a status twice",
        ),
        (|request| json(request, "", &combined(&[status(1, "a", "success")])), "it lists a status twice"),
        (
            |request| {
                let page = page_of(request);
                json(request, &format!("X-Total-Count: {}", page + 5), &combined(&[status(page, "a", "success")]))
            },
            "changed while it was read",
        ),
        (
            |request| match page_of(request) {
                1 => json(request, "X-Total-Count: 2", &combined(&[status(1, "a", "success")])),
                _ => json(request, "", &empty()),
            },
            "it lists 1 statuses of 2",
        ),
        (
            // The statuses are missing, though the count is not zero.
            |request| json(request, "", &with(&combined(&[]), &json!({"total_count": 3, "statuses": null}))),
            "it lists 0 statuses of 3",
        ),
        (|request| json(request, "X-Total-Count: many", &combined(&[])), "`X-Total-Count` is not a number"),
        (
            |request| {
                json(
                    request,
                    "X-Total-Count: 1",
                    &with(&combined(&[status(1, "a", "success")]), &json!({"sha": OTHER})),
                )
            },
            "it answers for commit `0000000000000000000000000000000000000001`",
        ),
    ];
    for (play, says) in plays {
        let upstream = Upstream::start(play).await;
        unknown(&gate(&context, &upstream, &json!({})), ErrorKind::InvalidOutput, says).await;
    }
    let upstream = Upstream::start(|request| match page_of(request) {
        1 => json(request, "X-Total-Count: 2", &combined(&[status(1, "a", "success")])),
        _ => request.answer(500, "", ""),
    })
    .await;
    unknown(&gate(&context, &upstream, &json!({})), ErrorKind::Unavailable, "500").await;
}

#[tokio::test]
async fn failures_are_errors() {
    let context = ForgeContext::new();
    let build = |context: &ForgeContext, api: &str| context.gate(&config(api, &json!({})), Gitea::build);
    check_failures(&context, build).await;
    check_commits(&context, build).await;
    let upstream = paged(vec![status(1, TOKEN, "success"), status(2, "b", "failure")], 50, true).await;
    let verdict = ask(&gate(&context, &upstream, &json!({}))).await.unwrap();
    assert!(!format!("{verdict:?}").contains("c4n4ry"), "{verdict:?}");
}

#[tokio::test]
async fn no_parameter_changes_the_requested_path() {
    let context = ForgeContext::new();
    let upstream = answering(empty()).await;
    let gate = gate(&context, &upstream, &json!({"repository": "org/{{ params.name }}"}));
    for name in ["", "..", "a/../../b", "a/b", "a\n"] {
        let error = ask_with(&gate, &json!({"sha": SHA, "name": name})).await.unwrap_err();
        assert_eq!(
            (error.kind, error.message.contains("gitea: repository: ")),
            (ErrorKind::InvalidInput, true),
            "{error}"
        );
    }
    assert_eq!(asked(&upstream), Vec::<String>::new());
    for name in ["a?b#c", "%2e%2e", "a b"] {
        ask_with(&gate, &json!({"sha": SHA, "name": name})).await.unwrap();
    }
    let target = |name: &str| format!("GET /git/api/v1/repos/org/{name}/commits/{SHA}/status?page=1&limit=50");
    assert_eq!(asked(&upstream), ["a%3Fb%23c", "%252e%252e", "a%20b"].map(target));
}

#[test]
fn check_reports_the_problems_of_a_configuration() {
    let context = ForgeContext::new();
    let api = "https://git.example.com/api/v1";
    for (more, path, says) in [
        (json!({"api": "https://user:c4n4ry@git.example.com/api/v1"}), "api", "holds a user or a password"),
        (json!({"api": "https://git.example.com/api/v1?token=c4n4ry"}), "api", "no query"),
        (json!({"repository": "{{ x }}"}), "repository", "unknown name"),
        (json!({"contexts": []}), "contexts", "requires nothing"),
        (json!({"contexts": ["ok", "/(/"]}), "contexts[1]", "unclosed group"),
        (json!({"contexts": ["//"]}), "contexts[0]", "would match everything"),
        (json!({"token": {"env": "NOT_SET_ANYWHERE"}}), "token", "is not set"),
    ] {
        let problems = context.problems(&config(api, &more), Gitea::build);
        assert_eq!(problems.len(), 1, "{more}: {problems:?}");
        assert!(problems[0].starts_with(&format!("{path}: ")) && problems[0].contains(says), "{problems:?}");
        assert!(!problems[0].contains("c4n4ry"), "{problems:?}");
    }
    let gate = |more: &Value| context.reads_application_set(&config(api, more), Gitea::build);
    assert!(!gate(&json!({})));
    assert!(gate(&json!({"repository": "org/{{ applicationSet }}"})) && gate(&json!({"sha": "{{ applicationSet }}"})));
}

#[tokio::test]
async fn verdicts_are_cached_by_question() {
    let context = ForgeContext::new();
    let upstream = paged(vec![status(1, "build", "success")], 50, true).await;
    let gate = gate(&context, &upstream, &json!({"repository": "org/{{ params.number }}"}));
    check_memory(&gate, &upstream, &[json!({"sha": OTHER}), json!({"number": "8"})]).await;
}

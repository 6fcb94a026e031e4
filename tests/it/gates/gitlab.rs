//! GitLab: documents from its REST API's pages "Pipelines", "Merge requests" and "Pagination".

use backend::digests::gate::{CiState, gitlab::Gitlab, memory::Remembered};
use domain::error::ErrorKind;
use serde_json::{Value, json};

use super::forge::{
    ForgeContext, OTHER, SHA, TOKEN, answering, ask, ask_with, asked, check_commits, check_failures, check_memory,
    headers, json, ruled, unknown, with,
};
use crate::support::upstream::{Request, Step, Upstream};

const PATH: &str = "/api/v4/projects/group%2Fsub%2Fapp/pipelines";
const REQUEST_DESCRIPTION: &str = "the pipelines of commit ec1a3b9d, GET /api/v4/projects/group%2Fsub%2Fapp/pipelines";

fn config(api: &str, more: &Value) -> Value {
    let base = json!({"api": api, "project": "group/sub/app", "sha": "{{ params.sha }}", "token": {"file": "token"}});
    with(&base, more)
}

fn gate(context: &ForgeContext, upstream: &Upstream, more: &Value) -> Remembered<Gitlab> {
    context.gate(&config(&format!("http://{}/api/v4", upstream.address), more), Gitlab::build)
}

/// A pipeline as the list of a project shows it.
fn pipeline(id: u64, status: &str, more: &Value) -> Value {
    let base = json!({
        "id": id, "iid": 12, "project_id": 1, "status": status, "source": "push", "ref": "feature/x", "sha": SHA,
        "name": "Build pipeline", "web_url": format!("https://gitlab.example.com/group/sub/app/-/pipelines/{id}"),
        "created_at": "2026-08-11T11:28:34.085Z", "updated_at": "2026-08-11T11:32:35.169Z"
    });
    with(&base, more)
}

#[tokio::test]
async fn requests_are_sent_as_documented() {
    let upstream = answering(json!([pipeline(47, "success", &json!({}))])).await;
    let context = ForgeContext::new();
    let verdict = ask(&gate(&context, &upstream, &json!({}))).await.unwrap();
    assert_eq!(verdict.state, CiState::Passed);
    let page = "https://gitlab.example.com/group/sub/app/-/pipelines/47";
    assert_eq!(verdict.run_url.as_deref(), Some(page));
    assert_eq!(verdict.built_at.as_deref(), Some("2026-08-11T11:32:35.169Z"));
    assert_eq!(
        verdict.evidence[0].to_string(),
        format!("present, {REQUEST_DESCRIPTION}: pipeline 47: success, {page}")
    );

    ask(&gate(&context, &upstream, &json!({"ref": "feature/x", "sources": ["push"]}))).await.unwrap();
    ask(&gate(&context, &upstream, &json!({"sources": ["push", "web"], "tokenKind": "bearer"}))).await.unwrap();
    let number = json!({"mergeRequest": "{{ params.number }}", "token": null, "project": "17"});
    ask(&gate(&context, &upstream, &number)).await.unwrap();
    let child = answering(json!([pipeline(48, "success", &json!({"source": "parent_pipeline"}))])).await;
    let children = gate(&context, &child, &json!({"sources": ["parent_pipeline"]}));
    assert_eq!(ask(&children).await.unwrap().state, CiState::Passed);
    let order = "order_by=id&sort=desc&per_page=100";
    assert_eq!(asked(&child), [format!("GET {PATH}?sha={SHA}&source=parent_pipeline&{order}")]);
    assert_eq!(
        asked(&upstream),
        [
            format!("GET {PATH}?sha={SHA}&{order}"),
            format!("GET {PATH}?sha={SHA}&ref=feature%2Fx&source=push&{order}"),
            format!("GET {PATH}?sha={SHA}&{order}"),
            "GET /api/v4/projects/17/merge_requests/7/pipelines?per_page=100".to_owned(),
        ]
    );
    let (requests, json) = (upstream.requests(), ("accept", "application/json"));
    assert_eq!(headers(&requests[0]), [json, ("private-token", TOKEN)]);
    assert_eq!(headers(&requests[2]), [json, ("authorization", &format!("Bearer {TOKEN}"))]);
    assert_eq!(headers(&requests[3]), [json]);
}

#[tokio::test]
async fn each_status_has_its_meaning() {
    let context = ForgeContext::new();
    let page = "https://gitlab.example.com/group/sub/app/-/pipelines/17";
    for (status, state) in [
        ("success", CiState::Passed),
        ("failed", CiState::Failed),
        ("canceled", CiState::Failed),
        ("canceling", CiState::Failed),
        ("skipped", CiState::Failed),
        ("created", CiState::Pending),
        ("waiting_for_resource", CiState::Pending),
        ("preparing", CiState::Pending),
        ("pending", CiState::Pending),
        ("running", CiState::Pending),
        ("scheduled", CiState::Pending),
        ("manual", CiState::Pending),
        ("waiting_for_callback", CiState::Pending),
    ] {
        let upstream = answering(json!([pipeline(17, status, &json!({}))])).await;
        let verdict = ask(&gate(&context, &upstream, &json!({}))).await.unwrap();
        let exists = if state == CiState::Passed { "present" } else { "absent" };
        assert_eq!(verdict.state, state, "{status}");
        assert_eq!(
            verdict.evidence[0].to_string(),
            format!("{exists}, {REQUEST_DESCRIPTION}: pipeline 17: {status}, {page}")
        );
        assert_eq!(verdict.run_url.as_deref(), Some(page));
        assert_eq!(verdict.built_at.is_some(), state != CiState::Pending, "{status}");
    }
    let skipped = answering(json!([pipeline(17, "skipped", &json!({}))])).await;
    assert_eq!(ruled(&gate(&context, &skipped, &json!({"accept": ["skipped"]}))).await.0, CiState::Passed);
    let new = answering(json!([pipeline(17, "succeeded\u{7}", &json!({}))])).await;
    unknown(&gate(&context, &new, &json!({})), ErrorKind::InvalidOutput, "`succeeded `, which is unknown").await;
}

#[tokio::test]
async fn the_newest_pipeline_of_the_commit_decides() {
    let context = ForgeContext::new();
    let pipelines = json!([
        pipeline(30, "failed", &json!({"sha": OTHER})),
        pipeline(12, "success", &json!({"sha": SHA.to_uppercase()})),
        pipeline(20, "running", &json!({"source": "schedule", "ref": "main"})),
        pipeline(11, "failed", &json!({"source": "web"})),
    ]);
    let upstream = answering(pipelines).await;
    for (more, id, state) in [
        (json!({}), 20, CiState::Pending),
        (json!({"sources": ["push", "web"]}), 12, CiState::Passed),
        (json!({"sources": ["web"]}), 11, CiState::Failed),
        (json!({"ref": "feature/x"}), 12, CiState::Passed),
        (json!({"ref": "main"}), 20, CiState::Pending),
    ] {
        let (ruled, evidence) = ruled(&gate(&context, &upstream, &more)).await;
        assert_eq!(ruled, state, "{more}");
        assert!(evidence[0].contains(&format!(": pipeline {id}: ")), "{evidence:?}");
    }
    // No pipeline is no failure: the list lags behind a push.
    for (more, says) in [
        (json!({"ref": "v1"}), "no pipeline for it yet that counts; pipeline 20 is of `main`, from `schedule`"),
        (json!({"sources": ["merge_request_event"]}), "no pipeline for it yet that counts; pipeline 20 is"),
    ] {
        let (ruled, evidence) = ruled(&gate(&context, &upstream, &more)).await;
        assert_eq!((ruled, evidence.len()), (CiState::Pending, 1));
        assert!(evidence[0].starts_with(&format!("absent, {REQUEST_DESCRIPTION}: {says}")), "{evidence:?}");
    }
    for nothing in [json!([]), json!([pipeline(30, "success", &json!({"sha": OTHER}))])] {
        let upstream = answering(nothing).await;
        let expected = (CiState::Pending, vec![format!("absent, {REQUEST_DESCRIPTION}: no pipeline for it yet")]);
        assert_eq!(ruled(&gate(&context, &upstream, &json!({}))).await, expected);
    }
}

#[tokio::test]
async fn the_pipelines_of_a_merge_request_are_read() {
    let context = ForgeContext::new();
    let more = json!({"mergeRequest": "{{ params.number }}"});
    // The fields in the documentation of this list.
    let documented =
        |id: u64, sha: &str, reference: &str| json!({"id": id, "sha": sha, "ref": reference, "status": "success"});
    let merged = documented(90, OTHER, "refs/merge-requests/7/merge");
    let upstream = answering(json!([merged, documented(77, SHA, "refs/merge-requests/7/head")])).await;
    let description = REQUEST_DESCRIPTION.replace("/pipelines", "/merge_requests/7/pipelines");
    let passed = (CiState::Passed, vec![format!("present, {description}: pipeline 77: success")]);
    assert_eq!(ruled(&gate(&context, &upstream, &more)).await, passed);
    let push = with(&more, &json!({"sources": ["push"]}));
    unknown(&gate(&context, &upstream, &push), ErrorKind::InvalidOutput, "pipeline 77 names no source").await;

    for reference in ["refs/merge-requests/7/merge", "refs/merge-requests/7/train"] {
        let upstream = answering(json!([documented(90, OTHER, reference), documented(60, OTHER, "feature/x")])).await;
        let (state, evidence) = ruled(&gate(&context, &upstream, &more)).await;
        assert_eq!(state, CiState::Pending);
        assert!(evidence[0].contains("pipeline 90 for a merge commit: merged results pipelines"), "{evidence:?}");
        assert!(evidence[0].contains("needs a branch pipeline or a merge request pipeline"), "{evidence:?}");
    }
    for number in ["", "x", "0", "+7", "7/../8", "99999999999999999999"] {
        let error =
            ask_with(&gate(&context, &upstream, &more), &json!({"sha": SHA, "number": number})).await.unwrap_err();
        assert_eq!((error.kind, error.message.contains("mergeRequest: ")), (ErrorKind::InvalidInput, true), "{error}");
    }
}

/// A project with `pages` pages of pipelines, of which the last holds the newest.
fn in_pages(request: &Request, pages: usize) -> Vec<Step> {
    let (path, query) = request.target.split_once('?').unwrap();
    let page = query.split('&').find_map(|pair| pair.strip_prefix("page=")).map_or(1, |page| page.parse().unwrap());
    let url = format!("http://{}{path}?sha={SHA}&per_page=100", request.header("host").unwrap());
    let first = format!("<{url}&page=1>; rel=\"first\"");
    let link = if page < pages {
        format!("Link: <{url}&page={}>; rel=\"next\", {first}\r\nX-Next-Page: {}", page + 1, page + 1)
    } else {
        format!("Link: {first}\r\nX-Next-Page: ")
    };
    let status = if page == pages { "success" } else { "failed" };
    json(request, &link, &json!([pipeline(u64::try_from(page).unwrap(), status, &json!({}))]))
}

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    let context = ForgeContext::new();
    let upstream = Upstream::start(|request| in_pages(request, 3)).await;
    assert_eq!(ruled(&gate(&context, &upstream, &json!({}))).await.0, CiState::Passed);
    assert_eq!(
        asked(&upstream),
        [
            format!("GET {PATH}?sha={SHA}&order_by=id&sort=desc&per_page=100"),
            format!("GET {PATH}?sha={SHA}&per_page=100&page=2"),
            format!("GET {PATH}?sha={SHA}&per_page=100&page=3"),
        ]
    );
    for request in upstream.requests() {
        assert_eq!(headers(&request), [("accept", "application/json"), ("private-token", TOKEN)]);
    }
    let upstream = Upstream::start(|request| in_pages(request, 20)).await;
    assert_eq!(ruled(&gate(&context, &upstream, &json!({}))).await.0, CiState::Passed);

    let upstream = Upstream::start(|request| in_pages(request, 21)).await;
    unknown(&gate(&context, &upstream, &json!({})), ErrorKind::InvalidOutput, "goes on after 20 pages").await;
    assert_eq!(upstream.requests().len(), 20);
}

#[tokio::test]
async fn an_incomplete_list_is_unknown() {
    let context = ForgeContext::new();
    let passed = json!([pipeline(1, "success", &json!({}))]);
    let elsewhere = Upstream::start(|request| in_pages(request, 1)).await;
    let other = elsewhere.address;
    for (headers, says) in [
        (format!("Link: <{PATH}?page=2>; rel=\"next\""), "lead in a circle"),
        (
            format!("Link: <http://{other}{PATH}?page=2&private_token=x>; rel=\"next\""),
            "is not at the address of the first",
        ),
        (format!("Link: <{PATH}/other?page=2>; rel=\"next\""), "is not at the address of the first"),
        ("Link: <http://[>; rel=\"next\"".to_owned(), "is not a URL"),
        ("X-Next-Page: 2".to_owned(), "but no `Link` to it"),
        ("X-Total: 2".to_owned(), "not whole"),
        ("X-Total: 0".to_owned(), "not whole"),
        ("X-Total: many".to_owned(), "`x-total` is not a number"),
        ("Link: <?page=2>; rel*=UTF-8''next".to_owned(), "cannot be read"),
    ] {
        let body = passed.clone();
        let upstream = Upstream::start(move |request| json(request, &headers, &body)).await;
        let message = unknown(&gate(&context, &upstream, &json!({})), ErrorKind::InvalidOutput, says).await;
        assert!(!message.contains("private_token"), "{message}");
    }
    assert_eq!(asked(&elsewhere), Vec::<String>::new(), "the token stays where it belongs");
    let whole = Upstream::start(move |request| json(request, "X-Total: 1\r\nX-Next-Page: ", &passed)).await;
    assert_eq!(ruled(&gate(&context, &whole, &json!({}))).await.0, CiState::Passed);

    let upstream = Upstream::start(|request| {
        if request.target.contains("&page=2") { request.answer(502, "", "") } else { in_pages(request, 3) }
    })
    .await;
    unknown(&gate(&context, &upstream, &json!({})), ErrorKind::Unavailable, "502").await;
}

#[tokio::test]
async fn failures_are_errors() {
    let context = ForgeContext::new();
    let build = |context: &ForgeContext, api: &str| context.gate(&config(api, &json!({})), Gitlab::build);
    check_failures(&context, build).await;
    check_commits(&context, build).await;
    let upstream = answering(json!([{"id": TOKEN, "sha": SHA, "status": "success"}])).await;
    unknown(&gate(&context, &upstream, &json!({})), ErrorKind::InvalidOutput, "expected u64").await;
    let upstream = answering(json!([pipeline(17, TOKEN, &json!({}))])).await;
    unknown(&gate(&context, &upstream, &json!({})), ErrorKind::InvalidOutput, "`[redacted]`, which is unknown").await;
    let upstream =
        answering(json!([pipeline(17, "success", &json!({"web_url": format!("https://g/?t={TOKEN}")}))])).await;
    let verdict = ask(&gate(&context, &upstream, &json!({}))).await.unwrap();
    assert!(!format!("{verdict:?}").contains("c4n4ry"), "{verdict:?}");
}

#[tokio::test]
async fn the_token_is_read_at_each_use() {
    let context = ForgeContext::new();
    let upstream = answering(json!([])).await;
    let gate = gate(&context, &upstream, &json!({}));
    assert!(!format!("{gate:?}").contains(TOKEN));
    let file = context.folder.path().join("token");
    for token in ["first", "second"] {
        std::fs::write(&file, token).unwrap();
        ask(&gate).await.unwrap();
    }
    let sent: Vec<String> =
        upstream.requests().iter().map(|request| request.header("private-token").unwrap().to_owned()).collect();
    assert_eq!(sent, ["first", "second"]);
    std::fs::write(&file, "two\nlines").unwrap();
    unknown(&gate, ErrorKind::Denied, "the secret file token holds characters that no header can carry").await;
    std::fs::remove_file(&file).unwrap();
    unknown(&gate, ErrorKind::Unavailable, "cannot read the secret file").await;
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn check_reports_the_problems_of_a_configuration() {
    let context = ForgeContext::new();
    let api = "https://gitlab.example.com/api/v4";
    for (more, path, says) in [
        (json!({"api": "gitlab.com"}), "api", "not a URL"),
        (json!({"api": "https://{{ params.host }}/api/v4"}), "api", "no parameter may decide"),
        (json!({"project": "{{ param.x }}"}), "project", "unknown name `param`"),
        (json!({"project": " "}), "project", "it is empty"),
        (json!({"sha": "{{ params.sha"}), "sha", ""),
        (json!({"ref": ""}), "ref", "it is empty"),
        (json!({"mergeRequest": "{{ x }}"}), "mergeRequest", "unknown name"),
        (json!({"sources": []}), "sources", "no pipeline counts"),
        (json!({"sources": ["push", "Merge Request"]}), "sources[1]", "not a source of GitLab"),
        (json!({"sources": ["push", "parent_pipeline"]}), "sources[1]", "none would ever be seen"),
        (json!({"sources": ["parent_pipeline"], "mergeRequest": "7"}), "sources[0]", "none would ever be seen"),
        (json!({"token": {"file": "missing"}}), "token", "cannot read the secret file"),
    ] {
        let problems = context.problems(&config(api, &more), Gitlab::build);
        assert_eq!(problems.len(), 1, "{more}: {problems:?}");
        assert!(problems[0].starts_with(&format!("{path}: ")) && problems[0].contains(says), "{problems:?}");
    }
    let wrong = json!({"api": "x", "project": "", "sha": "", "token": {"file": "missing"}});
    assert_eq!(context.problems(&config(api, &wrong), Gitlab::build).len(), 4, "all at once");
    let gate = |more: &Value| context.reads_application_set(&config(api, more), Gitlab::build);
    assert!(!gate(&json!({"ref": "{{ params.branch }}"})));
    for key in ["project", "sha", "ref", "mergeRequest"] {
        assert!(gate(&json!({key: "{{ applicationSet }}"})), "{key}");
    }
}

#[tokio::test]
async fn verdicts_are_cached_by_question() {
    let context = ForgeContext::new();
    for (more, others) in [
        (json!({}), vec![json!({"sha": OTHER})]),
        (json!({"ref": "{{ params.ref }}"}), vec![json!({"ref": "main"}), json!({"sha": OTHER})]),
        (
            // The whole list of the merge request is cached, whichever pipelines count.
            json!({"mergeRequest": "{{ params.number }}", "ref": "{{ params.ref }}", "project": "g/{{ params.number }}"}),
            vec![json!({"ref": "main"}), json!({"sha": OTHER}), json!({"number": "8"})],
        ),
    ] {
        let upstream = answering(json!([pipeline(1, "success", &json!({}))])).await;
        check_memory(&gate(&context, &upstream, &more), &upstream, &others).await;
    }
}

//! The GitHub gate: which of GitHub's answers pass or fail a commit, and which are no verdict.

mod requests;

use std::{sync::Arc, time::Duration};

use backend::digests::gate::{CiState, Gate};
use domain::error::ErrorKind;
use serde_json::{Value, json};

use super::{
    GateContext, HEAD, ask, ask_with,
    fake_github::{Forge, check, error, json_answer, run, status},
    is, unknown,
};

pub(super) const RUNS: &str = "/repos/org/repo/actions/runs?head_sha=d6fde92930d4715a2b49857d24b940956b26d2d3&exclude_pull_requests=true&per_page=100";
pub(super) const CHECKS: &str =
    "/repos/org/repo/commits/d6fde92930d4715a2b49857d24b940956b26d2d3/check-runs?filter=latest&per_page=100";
const STATUS: &str = "/repos/org/repo/commits/d6fde92930d4715a2b49857d24b940956b26d2d3/status?per_page=100";

/// A gate for `org/repo` at `forge` with `more` in its configuration.
fn config(forge: &Forge, more: &Value) -> Value {
    let mut config = json!({"api": forge.api(), "repository": "org/repo"});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"github": config})
}

/// The same, built.
pub(super) fn gate(context: &GateContext, forge: &Forge, more: &Value) -> Arc<dyn Gate> {
    context.gate(config(forge, more))
}

/// A gate that requires the workflow `build.yml`.
fn build_gate(forge: &Forge) -> Arc<dyn Gate> {
    gate(&GateContext::new(), forge, &json!({"workflows": ["build.yml"]}))
}

#[tokio::test]
async fn a_run_is_pending_until_it_is_listed_and_then_decides() {
    let forge = Forge::start().await;
    let gate = build_gate(&forge);
    let verdict = is(ask(&gate).await, CiState::Pending);
    let evidence: Vec<String> = verdict.evidence.iter().map(ToString::to_string).collect();
    assert_eq!(evidence, ["absent, the workflow build.yml of org/repo at d6fde929: no run yet"]);
    assert_eq!((verdict.run_url, verdict.built_at), (None, None));
    assert_eq!(forge.asked(), [format!("GET {RUNS}")]);

    for (words, state) in [
        ("queued", CiState::Pending),
        ("in_progress", CiState::Pending),
        ("completed failure", CiState::Failed),
        ("completed success", CiState::Passed),
    ] {
        forge.change(|state| state.runs = vec![run(7, "build", HEAD, words)]);
        let verdict = is(ask(&gate).await, state);
        assert_eq!(verdict.run_url.as_deref(), Some("https://github.com/org/repo/actions/runs/7"));
        let ended = (state != CiState::Pending).then_some("2026-01-22T20:07:08Z");
        assert_eq!(verdict.built_at.as_deref(), ended);
        assert_eq!((verdict.commit.unwrap().as_str(), verdict.is_earlier), (HEAD, false));
    }
}

#[tokio::test]
async fn only_a_full_commit_of_a_repository_is_queried() {
    let forge = Forge::start().await;
    forge.change(|state| state.runs = vec![run(7, "build", HEAD, "completed success")]);
    let gate = build_gate(&forge);
    for (sha, says) in [("", "is empty"), ("  ", "is empty"), ("d6fde929", "shortened"), ("main", "not a commit")] {
        unknown(ask_with(&gate, json!({"head_sha": sha}), false).await, "invalid_input", says);
    }
    unknown(ask_with(&gate, json!({}), false).await, "invalid_input", "params.head_sha");
    let templated = json!({"repository": "org/{{ params.repo }}", "workflows": ["build.yml"]});
    let gate = self::gate(&GateContext::new(), &forge, &templated);
    for repo in ["", "../x", "a/b", "a?b", ".."] {
        let parameters = json!({"head_sha": HEAD, "repo": repo});
        unknown(ask_with(&gate, parameters, false).await, "invalid_input", "owner/name");
    }
    assert_eq!(forge.asked(), Vec::<String>::new());
    is(ask_with(&gate, json!({"head_sha": HEAD.to_uppercase(), "repo": "repo"}), false).await, CiState::Passed);
    assert_eq!(forge.asked(), [format!("GET {RUNS}")]);
}

#[tokio::test]
async fn runs_of_other_commits_are_ignored() {
    let forge = Forge::start().await;
    forge.change(|state| {
        state.is_unfiltered = true;
        state.runs = vec![run(8, "build", &"b".repeat(40), "completed success"), run(9, "build", &HEAD[..39], "x")];
    });
    let gate = build_gate(&forge);
    is(ask(&gate).await, CiState::Pending);
    forge.change(|state| state.runs.push(run(7, "build", HEAD, "completed failure")));
    is(ask(&gate).await, CiState::Failed);

    let mut other = check(9, "unit", "completed success");
    other["head_sha"] = json!("b".repeat(40));
    forge.change(|state| state.checks = vec![other]);
    is(ask(&self::gate(&GateContext::new(), &forge, &json!({"checks": ["unit"]}))).await, CiState::Pending);
}

#[tokio::test]
async fn the_newest_run_and_its_newest_attempt_decide() {
    let forge = Forge::start().await;
    let gate = build_gate(&forge);
    let repeated = |words: &str| {
        let mut run = run(7, "build", HEAD, words);
        run["run_attempt"] = json!(2);
        run
    };
    forge.change(|state| state.runs = vec![run(7, "build", HEAD, "completed failure")]);
    is(ask(&gate).await, CiState::Failed);
    forge.change(|state| state.runs = vec![repeated("in_progress")]);
    is(ask(&gate).await, CiState::Pending);
    forge.change(|state| state.runs = vec![repeated("completed success")]);
    let verdict = is(ask(&gate).await, CiState::Passed);
    assert_eq!(verdict.evidence[0].answer, "success (run 7, attempt 2)");
    // Another run of the same commit, started later.
    forge.change(|state| state.runs.push(run(8, "build", HEAD, "completed failure")));
    let verdict = is(ask(&gate).await, CiState::Failed);
    assert_eq!(verdict.run_url.as_deref(), Some("https://github.com/org/repo/actions/runs/8"));
}

#[tokio::test]
async fn a_workflow_is_selected_by_any_of_three_names_and_by_event() {
    let forge = Forge::start().await;
    let mut nightly = run(9, "build", HEAD, "completed failure");
    nightly["event"] = json!("schedule");
    forge.change(|state| state.runs = vec![nightly, run(7, "build", HEAD, "completed success")]);
    for name in ["build.yml", ".github/workflows/build.yml", "build workflow", "/^build/"] {
        let gate = gate(&GateContext::new(), &forge, &json!({"workflows": [name], "events": ["push", "pull_request"]}));
        is(ask(&gate).await, CiState::Passed);
        let gate = self::gate(&GateContext::new(), &forge, &json!({"workflows": [name]}));
        is(ask(&gate).await, CiState::Failed);
    }
    // The form in which GitHub names a workflow of another repository.
    forge.change(|state| {
        let mut required = run(11, "build", HEAD, "completed success");
        required["path"] = json!("org/shared/.github/workflows/required.yml@refs/heads/main");
        state.runs.push(required);
    });
    is(ask(&self::gate(&GateContext::new(), &forge, &json!({"workflows": ["required.yml"]}))).await, CiState::Passed);
    for name in ["build", "uild.yml", "/^uild/"] {
        let gate = gate(&GateContext::new(), &forge, &json!({"workflows": [name]}));
        is(ask(&gate).await, CiState::Pending);
    }
}

#[tokio::test]
async fn a_skipped_run_is_a_success_only_if_configured() {
    let forge = Forge::start().await;
    forge.change(|state| {
        state.checks = vec![
            check(1, "build", "completed success"),
            check(2, "e2e", "completed skipped"),
            check(3, "lint", "completed neutral"),
        ];
    });
    let ask_accepting = async |accept: Value| {
        let more = json!({"checks": ["build", "e2e", "lint"], "accept": accept});
        ask(&gate(&GateContext::new(), &forge, &more)).await.unwrap()
    };
    let verdict = ask_accepting(json!([])).await;
    assert_eq!(verdict.state, CiState::Failed);
    let evidence = verdict.evidence[1].to_string();
    assert_eq!(
        evidence,
        "absent, the check e2e of org/repo at d6fde929: skipped, which is not a success unless `accept` names it (run 2)"
    );
    assert_eq!(ask_accepting(json!(["skipped"])).await.state, CiState::Failed);
    let verdict = ask_accepting(json!(["skipped", "neutral"])).await;
    assert_eq!(
        (verdict.state, verdict.run_url.as_deref()),
        (CiState::Passed, Some("https://github.com/org/repo/runs/3"))
    );
}

#[tokio::test]
async fn statuses_are_compared_by_context() {
    let forge = Forge::start().await;
    let gate = gate(&GateContext::new(), &forge, &json!({"statuses": ["ci/build", "/^ci\\/deploy/"]}));
    is(ask(&gate).await, CiState::Pending);
    assert_eq!(forge.asked(), [format!("GET {STATUS}")]);
    for (build, deploy, expected) in [
        ("success", "pending", CiState::Pending),
        ("error", "pending", CiState::Failed),
        ("failure", "success", CiState::Failed),
        ("success", "success", CiState::Passed),
    ] {
        forge.change(|state| {
            let other = status(3, "lint", "failure");
            state.statuses = vec![status(1, "ci/build", build), status(2, "ci/deploy-1", deploy), other];
        });
        is(ask(&gate).await, expected);
    }
    forge.change(|state| state.statuses[0]["state"] = json!("expected"));
    unknown(ask(&gate).await, "invalid_output", "`expected` is unknown");
    forge.answer_first_with(|request| {
        let body = json!({"state": "success", "sha": "b".repeat(40), "total_count": 1, "statuses": [status(1, "ci/build", "success")]});
        Some(json_answer(request, 200, "", &body))
    });
    unknown(ask(&gate).await, "invalid_output", "answers about the commit `bbbb");
}

#[tokio::test]
async fn all_required_lists_are_requested_concurrently() {
    let forge = Forge::start().await;
    let gate = gate(
        &GateContext::new(),
        &forge,
        &json!({"workflows": ["build.yml"], "checks": ["unit"], "statuses": ["ci/build"]}),
    );
    is(ask(&gate).await, CiState::Pending);
    let mut expected = [RUNS, CHECKS, STATUS].map(|target| format!("GET {target}"));
    expected.sort();
    assert_eq!(forge.asked(), expected);
    forge.change(|state| {
        state.runs = vec![run(7, "build", HEAD, "completed success")];
        state.checks = vec![check(1, "unit", "completed success")];
        state.statuses = vec![status(1, "ci/build", "success")];
    });
    let verdict = is(ask(&gate).await, CiState::Passed);
    assert_eq!(verdict.built_at.as_deref(), Some("2026-07-20T01:01:13Z"), "what ended last");

    // One unreadable list makes the verdict unknown, unless another list has a failure.
    forge.answer_first_with(|request| {
        request.target.ends_with("status?per_page=100").then(|| error(request, 500, "oops"))
    });
    unknown(ask(&gate).await, "unavailable", "500");
    forge.change(|state| state.checks = vec![check(1, "unit", "completed failure")]);
    assert_eq!(is(ask(&gate).await, CiState::Failed).evidence.len(), 3);
}

#[tokio::test]
async fn a_refusal_by_github_is_no_verdict() {
    for (code, message, kind, says) in [
        (404, "Not Found", "denied", "it does not exist, or the credential may not see it"),
        (401, "Bad credentials", "denied", "Bad credentials"),
        (403, "Resource not accessible by personal access token", "denied", "not accessible"),
        (422, "No commit found for SHA", "invalid_output", "does the repository have this commit"),
        (301, "Moved Permanently", "invalid_output", "renamed"),
        (429, "too many", "throttled", "429"),
        (500, "oops", "unavailable", "500"),
        (503, "No server is currently available", "unavailable", "503"),
        (204, "", "invalid_output", "204"),
    ] {
        // A refusal may ask for a pause.
        let forge = Forge::start().await;
        let gate = build_gate(&forge);
        forge.answer_first_with(move |request| Some(error(request, code, message)));
        let failure = unknown(ask(&gate).await, kind, says);
        assert!(failure.message.contains("/repos/org/repo/actions/runs"), "{}", failure.message);
        assert_eq!(failure.evidence.len(), 1);
    }
    let forge = Forge::start().await;
    let gate = build_gate(&forge);
    for body in [
        json!([]),
        json!({}),
        json!({"workflow_runs": []}),
        json!({"total_count": 0}),
        json!({"total_count": 1, "workflow_runs": [{"id": 1, "head_sha": HEAD}]}),
        json!({"total_count": 0, "workflow_runs": null}),
        json!("<html>"),
    ] {
        forge.answer_first_with(move |request| Some(json_answer(request, 200, "", &body)));
        unknown(ask(&gate).await, "invalid_output", "not the document that was expected");
    }
    forge.answer_first_with(|request| Some(request.answer(200, "", "{\"total_count\": 1, \"workflow_runs\": [{")));
    unknown(ask(&gate).await, "invalid_output", "EOF");
    forge.answer_first_with(|_| None);
    for (words, says) in [("completed", "no conclusion"), ("completed exploded", "`exploded` is unknown")] {
        forge.change(|state| state.runs = vec![run(7, "build", HEAD, words)]);
        unknown(ask(&gate).await, "invalid_output", says);
    }
}

// Needs `Reply::refusal` to know GitHub's rate limit headers on a 403.
#[tokio::test]
async fn a_403_with_rate_limit_headers_asks_for_a_pause() {
    let forge = Forge::start().await;
    let gate = build_gate(&forge);
    for headers in [
        "\r\nRetry-After: 60",
        "\r\nx-ratelimit-limit: 60\r\nx-ratelimit-remaining: 0\r\nx-ratelimit-reset: 4102444800",
    ] {
        forge.answer_first_with(move |request| {
            let body = json!({"message": "API rate limit exceeded"});
            Some(json_answer(request, 403, headers, &body))
        });
        let failure = ask(&gate).await.unwrap_err();
        assert!(matches!(failure.kind, ErrorKind::Throttled { retry_after: Some(_) }), "{failure:?}");
    }
}

// Needs `Line::fetch` to revalidate: the call says `revalidate: true`.
#[test]
fn the_problems_of_a_configuration_are_reported() {
    let problems = |more: Value| {
        let mut config = json!({"repository": "org/repo", "workflows": ["build.yml"], "token": {"env": "PATH"}});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        GateContext::new().problems(json!({"github": config}))
    };
    assert_eq!(problems(json!({})), Vec::<String>::new());
    assert_eq!(problems(json!({"repository": "{{ params.repo }}", "walkBack": 50})), Vec::<String>::new());
    let app = json!({"id": 1, "installation": 2, "privateKey": {"env": "PATH"}});
    for (more, path, says) in [
        (json!({"workflows": []}), "gate.github:", "nothing is required"),
        (json!({"repository": "repo"}), "gate.github.repository:", "owner/name"),
        (json!({"repository": "{{ repo }}"}), "gate.github.repository:", "unknown name `repo`"),
        (json!({"sha": "{{ params"}), "gate.github.sha:", "unexpected end of input"),
        (json!({"api": "api.github.com"}), "gate.github.api:", "not a URL"),
        (json!({"workflows": ["a", "/(/"]}), "gate.github.workflows[1]:", "unclosed group"),
        (json!({"checks": [""]}), "gate.github.checks[0]:", "empty"),
        (json!({"statuses": ["//"]}), "gate.github.statuses[0]:", "match everything"),
        (json!({"walkBack": 0}), "gate.github.walkBack:", "from 1 to 50"),
        (json!({"walkBack": 51}), "gate.github.walkBack:", "from 1 to 50"),
        (json!({"token": {"env": "NO_SUCH_VARIABLE_HERE"}}), "gate.github.token:", "not set"),
        (json!({"token": null}), "gate.github:", "60 requests an hour"),
        (json!({"app": app}), "gate.github:", "keep one of them"),
        (json!({"token": null, "app": app}), "gate.github.app.privateKey:", "is not an RSA private key"),
        (json!({"workflows": [], "checks": ["x"], "events": ["push"]}), "gate.github.events:", "no workflow is named"),
    ] {
        let found = problems(more);
        assert!(found.len() == 1 && found[0].starts_with(path) && found[0].contains(says), "{says}: {found:?}");
    }
}

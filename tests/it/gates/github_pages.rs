//! GitHub's lists are read to their end, otherwise the verdict is unknown.

use backend::digests::gate::CiState;
use serde_json::{Value, json};

use super::{
    GateContext, ask,
    fake_github::{Forge, check, error, json_answer},
    github::{CHECKS, gate},
    is, unknown,
};

#[tokio::test]
async fn a_list_counts_only_if_all_its_pages_were_read() {
    let forge = Forge::start().await;
    forge.change(|state| {
        state.page = 2;
        state.checks = (1..=5).map(|id| check(id, &format!("job {id}"), "completed success")).collect();
    });
    let gate = gate(&GateContext::new(), &forge, &json!({"checks": ["/^job /", "job 5"]}));
    assert_eq!(is(ask(&gate).await, CiState::Passed).evidence.len(), 6);
    let numbered = CHECKS.replace("/repos/org/repo/", "/repositories/1296269/");
    assert_eq!(
        forge.asked(),
        [format!("GET {CHECKS}"), format!("GET {numbered}&page=2"), format!("GET {numbered}&page=3"),]
    );

    // A failure on the last page fails the commit. An unreadable last page makes the verdict unknown.
    forge.change(|state| state.checks[4] = check(5, "job 5", "completed failure"));
    is(ask(&gate).await, CiState::Failed);
    let body = |checks: &[Value], total: usize| json!({"total_count": total, "check_runs": checks});
    forge.answer_first_with(|request| request.target.contains("page=3").then(|| error(request, 502, "Server Error")));
    unknown(ask(&gate).await, "unavailable", "502");

    let one = check(1, "job 1", "completed success");
    // Hosts that never get a credential, whatever the path.
    let elsewhere = format!("<http://127.0.0.1:1{CHECKS}&page=2>; rel=\"next\"");
    let with_user = format!("<{}{CHECKS}&page=2>; rel=\"next\"", forge.api().replace("http://", "http://u:p@"));
    for (link, says) in [
        (&*elsewhere, "another resource"),
        (&*with_user, "another resource"),
        ("</repos/org/other/commits/x/check-runs?page=2>; rel=\"next\"", "another resource"),
        ("</repositories/1/actions/runs?page=2>; rel=\"next\"", "another resource"),
        ("<?page=2>; rel=\"next\"", "circle"),
        ("/repositories/1/actions/runs?page=2; rel=\"next\"", "cannot be read"),
        ("</repositories/1/commits/d6fde92930d4715a2b49857d24b940956b26d2d3/check-runs>; rel=\"next\"", "circle"),
    ] {
        let (one, link) = (one.clone(), link.to_owned());
        forge.answer_first_with(move |request| {
            Some(json_answer(request, 200, &format!("\r\nLink: {link}"), &body(std::slice::from_ref(&one), 1)))
        });
        unknown(ask(&gate).await, "invalid_output", says);
    }
    let (path, endless) = (CHECKS.split('?').next().unwrap(), one.clone());
    forge.answer_first_with(move |request| {
        let link = format!("\r\nLink: <{path}?x={}>; rel=\"next\"", request.target.len());
        Some(json_answer(request, 200, &link, &body(std::slice::from_ref(&endless), 1)))
    });
    unknown(ask(&gate).await, "invalid_output", "circle");
    let endless = one.clone();
    let count = std::sync::atomic::AtomicUsize::new(0);
    forge.answer_first_with(move |request| {
        let page = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let link = format!("\r\nLink: <{path}?page={page}>; rel=\"next\"");
        Some(json_answer(request, 200, &link, &body(std::slice::from_ref(&endless), 1)))
    });
    forge.asked();
    unknown(ask(&gate).await, "invalid_output", "more than 20 pages");
    assert_eq!(forge.asked().len(), 20);
    for total in [0, 2] {
        let one = one.clone();
        forge.answer_first_with(move |request| {
            Some(json_answer(request, 200, "", &body(std::slice::from_ref(&one), total)))
        });
        unknown(ask(&gate).await, "invalid_output", "not whole");
    }
}

/// An entry that was added meanwhile may decide.
#[tokio::test]
async fn a_list_that_changes_between_pages_is_incomplete() {
    let forge = Forge::start().await;
    let gate = gate(&GateContext::new(), &forge, &json!({"checks": ["/^job /"]}));
    let jobs: Vec<Value> = (1..=4).map(|id| check(id, &format!("job {id}"), "completed success")).collect();
    // Job 4 began after the first page, and pushed job 2 to the second; or it was deleted after that.
    for (first, second) in [(3, 4), (4, 3)] {
        let jobs = jobs.clone();
        forge.answer_first_with(move |request| {
            let (shown, total, link) = if request.target.contains("page=2") {
                (vec![&jobs[1], &jobs[0]], second, String::new())
            } else {
                (vec![&jobs[2], &jobs[1]], first, format!("\r\nLink: <{CHECKS}&page=2>; rel=\"next\""))
            };
            Some(json_answer(request, 200, &link, &json!({"total_count": total, "check_runs": shown})))
        });
        unknown(ask(&gate).await, "invalid_output", "changed while its pages were read");
    }
}

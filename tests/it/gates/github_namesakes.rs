//! Checks with the same name: each belongs to its workflow, and none hides another.

use backend::digests::gate::CiState;
use serde_json::{Value, json};

use super::{
    GateContext, HEAD, ask,
    fake_github::{Forge, check, error, run},
    forge::with,
    github::{CHECKS, RUNS, gate},
    is, unknown,
};

/// Jobs of two workflows with one name, and two runs of one workflow, look alike in the list of check runs.
#[tokio::test]
async fn a_check_does_not_hide_its_namesake_in_another_workflow() {
    let forge = Forge::start().await;
    let gate = gate(&GateContext::new(), &forge, &json!({"checks": ["build"]}));
    let of_suite = |suite: u64, check: Value| with(&check, &json!({"check_suite": {"id": suite}}));
    let run_of = |suite: u64, id: u64, file: &str| {
        with(&run(id, file, HEAD, "completed success"), &json!({"check_suite_id": suite}))
    };
    let (failed, passed) = ("completed failure", "completed success");
    forge.change(|state| {
        state.checks = vec![
            of_suite(5, check(1, "build", failed)),
            of_suite(6, check(2, "build", passed)),
            check(9, "lint", failed),
        ];
        state.runs = vec![run_of(5, 7, "image"), run_of(6, 8, "docs")];
    });
    let verdict = is(ask(&gate).await, CiState::Failed);
    let evidence: Vec<String> = verdict.evidence.iter().map(ToString::to_string).collect();
    assert_eq!(
        evidence,
        [
            "present, the check build of .github/workflows/docs.yml of org/repo at d6fde929: success (run 2)",
            "absent, the check build of .github/workflows/image.yml of org/repo at d6fde929: failure (run 1)",
        ]
    );
    assert_eq!(forge.asked(), [format!("GET {RUNS}"), format!("GET {CHECKS}")]);
    // A repeated job stays in its check suite, and a new run has another suite.
    forge.change(|state| state.checks.push(of_suite(5, check(3, "build", passed))));
    is(ask(&gate).await, CiState::Passed);
    forge.change(|state| {
        state.checks.truncate(3);
        state.checks.push(of_suite(9, check(4, "build", passed)));
    });
    // The workflow of the new check is not known yet: the failure stands.
    is(ask(&gate).await, CiState::Failed);
    forge.change(|state| state.runs.push(run_of(9, 10, "image")));
    is(ask(&gate).await, CiState::Passed);

    // With several checks of one name, their workflows must be known.
    forge.answer_first_with(|request| request.target.contains("/actions/runs").then(|| error(request, 500, "oops")));
    unknown(ask(&gate).await, "unavailable", "the workflows of checks that have the same name");
    forge.change(|state| state.checks = vec![check(4, "build", passed), of_suite(6, check(5, "lint", failed))]);
    forge.asked();
    is(ask(&gate).await, CiState::Passed);
    assert_eq!(forge.asked(), [format!("GET {CHECKS}")], "what is not required does not matter");
}

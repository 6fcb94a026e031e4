//! Walking back: the gate finds the newest earlier commit that passed, and only if it is provably the newest.

use std::sync::Arc;

use backend::digests::gate::{CiState, Gate};
use serde_json::{Value, json};

use super::{
    GateContext, ask_with,
    fake_github::{Forge, commit, error, json_answer, run},
    github::gate,
    is, unknown,
};

/// Commits `a`, `b`, … of a line, as 40 digits each.
fn sha(digit: char) -> String {
    digit.to_string().repeat(40)
}

/// A forge with the commits of `line`, newest first, the last of which is the root when `is_whole`; and a gate that walks
/// back by `steps`.
async fn history(line: &str, is_whole: bool, steps: u8) -> (Forge, Arc<dyn Gate>) {
    let forge = Forge::start().await;
    let digits: Vec<char> = line.chars().chain((!is_whole).then_some('0')).collect();
    forge.change(|state| {
        state.commits = digits
            .iter()
            .enumerate()
            .map(|(index, digit)| match digits.get(index + 1) {
                Some(parent) => commit(&sha(*digit), &[&sha(*parent)]),
                None => commit(&sha(*digit), &[]),
            })
            .collect();
    });
    let gate = gate_of(&forge, steps);
    (forge, gate)
}

fn gate_of(forge: &Forge, steps: u8) -> Arc<dyn Gate> {
    gate(&GateContext::new(), forge, &json!({"workflows": ["build.yml"], "walkBack": steps}))
}

#[tokio::test]
async fn the_newest_earlier_passed_commit_is_found() {
    let (forge, gate) = history("abcde", true, 3).await;
    let from_a = async || ask_with(&gate, json!({"head_sha": sha('a')}), true).await;
    forge.change(|state| {
        state.runs = vec![
            run(3, "build", &sha('d'), "completed success"),
            run(4, "build", &sha('c'), "completed success"),
            run(5, "build", &sha('b'), "completed failure"),
        ];
    });
    let verdict = is(from_a().await, CiState::Passed);
    assert_eq!((verdict.commit.unwrap().as_str(), verdict.is_earlier), (&*sha('c'), true));
    assert_eq!(verdict.run_url.as_deref(), Some("https://github.com/org/repo/actions/runs/4"));
    let evidence: Vec<String> = verdict.evidence.iter().map(ToString::to_string).collect();
    assert_eq!(
        evidence,
        [
            "absent, the workflow build.yml of org/repo at aaaaaaaa: no run yet",
            "present, the commits of org/repo before aaaaaaaa: cccccccc passed, 2 before aaaaaaaa",
            "present, the workflow .github/workflows/build.yml of org/repo at cccccccc: success (run 4)",
        ]
    );
    let runs = |digit| {
        format!("GET /repos/org/repo/actions/runs?head_sha={}&exclude_pull_requests=true&per_page=100", sha(digit))
    };
    let commits = format!("GET /repos/org/repo/commits?sha={}&per_page=4", sha('a'));
    assert_eq!(forge.asked(), [runs('a'), runs('b'), runs('c'), commits.clone()]);

    // Verdicts on earlier commits are cached, the verdict on the asked commit is not.
    is(from_a().await, CiState::Passed);
    assert_eq!(forge.asked(), [runs('a'), commits]);
    forge.change(|state| state.runs.push(run(9, "build", &sha('a'), "completed success")));
    assert!(!is(from_a().await, CiState::Passed).is_earlier);
    assert_eq!(forge.asked(), [runs('a')]);
    is(from_a().await, CiState::Passed);
    assert_eq!(forge.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn no_passed_commit_in_range_proves_absence_only_at_the_end_of_history() {
    let ask_a = async |gate: &Arc<dyn Gate>| ask_with(gate, json!({"head_sha": sha('a')}), false).await;
    let (forge, gate) = history("abcde", true, 3).await;
    let failure = unknown(ask_a(&gate).await, "invalid_output", "none of the last 3 commits before aaaaaaaa passed");
    assert!(failure.message.contains("raise `walkBack`"), "{}", failure.message);
    assert_eq!(failure.evidence.len(), 2);
    forge.change(|state| state.runs = vec![run(3, "build", &sha('e'), "completed success")]);
    unknown(ask_a(&gate).await, "invalid_output", "none of the last 3 commits");

    let (forge, gate) = history("abcd", true, 3).await;
    let verdict = is(ask_a(&gate).await, CiState::Pending);
    assert_eq!((verdict.commit.unwrap().as_str(), verdict.is_earlier), (&*sha('a'), false));
    assert_eq!(
        verdict.evidence[1].to_string(),
        "absent, the commits of org/repo before aaaaaaaa: none of all 3 passed"
    );
    // A truncated list is not the end of the history.
    forge.change(|state| state.page = 2);
    let verdict = is(ask_a(&gate).await, CiState::Pending);
    assert!(verdict.evidence[1].answer.contains("none of all 3 passed"));

    // An unclear commit in between might be the newest that passed.
    forge.change(|state| {
        state.page = 100;
        state.runs =
            vec![run(2, "build", &sha('b'), "completed exploded"), run(3, "build", &sha('c'), "completed success")];
    });
    unknown(ask_a(&gate).await, "invalid_output", "`exploded`");
    forge.answer_first_with(|request| request.target.contains("/commits?").then(|| error(request, 503, "oops")));
    unknown(ask_a(&gate).await, "unavailable", "503");
}

/// A history of merges, newest first: after each of the commits of `line` come `many` that it merged in.
fn merges(line: &str, many: usize) -> Vec<Value> {
    let mut commits = Vec::new();
    let digits: Vec<char> = line.chars().collect();
    for (index, digit) in digits.iter().enumerate() {
        let side = |number: usize| format!("{digit}{digit}{number:038}");
        let Some(parent) = digits.get(index + 1) else {
            commits.push(commit(&sha(*digit), &[]));
            break;
        };
        commits.push(commit(&sha(*digit), &[&sha(*parent), &side(1)]));
        commits.extend((1..=many).map(|number| commit(&side(number), &[&side(number + 1)])));
    }
    commits
}

#[tokio::test]
async fn merged_commits_do_not_hide_the_first_parents() {
    let lists = |forge: &Forge| {
        let mut lists = forge.asked();
        lists.retain(|asked| asked.contains("/commits?"));
        lists
    };
    let list = |digit, count| format!("GET /repos/org/repo/commits?sha={}&per_page={count}", sha(digit));
    let ask_a = async |gate: &Arc<dyn Gate>| ask_with(gate, json!({"head_sha": sha('a')}), false).await;
    let (forge, gate) = history("", false, 3).await;
    forge.change(|state| {
        state.commits = merges("abcde", 30);
        // The merged commits passed, too, but do not count.
        state.runs = vec![
            run(3, "build", &format!("aa{:038}", 1), "completed success"),
            run(4, "build", &sha('d'), "completed success"),
        ];
    });
    let verdict = is(ask_a(&gate).await, CiState::Passed);
    assert_eq!((verdict.commit.unwrap().as_str(), verdict.is_earlier), (&*sha('d'), true));
    assert_eq!(lists(&forge), [list('a', 4), list('b', 100)]);

    // The third commit is the last in range: the fourth passed, but that proves nothing about the third.
    forge.change(|state| state.runs = vec![run(5, "build", &sha('e'), "completed success")]);
    let failure = unknown(ask_a(&gate).await, "invalid_output", "none of the last 3 commits before aaaaaaaa passed");
    assert!(failure.message.contains("raise `walkBack`"), "{}", failure.message);
    assert_eq!(lists(&forge), [list('a', 4), list('b', 100)]);

    // The whole history, in which no commit passed.
    forge.change(|state| state.commits = merges("abcd", 120));
    let verdict = is(ask_a(&gate).await, CiState::Pending);
    assert!(verdict.evidence[1].answer.contains("none of all 3 passed"));
    assert_eq!(lists(&forge), [list('a', 4), list('b', 100), list('c', 100), list('d', 100)]);

    // Five lists without an end of the history: unknown, whatever follows.
    let gate = gate_of(&forge, 9);
    forge.change(|state| {
        state.commits = merges("abcdef0123", 120);
        state.runs = Vec::new();
    });
    for beyond in [None, Some('0')] {
        forge.change(|state| {
            state.runs.extend(beyond.map(|digit| run(6, "build", &sha(digit), "completed success")));
        });
        let failure =
            unknown(ask_a(&gate).await, "invalid_output", "none of the last 5 commits before aaaaaaaa passed");
        assert!(failure.message.contains("merged-in commits fill"), "{}", failure.message);
        let read = [list('a', 10), list('b', 100), list('c', 100), list('d', 100), list('e', 100)];
        assert_eq!(lists(&forge), read);
    }
    // Also unknown if a later list fails or is for another commit.
    forge.answer_first_with(|request| request.target.contains("per_page=100").then(|| error(request, 503, "oops")));
    forge.change(|state| state.runs = Vec::new());
    unknown(ask_a(&gate).await, "unavailable", "503");
    forge.answer_first_with(|request| {
        let is_later = request.target.contains(&format!("sha={}&per_page=100", sha('b')));
        is_later.then(|| json_answer(request, 200, "", &json!([])))
    });
    unknown(ask_a(&gate).await, "invalid_output", "does not list bbbbbbbb itself");
}

//! A forge that reports a low remaining rate limit is asked less often.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use backend::digests::gate::CiState;
use domain::clock::Clock as _;
use serde_json::{Value, json};

use super::{GateContext, HEAD, ask, ask_with, fake_github::run, is};
use crate::support::upstream::Upstream;

/// A CI that says the same to everybody, and of 100 requests leaves so many, for an hour.
struct Forge {
    upstream: Upstream,
    left: Arc<AtomicU64>,
    word: Arc<AtomicU64>,
    seen: AtomicU64,
}

/// The words of each system for pending, failed and passed.
const WORDS: [[&str; 3]; 3] = [
    ["in_progress", "completed failure", "completed success"],
    ["running", "failed", "success"],
    ["pending", "failed", "passed"],
];

impl Forge {
    async fn start(context: &GateContext) -> Self {
        let (left, word) = (Arc::new(AtomicU64::new(50)), Arc::new(AtomicU64::new(0)));
        let (shown, said, clock) = (Arc::clone(&left), Arc::clone(&word), Arc::clone(&context.clock));
        let upstream = Upstream::start(move |request| {
            let word = |system: usize| WORDS[system][usize::try_from(said.load(Ordering::SeqCst)).unwrap()];
            let body = if request.target.contains("/actions/runs") {
                json!({"total_count": 1, "workflow_runs": [run(7, "build", HEAD, word(0))]})
            } else if request.target.contains("/pipelines") {
                json!([{"id": 7, "sha": HEAD, "ref": "main", "status": word(1), "source": "push"}])
            } else {
                json!(word(2))
            };
            let (left, reset) = (shown.load(Ordering::SeqCst), clock.now().0 / 1000 + 3600);
            let headers = format!(
                "Content-Type: application/json\r\nX-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: {left}\r\n\
                 X-RateLimit-Reset: {reset}"
            );
            request.answer(200, &headers, body.to_string())
        })
        .await;
        Self { upstream, left, word, seen: AtomicU64::new(0) }
    }

    /// The number of requests since the last call of this function.
    fn asked(&self) -> u64 {
        let now = self.upstream.requests().len() as u64;
        now - self.seen.swap(now, Ordering::SeqCst)
    }
}

#[tokio::test]
async fn verdicts_are_cached_longer_while_the_budget_is_low() {
    let context = GateContext::new();
    context.write("token", "c4n4ry");
    let forge = Forge::start(&context).await;
    let (api, token) = (format!("http://{}", forge.upstream.address), json!({"file": "token"}));
    let sha = "{{ params.head_sha }}";
    for config in [
        json!({"github": {"api": api, "repository": "org/repo", "workflows": ["build.yml"]}}),
        json!({"github": {"api": api, "repository": "org/repo", "workflows": ["build.yml"], "token": token}}),
        json!({"gitlab": {"api": api, "project": "group/app", "sha": sha}}),
        json!({"gitlab": {"api": api, "project": "group/app", "sha": sha, "token": token}}),
        json!({"http": {"url": format!("{api}/{sha}"), "headers": {"X-Token": token}, "verdict": "body"}}),
        json!({"all": [{"http": {"url": format!("{api}/{sha}"), "verdict": "body"}}]}),
    ] {
        let gate = context.gate(config.clone());
        let reuse = async || ask_with(&gate, json!({"head_sha": HEAD}), true).await;
        for (word, state, life, stretched) in
            [(0, CiState::Pending, 0, 60), (1, CiState::Failed, 60, 240), (2, CiState::Passed, 600, 2400)]
        {
            forge.word.store(word, Ordering::SeqCst);
            for (left, lasts) in [(10, life), (9, stretched)] {
                forge.left.store(left, Ordering::SeqCst);
                gate.forget();
                is(reuse().await, state);
                assert_eq!(forge.asked(), 1);
                if lasts > 0 {
                    context.clock.advance(Duration::from_millis(lasts * 1000 - 1));
                    is(reuse().await, state);
                    assert_eq!(forge.asked(), 0, "{config} {state:?} with {left} left");
                    context.clock.advance(Duration::from_millis(1));
                }
                is(reuse().await, state);
                assert_eq!(forge.asked(), 1, "{config} {state:?} with {left} left");
            }
        }
        is(ask(&gate).await, CiState::Passed);
        assert_eq!(forge.asked(), 1, "who may not reuse asks");
    }
}

#[tokio::test]
async fn a_renewed_budget_is_not_low() {
    let context = GateContext::new();
    let forge = Forge::start(&context).await;
    forge.word.store(2, Ordering::SeqCst);
    let gate = context.gate(json!({"github": {"api": format!("http://{}", forge.upstream.address),
        "repository": "org/repo", "workflows": ["build.yml"]}}));
    let reuse = async |parameters: Value| is(ask_with(&gate, parameters, true).await, CiState::Passed);
    forge.left.store(9, Ordering::SeqCst);
    reuse(json!({"head_sha": HEAD})).await;
    context.clock.advance(Duration::from_mins(39));
    reuse(json!({"head_sha": HEAD, "title": "x"})).await;
    assert_eq!(forge.asked(), 1);
    // Another gate learns that the budget is renewed.
    forge.left.store(100, Ordering::SeqCst);
    is(ask_with(&gate, json!({"head_sha": "a".repeat(40)}), true).await, CiState::Pending);
    assert_eq!(forge.asked(), 1);
    reuse(json!({"head_sha": HEAD})).await;
    assert_eq!(forge.asked(), 1);
}

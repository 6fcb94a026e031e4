//! Answers are renewed ahead of their turn, when an ApplicationSet asks its questions one after the other again.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::support::{
    TestApp,
    upstream::{Request, Step, Upstream, json_response},
};

/// How many answers are renewed ahead of the caller.
const AT_ONCE: usize = 8;
const MINUTE: Duration = Duration::from_mins(1);

/// A matrix whose elements a route asks an upstream about.
struct Matrix {
    app: TestApp,
    upstream: Upstream,
}

impl Matrix {
    async fn start(options: &str, play: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let upstream = Upstream::start(play).await;
        let routes = format!(
            "  - name: items\n    cache: {{ ttl: 60s, staleWhileRevalidate: 0s, staleIfError: 24h{options} }}\n    \
             backend: {{ http: {{ url: \"http://{}/{{{{ params.n }}}}\" }} }}\n",
            upstream.address
        );
        Self { app: TestApp::with_routes(&routes).await, upstream }
    }

    /// Asks for the element `n`. Returns where the answer came from.
    async fn ask(&self, n: usize) -> String {
        self.ask_as("test", n).await
    }

    async fn ask_as(&self, application_set: &str, n: usize) -> String {
        let body = json!({"applicationSetName": application_set, "input": {"parameters": {"n": n}}});
        let reply = self.app.call("/items/api/v1/getparams.execute", &body).await;
        assert_eq!(reply.sets(), format!(r#"[{{"n":"{n}"}}]"#));
        reply.header("cache-status").unwrap().to_owned()
    }

    /// Asks for all of `elements`, one after the other, as Argo CD does. Returns how many were answered from the cache.
    async fn reconcile(&self, elements: impl IntoIterator<Item = usize>) -> usize {
        let mut hits = 0;
        for n in elements {
            hits += usize::from(self.ask(n).await.starts_with("appset-gateway; hit; ttl="));
        }
        hits
    }

    /// How often each element was asked for at the source since `seen` requests.
    fn runs_since(&self, seen: usize) -> HashMap<usize, usize> {
        let mut runs = HashMap::new();
        for request in &self.upstream.requests()[seen..] {
            *runs.entry(request.target[1..].parse().unwrap()).or_default() += 1;
        }
        runs
    }

    /// Waits until the source was asked `count` times, and a moment longer, to see that it is not asked more often.
    async fn asked(&self, count: usize) {
        let enough = async {
            while self.upstream.requests().len() < count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), enough).await.expect("the source is not asked so often");
        sleep(Duration::from_millis(100)).await;
        assert_eq!(self.upstream.requests().len(), count);
    }
}

/// What the source says about the element that `request` names.
fn element(request: &Request) -> Value {
    let n: usize = request.target[1..].parse().unwrap();
    json!([{ "n": n }])
}

fn good(request: &Request) -> Vec<Step> {
    vec![Step::Send(json_response(element(request).to_string()))]
}

#[tokio::test]
async fn each_reconcile_asks_the_source_once_for_each_element() {
    let matrix = Matrix::start("", good).await;
    assert_eq!(matrix.reconcile(0..40).await, 0);
    for reconcile in 1..4 {
        matrix.app.clock.advance(30 * MINUTE);
        let seen = matrix.upstream.requests().len();
        // The first one is waited for, and the others come while it is.
        matrix.ask(0).await;
        matrix.asked(seen + 1 + AT_ONCE).await;
        assert_eq!(matrix.reconcile(1..=AT_ONCE).await, AT_ONCE, "reconcile {reconcile}");
        matrix.reconcile(AT_ONCE + 1..40).await;
        let runs = matrix.runs_since(seen);
        assert!((0..40).all(|n| runs.get(&n) == Some(&1)), "reconcile {reconcile}: {runs:?}");
        // All are fresh now.
        assert_eq!(matrix.reconcile(0..40).await, 40);
        assert_eq!(matrix.upstream.requests().len(), seen + 40);
    }
}

#[tokio::test]
async fn a_caller_that_stops_leaves_few_runs_behind() {
    let matrix = Matrix::start("", good).await;
    matrix.reconcile(0..40).await;
    matrix.app.clock.advance(30 * MINUTE);
    matrix.ask(0).await;
    matrix.asked(41 + AT_ONCE).await;
    // They are fresh when the caller comes back within the minute, and the window moves on with it.
    assert_eq!(matrix.reconcile(1..=AT_ONCE).await, AT_ONCE);
    matrix.asked(41 + 2 * AT_ONCE).await;
}

#[tokio::test]
async fn questions_that_no_request_had_in_the_last_two_reconciles_are_left_alone() {
    let matrix = Matrix::start("", good).await;
    matrix.reconcile(0..8).await;
    // The pull requests 4 to 7 are closed.
    for (reconcile, expected) in [(1, 8), (2, 8), (3, 4), (4, 4)] {
        matrix.app.clock.advance(30 * MINUTE);
        let seen = matrix.upstream.requests().len();
        matrix.reconcile(0..4).await;
        matrix.asked(seen + expected).await;
        assert_eq!(matrix.runs_since(seen).len(), expected, "reconcile {reconcile}");
    }
}

#[tokio::test]
async fn a_new_element_disturbs_nothing() {
    let matrix = Matrix::start("", good).await;
    matrix.reconcile(1..5).await;
    matrix.app.clock.advance(30 * MINUTE);
    let seen = matrix.upstream.requests().len();
    matrix.reconcile(0..7).await;
    let runs = matrix.runs_since(seen);
    assert!((0..7).all(|n| runs.get(&n) == Some(&1)), "{runs:?}");
}

#[tokio::test]
async fn another_applicationset_is_not_renewed() {
    let matrix = Matrix::start("", good).await;
    for n in 0..4 {
        matrix.ask_as("one", n).await;
        matrix.ask_as("two", 10 + n).await;
    }
    matrix.app.clock.advance(30 * MINUTE);
    matrix.ask_as("one", 0).await;
    matrix.asked(8 + 4).await;
    assert!(matrix.runs_since(8).keys().all(|n| *n < 4));
}

#[tokio::test]
async fn a_route_can_do_without() {
    for options in [", prefetch: false", ""] {
        let matrix = Matrix::start(options, good).await;
        matrix.reconcile(0..4).await;
        matrix.app.clock.advance(30 * MINUTE);
        matrix.ask(0).await;
        matrix.asked(if options.is_empty() { 8 } else { 5 }).await;
    }
}

#[tokio::test]
async fn a_source_that_fails_is_queried_once_and_the_last_good_answers_are_served() {
    let is_down = Arc::new(AtomicBool::new(false));
    let down = Arc::clone(&is_down);
    let play = move |request: &Request| {
        if down.load(Ordering::Relaxed) { request.answer(404, "", "no such thing") } else { good(request) }
    };
    let matrix = Matrix::start("", play).await;
    matrix.reconcile(0..4).await;
    is_down.store(true, Ordering::Relaxed);
    matrix.app.clock.advance(30 * MINUTE);
    matrix.ask(0).await;
    matrix.asked(8).await;
    for n in 1..4 {
        assert!(matrix.ask(n).await.contains("detail="), "the last good answer stands in");
    }
    assert_eq!(matrix.upstream.requests().len(), 8, "a question that failed just now rests");
    is_down.store(false, Ordering::Relaxed);
    matrix.app.clock.advance(30 * MINUTE);
    let seen = matrix.upstream.requests().len();
    matrix.reconcile(0..4).await;
    assert_eq!(matrix.runs_since(seen).len(), 4);
}

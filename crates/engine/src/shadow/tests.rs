use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::*;
use crate::shape::{Nulls, ShapeConfig};
use domain::{
    clock::SystemClock,
    error::BackendError,
    generator::{Outcome, Parameters},
    problem::{Path, Problems},
};
use lang::{evaluator::Evaluator, scope::NameScope};
use source::Nature;
use telemetry::metrics::Metrics;

/// A candidate that panics or waits for ever.
struct Bad {
    panics: bool,
    was_called: AtomicBool,
    nature: Nature,
}

#[async_trait]
impl Backend for Bad {
    async fn fetch(&self, _: &Query) -> Result<Outcome, BackendError> {
        self.was_called.store(true, Ordering::Relaxed);
        assert!(!self.panics, "as meant by this test");
        std::future::pending().await
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }
}

fn shadow(panics: bool) -> (Arc<Shadow>, Arc<Bad>) {
    let bad = Arc::new(Bad { panics, was_called: AtomicBool::new(false), nature: Nature::default() });
    let shape = ShapeConfig { output: None, echo: &[], stringify: true, nulls: Nulls::Refuse };
    let shadow = Shadow::new(ShadowParts {
        route: "r".into(),
        kind: "http",
        backend: bad.clone(),
        primary: bad.clone(),
        shape: Shape::build(shape, &NameScope::input(), &Evaluator::none(), &Path::root(), &mut Problems::default()),
        sample: Percent(100),
        identity: Identity::Auto,
        ignore: BTreeSet::new(),
        timeout: HumanDuration::from_secs(1),
        clock: Arc::new(SystemClock),
        metrics: Metrics::new().unwrap().shadows.of_route("r"),
    });
    (Arc::new(shadow), bad)
}

fn query(name: &str) -> Query {
    Query::new(name.into(), Arc::new(Parameters::new()), Instant::now())
}

/// The report, once a comparison has ended.
async fn ended(shadow: &Shadow) -> Value {
    loop {
        let report = json!(shadow.report());
        if report["counts"].as_object().unwrap().values().any(|count| *count != json!(0)) {
            return report;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_candidate_that_panics_or_hangs_is_an_error_and_gives_its_permit_back() {
    for (panics, why) in [(true, "the gateway failed"), (false, "no answer within the shadow's `timeout` of 1s")] {
        let (shadow, bad) = shadow(panics);
        shadow.follow(query("a"), Key::of_bytes([1; 32]), Own::Answer(Encoded::encode(&[]).unwrap()));
        assert_eq!(shadow.permits.available_permits(), AT_ONCE - 1);
        let report = ended(&shadow).await;
        assert_eq!(report["counts"]["candidateError"], 1);
        assert!(report["differences"][0]["error"].as_str().unwrap().starts_with(why), "{report}");
        assert!(bad.was_called.load(Ordering::Relaxed));
        while shadow.permits.available_permits() < AT_ONCE {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_candidate_that_needs_the_applicationset_is_not_called_without_one() {
    let (shadow, bad) = shadow(true);
    shadow.follow(query(""), Key::of_bytes([1; 32]), Own::Answer(Encoded::encode(&[]).unwrap()));
    assert_eq!(ended(&shadow).await["counts"]["skipped"], 1);
    assert!(!bad.was_called.load(Ordering::Relaxed));
}

#[test]
fn a_share_of_the_runs_is_sampled_and_the_first_one_is() {
    for share in 0..=100 {
        let sampled = |from: u64| (from..from + 100).filter(|n| is_sampled(Percent(share), *n)).count();
        assert_eq!((sampled(0), sampled(100)), (usize::from(share), usize::from(share)), "{share}%");
        assert_eq!(is_sampled(Percent(share), 0), share > 0);
    }
    let tenth: Vec<u64> = (0..25).filter(|n| is_sampled(Percent(10), *n)).collect();
    assert_eq!(tenth, [0, 10, 20]);
}

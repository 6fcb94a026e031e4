//! A route whose answer has elements, in random histories in virtual time: its list and its elements change and fail, processes restart and lose
//! records, replicas take turns, operators decide. Judged from outside, by what the sources said and by what Argo CD made of the answers:
//!
//! - A set leaves the answer only if, since it last was in a new answer, its element was read as absent, or was not in a whole list.
//! - An answer that was just made has of each element what was last known of it.
//! - When the sources are well again, the answer soon has exactly what there is.

mod single;
mod source;

use std::{cell::RefCell, collections::BTreeMap, sync::Arc, time::Duration};

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{Config, RngSeed, TestRunner},
};
use serde_json::json;
use tokio::time::sleep;

use self::source::{COUNT, ElementBackend, ElementSource, Fault, Says};
use crate::{
    answer::{AnswerSource, Engine},
    cache::{Disk, KeyStart},
    guard::Decision,
    model::{
        rules::Wall,
        stage::{Setup, Stage, route_of},
    },
    operators::Operator,
    route::ResolvedQuery,
};
use domain::generator::{Part, Question, Selector};

use telemetry::metrics::Metrics;

/// How many cases a test tries, and the seed of these.
const CASES: u32 = 400;
const SEED: u64 = 48;
/// The route's `ttl`, and the times between calls, in seconds.
const TTL: u64 = 60;

/// What happens.
#[derive(Debug, Clone)]
enum Op {
    /// Argo CD calls.
    Call,
    /// From now on this element's source says this.
    Element(u8, Says),
    /// From now on the list has these elements, or fails.
    List(Result<u8, Fault>),
    /// An element leaves the list, and comes back with a source that fails.
    Back(u8, Fault),
    /// All sources of elements fail, or are well again.
    All(Option<Fault>),
    /// Time passes, in seconds.
    Pass(u64),
    /// The clock is put back or forward, in seconds.
    Jump(i64),
    /// The process ends, and another one starts.
    Restart,
    /// Memory is full: the answers about an element, about the list or about all are evicted.
    Evict(Option<u8>),
    /// A bad disk loses the records of these.
    Lose(Option<u8>),
    /// An event concerns an element, the list, or the whole answer.
    Event(Option<u8>),
    /// An operator decides on what is held.
    Decide(Decision),
    /// An operator invalidates all answers.
    Invalidate,
}

fn op() -> impl Strategy<Value = Op> {
    let fault = || select(vec![Fault::Unavailable, Fault::Denied, Fault::Throttled, Fault::Hangs, Fault::Crashes]);
    let says = prop_oneof![
        4 => (0..4_u8).prop_map(Says::Present),
        2 => Just(Says::Absent),
        3 => fault().prop_map(Says::Unknown),
    ];
    let element = || 0..COUNT;
    let some = || prop::option::weighted(0.7, element());
    // Mostly with one element less than all, or one more than before.
    let all_but = |bits: &[u8]| Ok(bits.iter().fold(u8::MAX, |list, bit| list & !(1 << (bit % COUNT))));
    let list = prop_oneof![
        4 => vec(element(), 0..2).prop_map(move |bits| all_but(&bits)),
        1 => (0..=u8::MAX).prop_map(Ok), 1 => fault().prop_map(Err),
    ];
    prop_oneof![
        12 => Just(Op::Call),
        12 => (element(), says).prop_map(|(element, says)| Op::Element(element, says)),
        4 => list.prop_map(Op::List),
        1 => (element(), fault()).prop_map(|(element, fault)| Op::Back(element, fault)),
        1 => prop::option::weighted(0.4, fault()).prop_map(Op::All),
        8 => select(vec![1, 5, 30, TTL + 10, 400, 3600]).prop_map(Op::Pass),
        1 => select(vec![20 * 3600, 30 * 3600]).prop_map(Op::Pass),
        1 => select(vec![-3600, -30, 30, 3600]).prop_map(Op::Jump),
        1 => Just(Op::Restart),
        2 => some().prop_map(Op::Evict),
        1 => some().prop_map(Op::Lose),
        3 => some().prop_map(Op::Event),
        2 => select(vec![Decision::Released, Decision::Rejected]).prop_map(Op::Decide),
        1 => Just(Op::Invalidate),
    ]
}

/// How often each state was reached.
type Seen = RefCell<BTreeMap<&'static str, u32>>;

/// States that a test must have reached.
const WORTH_TRYING: [&str; 8] =
    ["whole", "as last known", "left out", "a set left", "held", "no answer", "stale", "settled"];

/// One history.
struct History<'a> {
    stage: &'a Stage,
    source: Arc<ElementSource>,
    seen: &'a Seen,
    wall: Arc<Wall>,
    disk: Option<Disk>,
    engines: Vec<Arc<Engine>>,
    calls: usize,
    /// The Applications: each element's version, from the last answer that Argo CD got. At the start there are some that no gateway made.
    applications: BTreeMap<u8, u8>,
    /// How much had been read when each element was last in a new answer.
    confirmed: BTreeMap<u8, usize>,
    /// Why the last call without an answer had none.
    last_error: Option<String>,
}

type Checked = Result<(), String>;

/// The operator in the log.
const fn operator() -> Operator {
    Operator { caller: String::new(), request_id: String::new(), reason: None }
}

fn question(part: Option<Part>) -> Question {
    Question { route: "r".into(), application_set: None, parameters: Arc::default(), part }
}

impl History<'_> {
    async fn perform(&mut self, op: &Op) -> Checked {
        let engine = Arc::clone(&self.engines[self.calls % self.engines.len()]);
        let routes = &self.stage.routes;
        match op {
            Op::Call => self.call().await?,
            Op::Element(element, says) => self.source.say(*element, *says),
            Op::List(list) => self.source.list(*list),
            Op::Back(element, fault) => {
                self.source.list(Ok(!(1 << element)));
                self.pass(TTL + 10).await;
                self.call().await?;
                // The run behind a stale answer.
                self.pass(5).await;
                self.source.list(Ok(u8::MAX));
                self.source.say(*element, Says::Unknown(*fault));
                self.pass(400).await;
                self.call().await?;
            }
            Op::All(fault) => self.source.all(*fault),
            Op::Pass(seconds) => self.pass(*seconds).await,
            Op::Jump(seconds) => self.wall.jump(*seconds),
            Op::Restart => self.restart().await,
            Op::Evict(of) if self.engines.len() == 1 => {
                self.keys(*of).iter().for_each(|key| engine.answers().evict(key));
            }
            Op::Lose(of) if self.engines.len() == 1 => {
                for key in self.keys(*of) {
                    engine.answers().lose(&key);
                    engine.known.baselines.lose(&key);
                }
            }
            Op::Evict(_) | Op::Lose(_) => {}
            Op::Event(of) => {
                let part = of.map_or(Part::List, |element| Part::Element(source::element(element)));
                let _ = engine.recheck(routes, &question(Some(part))).await;
            }
            Op::Decide(decision) => {
                for (key, _) in engine.held() {
                    let _ = engine.decide(routes, &KeyStart::from(key), None, *decision, &operator()).await;
                }
            }
            Op::Invalidate => drop(engine.invalidate(routes, &Selector::default(), &operator())),
        }
        Ok(())
    }

    /// The keys of the records about an element, or about the whole answer.
    fn keys(&self, element: Option<u8>) -> Vec<crate::cache::Key> {
        let route = self.stage.routes.by_name("r").unwrap();
        let part = element.map(|element| Part::Element(source::element(element)));
        let resolved = ResolvedQuery::again(route.that_answers(part.as_ref()).unwrap(), &question(part));
        vec![resolved.key, resolved.lineage()]
    }

    fn see(&self, what: &'static str) {
        *self.seen.borrow_mut().entry(what).or_default() += 1;
    }

    async fn pass(&self, seconds: u64) {
        // What the gateway does by itself, it does once a second. Nothing happens between the calls of a long time.
        let steps = seconds.min(8);
        for _ in 0..steps {
            sleep(Duration::from_secs(seconds / steps)).await;
            self.engines.iter().for_each(|engine| engine.confirm_due(&self.stage.routes));
        }
        sleep(Duration::from_millis(10)).await;
    }

    async fn restart(&mut self) {
        if self.engines.len() > 1 {
            return;
        }
        // Its runs are over: those of a process that has ended would go on here.
        sleep(Duration::from_mins(2)).await;
        if let Some(disk) = &self.disk {
            disk.flush(Duration::from_secs(10));
        }
        self.engines = vec![self.stage.start(&self.wall, self.disk.as_ref())];
    }

    /// Argo CD calls, and makes Applications of the answer.
    async fn call(&mut self) -> Checked {
        self.calls += 1;
        for engine in &self.engines {
            let _ = engine.sync(&self.stage.routes).await;
        }
        let engine = &self.engines[self.calls % self.engines.len()];
        let route = self.stage.routes.by_name("r").unwrap();
        let answer = engine.answer(&Arc::new(ResolvedQuery::again(Arc::clone(route), &question(None)))).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(unknown) => {
                let is_held = !engine.held().is_empty();
                self.see(if is_held { "held" } else { "no answer" });
                self.last_error = Some(unknown.failure.to_string());
                return Ok(());
            }
        };
        let sets = answer.entry.encoded.decode();
        let sets: BTreeMap<u8, u8> = sets.iter().map(|set| source::of_set(&set.0)).collect();
        let readings = self.source.readings();
        for (element, version) in &self.applications {
            if sets.contains_key(element) {
                continue;
            }
            self.see("a set left");
            if self.source.gone_at(*element) <= self.confirmed.get(element).copied().unwrap_or_default() {
                let last = readings.get(element);
                return Err(format!("element {element} ({version}) left the answer, and was last {last:?}: {sets:?}"));
            }
        }
        if let AnswerSource::Miss { .. } = answer.source {
            self.check_new(&answer.entry, &sets)?;
            let now = self.source.now();
            self.confirmed.extend(sets.keys().map(|element| (*element, now)));
        } else {
            self.see("stale");
        }
        self.applications = sets;
        Ok(())
    }

    /// An answer that was just made has of each element what was last known of it.
    fn check_new(&self, entry: &crate::cache::Entry, sets: &BTreeMap<u8, u8>) -> Checked {
        let counts = entry.elements.as_ref().ok_or("an answer without elements")?.counts;
        self.see(if counts.unknown > 0 {
            "left out"
        } else if counts.last_known > 0 {
            "as last known"
        } else {
            "whole"
        });
        if counts.all() != self.source.listed() {
            return Err(format!("{counts:?} of {} elements", self.source.listed()));
        }
        for (element, version) in sets {
            let last = self.source.version(*element);
            if last != Some(*version) {
                return Err(format!("element {element} is {version} in a new answer, and was last {last:?}"));
            }
        }
        Ok(())
    }

    /// When all is well, the answer soon has exactly what there is.
    async fn settle(&mut self) -> Checked {
        self.source.heal();
        // What an operator rejected stays held.
        self.perform(&Op::Decide(Decision::Released)).await?;
        for _ in 0..15 {
            self.pass(400).await;
            self.call().await?;
        }
        let truth = self.source.truth();
        if self.applications != truth {
            let (is, error) = (&self.applications, &self.last_error);
            return Err(format!("it settled at {is:?} instead of {truth:?}; the last error was {error:?}"));
        }
        self.see("settled");
        Ok(())
    }
}

fn stage(source: &Arc<ElementSource>) -> Stage {
    let metrics = Metrics::new().unwrap();
    let raw = json!({"cache": {"ttl": format!("{TTL}s")}, "guard": {"identity": ["name"]}});
    let backend = Arc::new(ElementBackend::of(source));
    Stage::of(route_of("r", raw, backend, &metrics), metrics)
}

/// Lets `happen` happen to a route with elements.
fn with_history(setup: Setup, seen: &Seen, happen: impl AsyncFnOnce(&mut History<'_>) -> Checked) -> Checked {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (wall, source) = (Arc::new(Wall::default()), Arc::new(ElementSource::default()));
        let stage = stage(&source);
        let disk = (setup == Setup::Disk).then(|| Disk::in_memory(stage.metrics.disk.clone()));
        let engines = match setup {
            Setup::Replicas(count) => stage.start_all(count, &wall).await,
            Setup::Memory | Setup::Disk => vec![stage.start(&wall, disk.as_ref())],
        };
        let applications = source.truth();
        let mut history = History {
            stage: &stage,
            source,
            seen,
            wall,
            disk,
            engines,
            calls: 0,
            applications,
            confirmed: BTreeMap::new(),
            last_error: None,
        };
        happen(&mut history).await
    })
}

fn play(setup: Setup, ops: &[Op], seen: &Seen) -> Checked {
    with_history(setup, seen, async |history| {
        for (step, op) in ops.iter().enumerate() {
            history.perform(op).await.map_err(|why| format!("step {step}, {op:?}: {why}"))?;
        }
        history.settle().await.map_err(|why| format!("in the end: {why}"))
    })
}

/// Tries many histories.
fn agree(setup: Setup) {
    let config = Config { failure_persistence: None, ..Config::default() };
    let is_random = std::env::var_os("PROPTEST_CASES").is_some();
    let (cases, rng_seed) = if is_random { (config.cases, config.rng_seed) } else { (CASES, RngSeed::Fixed(SEED)) };
    let seen = Seen::default();
    let mut runner = TestRunner::new(Config { cases, rng_seed, ..config });
    let result = runner.run(&vec(op(), 1..40), |ops| play(setup, &ops, &seen).map_err(TestCaseError::fail));
    if let Err(error) = result {
        panic!("{error}");
    }
    let seen = seen.into_inner();
    println!("{cases} cases: {seen:?}");
    let missing: Vec<_> = WORTH_TRYING.iter().filter(|what| cases >= CASES && !seen.contains_key(**what)).collect();
    assert!(missing.is_empty(), "never tried: {missing:?}");
}

#[test]
fn no_element_is_left_out_that_may_be_there() {
    agree(Setup::Memory);
}

#[test]
fn no_element_is_left_out_that_may_be_there_over_restarts() {
    agree(Setup::Disk);
}

#[test]
fn no_element_is_left_out_that_may_be_there_by_replicas() {
    agree(Setup::Replicas(2));
}

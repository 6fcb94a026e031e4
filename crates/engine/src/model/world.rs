//! One engine with its clock and its callers. [`Op`]s change it, and after each one it is compared with the oracle.

mod operators;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::{
    task::{JoinHandle, yield_now},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    answer::{Answer, Engine, Unknown},
    cache::Disk,
    model::{
        Op, Seen, Which,
        expect::{Got, StateBefore},
        invariants::{InvariantWatch, whole},
        oracle::{Finished, Oracle},
        rules::{ModelQuery, Slot, Wall},
        source::{Ran, RunEnd, Says},
        stage::{Peek, Setup, Stage, question},
    },
    operators::{Decided, NotDecided},
    route::ResolvedQuery,
};
use domain::clock::Clock;

/// When a run ends without an answer, in milliseconds: a little before the deadline of the call that began it.
const TIMES_OUT: u64 = 24_900;

/// A waiting caller.
struct Caller {
    before: StateBefore,
    run: Option<usize>,
    task: JoinHandle<Result<Answer, Unknown>>,
}

/// An operator who waits for the effect of a decision.
struct Operator {
    lineage: Slot,
    was_held: bool,
    /// The run that the decision led to, if any.
    run: Option<usize>,
    task: JoinHandle<Result<Decided, NotDecided>>,
}

/// The engine and everything around it.
pub(super) struct World<'a> {
    stage: &'a Stage,
    routes: [usize; 2],
    seen: &'a Seen,
    wall: Arc<Wall>,
    disk: Option<Disk>,
    /// The engine that the operation meets.
    engine: Arc<Engine>,
    /// All engines, if replicas share a store.
    replicas: Vec<Arc<Engine>>,
    next: usize,
    oracle: Oracle,
    watch: InvariantWatch,
    /// How many runs have begun.
    runs: usize,
    finished: BTreeMap<usize, Finished>,
    callers: Vec<Caller>,
    operators: Vec<Operator>,
}

type Checked = Result<(), String>;

/// The operator in the log.
const fn operator() -> crate::operators::Operator {
    crate::operators::Operator { caller: String::new(), request_id: String::new(), reason: None }
}

impl<'a> World<'a> {
    /// Plays `ops`, on two routes.
    pub(super) fn play(stage: &'a Stage, setup: Setup, routes: &[usize; 2], ops: &[Op], seen: &'a Seen) -> Checked {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let wall = Arc::new(Wall::default());
            stage.source.reset(&wall);
            let replicas =
                if let Setup::Replicas(count) = setup { stage.start_all(count, &wall).await } else { Vec::new() };
            let disk = (setup == Setup::Disk).then(|| Disk::in_memory(stage.metrics.disk.clone()));
            let mut world = Self {
                stage,
                routes: *routes,
                seen,
                engine: replicas.first().cloned().unwrap_or_else(|| stage.start(&wall, disk.as_ref())),
                replicas,
                next: 0,
                wall,
                disk,
                oracle: Oracle::default(),
                watch: InvariantWatch::default(),
                runs: 0,
                finished: BTreeMap::new(),
                callers: Vec::new(),
                operators: Vec::new(),
            };
            for (step, op) in ops.iter().chain([&Op::List]).enumerate() {
                world.perform(op).await.map_err(|why| format!("step {step}, {op:?}: {why}"))?;
            }
            Ok(())
        })
    }

    /// What happens next meets the next replica. All of them are in contact with the store.
    async fn choose(&mut self) {
        for engine in &self.replicas {
            let _ = engine.sync(&self.stage.routes).await;
        }
        self.next += 1;
        if let Some(engine) = self.replicas.get(self.next % self.replicas.len().max(1)) {
            self.engine = Arc::clone(engine);
        }
    }

    /// Whether the oracle has rules for `op` with replicas. It has one memory, so what happens to one replica alone, or takes
    /// time, is tried elsewhere.
    fn is_known(&self, op: &Op) -> bool {
        let is_of_one = matches!(op, Op::Restart | Op::Evict(_) | Op::Lose(_) | Op::Finish(_));
        self.replicas.is_empty() || !(is_of_one || matches!(op, Op::Ask { is_slow: true, .. }))
    }

    async fn perform(&mut self, op: &Op) -> Checked {
        if !self.is_known(op) {
            return Ok(());
        }
        self.choose().await;
        match op {
            Op::Ask { which, callers, leaving, is_slow } => {
                self.stage.source.slow(*is_slow);
                let done = self.ask(self.query(*which), *callers, *leaving).await;
                self.stage.source.slow(false);
                done
            }
            Op::Reconcile { which, times, every } => {
                for _ in 0..*times {
                    self.ask(self.query(*which), 1, 0).await?;
                    self.pass(Duration::from_secs(*every)).await?;
                }
                Ok(())
            }
            Op::Say { says, version } => {
                self.stage.source.say(says.clone(), *version);
                Ok(())
            }
            Op::Finish(nth) => {
                let waiting = self.stage.source.waiting();
                if let Some(run) = waiting.get(nth % waiting.len().max(1)) {
                    self.stage.source.open(*run);
                }
                self.compare(&[], true).await
            }
            Op::Pass(seconds) => self.pass(Duration::from_secs(*seconds)).await,
            Op::Jump(seconds) => {
                self.wall.jump(*seconds);
                Ok(())
            }
            Op::Invalidate { route, branch, commit } => {
                self.invalidate(route.map(|route| self.routes[route]), *branch, *commit)
            }
            Op::Restart => {
                self.restart();
                Ok(())
            }
            Op::Evict(which) => {
                self.see("evicted");
                let slots = self.oracle.evict(self.query(*which), self.disk.is_some());
                self.stage.evict(&self.engine, slots);
                Ok(())
            }
            Op::Lose(which) => {
                self.see("lost");
                self.stage.lose(&self.engine, self.query(*which));
                self.oracle.lose(self.query(*which));
                Ok(())
            }
            Op::Decide { which, decision } => self.decide(self.query(*which).lineage(), *decision).await,
            Op::List => self.list(),
        }
    }

    fn query(&self, which: Which) -> ModelQuery {
        ModelQuery { route: self.routes[which.route], branch: which.branch, commit: which.commit }
    }

    fn see(&self, what: &'static str) {
        *self.seen.borrow_mut().entry(what).or_default() += 1;
    }

    async fn ask(&mut self, query: ModelQuery, callers: usize, leaving: usize) -> Checked {
        self.choose().await;
        let before = StateBefore::new(&self.oracle, query, self.wall.now());
        if before.is_about_held_answer() {
            self.oracle.note_queried(query, before.at);
            self.watch.queried(query.lineage(), before.at);
        }
        let (run, is_new) = self.run_for(query, before.wants_run());
        let first = self.callers.len();
        for _ in 0..callers {
            let (engine, routes, question) =
                (Arc::clone(&self.engine), Arc::clone(&self.stage.routes), question(query));
            let task = tokio::spawn(async move {
                let route = routes.by_name(&question.route).unwrap();
                engine.answer(&Arc::new(ResolvedQuery::again(Arc::clone(route), &question))).await
            });
            self.callers.push(Caller { before: before.clone(), run, task });
        }
        yield_now().await;
        for caller in self.callers.drain(first..first + leaving.min(callers)) {
            caller.task.abort();
        }
        self.compare(&Vec::from_iter(is_new.then_some(query)), true).await
    }

    /// The run that a question joins or begins, if it wants one, and whether it begins.
    fn run_for(&self, query: ModelQuery, wants_run: bool) -> (Option<usize>, bool) {
        if !wants_run {
            return (None, false);
        }
        if let Some(run) = self.oracle.flight(query) {
            self.see("joined");
            return (Some(run), false);
        }
        (Some(self.stage.source.runs()), true)
    }

    /// Lets everything happen that needs no time, and compares. `started` are the questions for which runs must have started, for a
    /// caller or by the gateway itself.
    async fn compare(&mut self, started: &[ModelQuery], is_for_caller: bool) -> Checked {
        sleep(Duration::from_millis(1)).await;
        if let Some(overlap) = self.stage.source.overlap() {
            return Err(format!("I5: {overlap}"));
        }
        let first = self.runs;
        self.runs = self.stage.source.runs();
        let runs: Vec<ModelQuery> = (first..self.runs).map(|run| self.stage.source.run(run).query).collect();
        let sorted = |query: &[ModelQuery]| query.iter().copied().collect::<BTreeSet<_>>();
        if runs.len() != started.len() || sorted(&runs) != sorted(started) {
            return Err(format!("the source was called for {runs:?} instead of {started:?}"));
        }
        for (run, query) in (first..).zip(runs) {
            self.oracle.begin(run, query, is_for_caller);
        }
        let flights: Vec<usize> = self.oracle.flights().collect();
        for run in flights {
            let ran = self.stage.source.run(run);
            if let Some((_, ended)) = ran.ended {
                self.finish(run, &ran, ended)?;
            }
        }
        self.answer_callers().await?;
        self.answer_operators().await
    }

    /// `run` ended.
    fn finish(&mut self, run: usize, ran: &Ran, ended: RunEnd) -> Checked {
        if ended == RunEnd::Dropped {
            self.see("timed out");
            let ran_for = ran.began.elapsed();
            if ran_for < Duration::from_millis(TIMES_OUT) {
                return Err(format!("I5: {ran:?} timed out after {ran_for:?}"));
            }
        }
        let is_current = self.oracle.flight(ran.query) == Some(run);
        if ended == RunEnd::Said && !is_current {
            self.see("finished after it was cut off");
        }
        let peek = Peek { engine: &self.engine, stage: self.stage, wall: &self.wall };
        let finished = self.oracle.finish(run, ran.clone(), &peek)?;
        if let Finished::Bad("held") = finished {
            self.see("held");
        }
        if self.oracle.is_contradicted(ran.query.lineage()) {
            self.see("contradicted");
        }
        self.finished.insert(run, finished);
        self.watch.ended(ran, is_current);
        let lineage = ran.query.lineage();
        let entry = peek.entry(lineage);
        let is_at = entry.as_ref().map(|entry| (ModelQuery::of(&entry.question.open().parameters), entry.stored_at));
        let must_be_at = self.oracle.known.get(&lineage).map(|known| (known.ran.query, known.at));
        if is_at != must_be_at {
            return Err(format!("{lineage:?} is followed from {is_at:?} instead of {must_be_at:?}"));
        }
        if let Some(entry) = entry
            && let Some(why) = self.watch.accepted(lineage, &entry, &self.stage.source, is_current)?
        {
            self.see(why);
        }
        Ok(())
    }

    /// Checks that each caller with an answer has the right one, and that all others wait.
    async fn answer_callers(&mut self) -> Checked {
        let mut waiting = Vec::new();
        for mut caller in std::mem::take(&mut self.callers) {
            let query = caller.before.query;
            let expected = caller.before.expected(&self.oracle, caller.run, &self.finished);
            let result = if caller.task.is_finished() { (&mut caller.task).await.ok() } else { None };
            let got = result.as_ref().map(Got::of);
            if got != expected {
                return Err(format!("a caller got {got:?} instead of {expected:?}: {:?}", caller.before));
            }
            match result {
                None => waiting.push(caller),
                Some(Ok(answer)) => {
                    let ran = whole(query, &answer.entry, &self.stage.source)?;
                    if ran.says == Says::Nothing {
                        self.see("an empty list");
                    }
                }
                Some(Err(_)) => {}
            }
            self.note(query, got);
        }
        self.callers = waiting;
        Ok(())
    }

    fn note(&self, query: ModelQuery, got: Option<Got>) {
        let (what, why) = match got {
            None | Some(Got::New(..)) => return,
            Some(Got::Hit(..)) => return self.see("hit"),
            Some(Got::Stale(..)) => return self.see("stale"),
            Some(Got::Instead(other, _, why)) if other != query => ("instead of an error, from the commit before", why),
            Some(Got::Instead(_, _, why)) => ("instead of an error", why),
            Some(Got::Nothing(why)) => ("nothing", why),
        };
        self.see(what);
        if why.1 {
            self.see("in backoff");
        }
    }

    /// Lets time pass. Runs whose deadline passes end at their deadline.
    async fn pass(&mut self, time: Duration) -> Checked {
        let until = Instant::now() + time;
        loop {
            let times_out = |run| self.stage.source.run(run).began + Duration::from_millis(TIMES_OUT);
            let next = self.oracle.flights().map(times_out).min().unwrap_or(until).min(until);
            let now = self.wall.now();
            let due = self.oracle.confirmations(now).into_iter().map(|(due, _)| due.saturating_sub(now.0)).min();
            let next = due.map_or(next, |due| next.min(Instant::now() + Duration::from_millis(due)));
            sleep_until(next).await;
            self.compare(&[], true).await?;
            self.confirm().await?;
            if next == until {
                return Ok(());
            }
        }
    }

    /// The gateway starts its own runs for held answers that are due.
    async fn confirm(&mut self) -> Checked {
        let now = self.wall.now();
        self.oracle.forget(now);
        let due: Vec<ModelQuery> = self
            .oracle
            .confirmations(now)
            .into_iter()
            .filter(|(due, _)| *due <= now.0)
            .map(|(_, query)| query)
            .collect();
        self.choose().await;
        self.engine.confirm_due(&self.stage.routes);
        yield_now().await;
        if !due.is_empty() {
            self.see("started by the gateway itself");
        }
        self.compare(&due, false).await
    }

    fn restart(&mut self) {
        let tasks = self.callers.drain(..).map(|caller| caller.task.abort_handle());
        tasks
            .chain(self.operators.drain(..).map(|operator| operator.task.abort_handle()))
            .for_each(|task| task.abort());
        self.stage.source.lose(ModelQuery::all().collect());
        if let Some(disk) = &self.disk {
            disk.flush(Duration::from_secs(10));
        } else {
            self.watch.forgotten();
        }
        self.engine = self.stage.start(&self.wall, self.disk.as_ref());
        self.oracle.restart(self.disk.is_some());
    }
}

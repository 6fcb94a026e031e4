//! One engine, its clock and those who ask, moved by [`Op`]s and compared with the model after each.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    task::{JoinHandle, yield_now},
    time::{Instant, sleep, sleep_until},
};

use super::{
    Op, Seen, Which,
    expect::{Before, Got, Why},
    invariants::{Watch, whole},
    oracle::{Landed, Oracle, Worth},
    rules::{Asked, ROUTES, Slot, Wall},
    source::{Ended, Ran, Says},
    stage::{Peek, Stage, question},
};
use crate::{
    answer::{
        Answer, Engine, Unknown,
        upkeep::{self, Decided},
    },
    cache::Disk,
    clock::Clock,
    generator::{Parameters, Query, Selector},
    guard::Decision,
};

/// When a run is given up, in milliseconds: a little before the deadline of the call that began it.
const GIVEN_UP: u64 = 24_900;

/// One who waits for an answer.
struct Caller {
    before: Before,
    run: Option<usize>,
    task: JoinHandle<Result<Answer, Unknown>>,
}

/// An operator who waits for what a decision leads to.
struct Operator {
    lineage: Slot,
    was_held: bool,
    /// The run that the decision led to, if any.
    run: Option<usize>,
    task: JoinHandle<Option<Decided>>,
}

/// What happens on the stage.
pub struct World<'a> {
    stage: &'a Stage,
    routes: [usize; 2],
    seen: &'a Seen,
    wall: Arc<Wall>,
    disk: Option<Disk>,
    engine: Arc<Engine>,
    oracle: Oracle,
    watch: Watch,
    /// How many runs have begun.
    runs: usize,
    landed: BTreeMap<usize, Landed>,
    callers: Vec<Caller>,
    operators: Vec<Operator>,
}

type Checked = Result<(), String>;

/// Who does what operators do.
const fn operator() -> upkeep::Operator {
    upkeep::Operator { caller: String::new(), request_id: String::new() }
}

impl<'a> World<'a> {
    /// Plays `ops`, on two routes.
    pub fn play(stage: &'a Stage, has_disk: bool, routes: &[usize; 2], ops: &[Op], seen: &'a Seen) -> Checked {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let wall = Arc::new(Wall::default());
            stage.source.reset(&wall);
            let disk = has_disk.then(|| Disk::in_memory(stage.metrics.disk.clone()));
            let mut world = Self {
                stage,
                routes: *routes,
                seen,
                engine: stage.start(&wall, disk.as_ref()),
                wall,
                disk,
                oracle: Oracle::default(),
                watch: Watch::default(),
                runs: 0,
                landed: BTreeMap::new(),
                callers: Vec::new(),
                operators: Vec::new(),
            };
            for (step, op) in ops.iter().chain([&Op::List]).enumerate() {
                world.perform(op).await.map_err(|why| format!("step {step}, {op:?}: {why}"))?;
            }
            Ok(())
        })
    }

    async fn perform(&mut self, op: &Op) -> Checked {
        match op {
            Op::Ask { which, callers, leaving, is_slow } => {
                self.stage.source.slow(*is_slow);
                let done = self.ask(self.asked(*which), *callers, *leaving).await;
                self.stage.source.slow(false);
                done
            }
            Op::Reconcile { which, times, every } => {
                for _ in 0..*times {
                    self.ask(self.asked(*which), 1, 0).await?;
                    self.pass(Duration::from_secs(*every)).await?;
                }
                Ok(())
            }
            Op::Say { says, version } => {
                self.stage.source.say(says.clone(), *version);
                Ok(())
            }
            Op::Land(nth) => {
                let waiting = self.stage.source.waiting();
                if let Some(run) = waiting.get(nth % waiting.len().max(1)) {
                    self.stage.source.open(*run);
                }
                self.settle(None).await
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
            Op::Decide { which, decision } => self.decide(self.asked(*which).lineage(), *decision).await,
            Op::List => self.list(),
        }
    }

    fn asked(&self, which: Which) -> Asked {
        Asked { route: self.routes[which.route], branch: which.branch, commit: which.commit }
    }

    fn see(&self, what: &'static str) {
        *self.seen.borrow_mut().entry(what).or_default() += 1;
    }

    async fn ask(&mut self, asked: Asked, callers: usize, leaving: usize) -> Checked {
        let before = Before::new(&self.oracle, asked, self.wall.now());
        let (run, is_new) = self.run_for(asked, before.wants_run());
        let first = self.callers.len();
        for _ in 0..callers {
            let (engine, routes, question) =
                (Arc::clone(&self.engine), Arc::clone(&self.stage.routes), question(asked));
            let task = tokio::spawn(async move {
                let route = routes.by_name(&question.route).unwrap();
                let query: Query = route.query(&question);
                engine.answer(route, query).await
            });
            self.callers.push(Caller { before: before.clone(), run, task });
        }
        yield_now().await;
        for caller in self.callers.drain(first..first + leaving.min(callers)) {
            caller.task.abort();
        }
        self.settle(is_new.then_some(asked)).await
    }

    /// The run that a question joins or begins, if it wants one; and whether it begins.
    fn run_for(&self, asked: Asked, wants_run: bool) -> (Option<usize>, bool) {
        if !wants_run {
            return (None, false);
        }
        if let Some(run) = self.oracle.flight(asked) {
            self.see("joined");
            return (Some(run), false);
        }
        (Some(self.stage.source.runs()), true)
    }

    /// Lets everything happen that needs no time, and compares. `begun` is the question that must have been asked.
    async fn settle(&mut self, begun: Option<Asked>) -> Checked {
        sleep(Duration::from_millis(1)).await;
        if let Some(overlap) = self.stage.source.overlap() {
            return Err(format!("I5: {overlap}"));
        }
        let first = self.runs;
        self.runs = self.stage.source.runs();
        let runs: Vec<Asked> = (first..self.runs).map(|run| self.stage.source.run(run).asked).collect();
        if runs != Vec::from_iter(begun) {
            return Err(format!("the source was asked for {runs:?} instead of {begun:?}"));
        }
        for (run, asked) in (first..).zip(runs) {
            self.oracle.fly(run, asked);
        }
        let flights: Vec<usize> = self.oracle.flights().collect();
        for run in flights {
            let ran = self.stage.source.run(run);
            if let Some((_, ended)) = ran.ended {
                self.land(run, &ran, ended)?;
            }
        }
        self.answer_callers().await?;
        self.answer_operators().await
    }

    /// `run` ended.
    fn land(&mut self, run: usize, ran: &Ran, ended: Ended) -> Checked {
        if ended == Ended::Dropped {
            self.see("given up");
            let flown = ran.began.elapsed();
            if flown < Duration::from_millis(GIVEN_UP) {
                return Err(format!("I5: {ran:?} was given up after {flown:?}"));
            }
        }
        let is_current = self.oracle.flight(ran.asked) == Some(run);
        if ended == Ended::Said && !is_current {
            self.see("landed after it was cut off");
        }
        let peek = Peek { engine: &self.engine, stage: self.stage, wall: &self.wall };
        let landed = self.oracle.land(run, ran.clone(), &peek)?;
        if let Landed::Bad("held") = landed {
            self.see("held");
        }
        self.landed.insert(run, landed);
        // What is outdated has no word in the matter.
        if is_current {
            self.watch.ended(ran);
        }
        let lineage = ran.asked.lineage();
        let entry = peek.entry(lineage);
        let is_at = entry.as_ref().map(|entry| (Asked::of(&entry.question.open().parameters), entry.stored_at));
        let must_be_at = self.oracle.known.get(&lineage).map(|known| (known.ran.asked, known.at));
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

    /// Everyone who has an answer has the right one, and everyone else waits.
    async fn answer_callers(&mut self) -> Checked {
        let mut waiting = Vec::new();
        for mut caller in std::mem::take(&mut self.callers) {
            let asked = caller.before.asked;
            let expected = caller.before.expected(&self.oracle, caller.run, &self.landed);
            let result = if caller.task.is_finished() { (&mut caller.task).await.ok() } else { None };
            let got = result.as_ref().map(Got::of);
            if got != expected {
                return Err(format!("a caller got {got:?} instead of {expected:?}: {:?}", caller.before));
            }
            match result {
                None => waiting.push(caller),
                Some(Ok(answer)) => {
                    let ran = whole(asked, &answer.entry, &self.stage.source)?;
                    if ran.says == Says::Nothing {
                        self.see("an empty list");
                    }
                }
                Some(Err(_)) => {}
            }
            self.note(asked, got);
        }
        self.callers = waiting;
        Ok(())
    }

    fn note(&self, asked: Asked, got: Option<Got>) {
        let (what, why) = match got {
            None | Some(Got::New(..)) => return,
            Some(Got::Hit(..)) => return self.see("hit"),
            Some(Got::Stale(..)) => return self.see("stale"),
            Some(Got::Instead(other, _, why)) if other != asked => ("instead of an error, from the commit before", why),
            Some(Got::Instead(_, _, why)) => ("instead of an error", why),
            Some(Got::Nothing(why)) => ("nothing", why),
        };
        self.see(what);
        if why.1 {
            self.see("rested");
        }
    }

    /// Every operator knows what a decision led to.
    async fn answer_operators(&mut self) -> Checked {
        let mut waiting = Vec::new();
        for mut operator in std::mem::take(&mut self.operators) {
            let landed = operator.run.map(|run| self.landed.get(&run));
            if landed.is_some_and(|landed| landed.is_none()) {
                if operator.task.is_finished() {
                    return Err("an operator did not wait for the run".to_owned());
                }
                waiting.push(operator);
                continue;
            }
            if !operator.task.is_finished() {
                return Err("an operator waits on".to_owned());
            }
            let told = (&mut operator.task).await.map_err(|error| error.to_string())?;
            let told = told.map(|told| (told.is.is_some(), told.unknown.as_ref().map(Why::of)));
            let unknown = match landed.flatten() {
                Some(Landed::Bad(why)) => Some(Why(why, false)),
                Some(Landed::Good(_)) | None => None,
            };
            let expected = operator.was_held.then(|| (self.oracle.held.contains_key(&operator.lineage), unknown));
            if told != expected {
                return Err(format!("an operator is told {told:?} instead of {expected:?}"));
            }
        }
        self.operators = waiting;
        Ok(())
    }

    /// Lets time pass; what is given up meanwhile is given up in its time.
    async fn pass(&mut self, time: Duration) -> Checked {
        let until = Instant::now() + time;
        loop {
            let given_up = |run| self.stage.source.run(run).began + Duration::from_millis(GIVEN_UP);
            let next = self.oracle.flights().map(given_up).min().unwrap_or(until).min(until);
            sleep_until(next).await;
            self.settle(None).await?;
            if next == until {
                return Ok(());
            }
        }
    }

    fn invalidate(&mut self, route: Option<usize>, branch: Option<u8>, commit: Option<u8>) -> Checked {
        let is_meant = |asked: Asked| {
            route.is_none_or(|route| route == asked.route)
                && branch.is_none_or(|branch| branch == asked.branch)
                && commit.is_none_or(|commit| commit == asked.commit)
        };
        let mut parameters = Parameters::new();
        parameters.extend(branch.map(|branch| ("branch".to_owned(), branch.into())));
        parameters.extend(commit.map(|commit| ("commit".to_owned(), commit.into())));
        let route = route.map(|route| ROUTES[route].name.to_owned());
        let selector = Selector { route, application_set: None, parameters };
        let met = self.engine.invalidate(&self.stage.routes, &selector, &operator());
        self.stage.source.cut(Asked::all().filter(|asked| is_meant(*asked)).collect());
        let expected = self.oracle.invalidate(is_meant);
        if expected.1 > 0 {
            self.see("cut off");
        }
        if (met.answers, met.runs) == expected { Ok(()) } else { Err(format!("{met:?} instead of {expected:?}")) }
    }

    fn restart(&mut self) {
        let tasks = self.callers.drain(..).map(|caller| caller.task.abort_handle());
        tasks
            .chain(self.operators.drain(..).map(|operator| operator.task.abort_handle()))
            .for_each(|task| task.abort());
        self.stage.source.lose(Asked::all().collect());
        if let Some(disk) = &self.disk {
            disk.flush(Duration::from_secs(10));
        } else {
            self.watch.forgotten();
        }
        self.engine = self.stage.start(&self.wall, self.disk.as_ref());
        self.oracle.restart(self.disk.is_some());
    }

    async fn decide(&mut self, lineage: Slot, decision: Decision) -> Checked {
        let held = self.oracle.decide(lineage, decision, self.wall.now());
        let (mut run, mut begun) = (None, None);
        if let Some(asked) = held {
            self.watch.decided(lineage, decision);
            let is_fresh = self.oracle.own_worth(asked, self.wall.now()) == Worth::Fresh;
            let wants_run = decision == Decision::Released && !(is_fresh && self.oracle.flight(asked).is_none());
            let is_new;
            (run, is_new) = self.run_for(asked, wants_run);
            begun = is_new.then_some(asked);
        }
        let (engine, routes) = (Arc::clone(&self.engine), Arc::clone(&self.stage.routes));
        let id = self.stage.key(lineage).to_string();
        let task = tokio::spawn(async move { engine.decide(&routes, &id, decision, &operator()).await });
        self.operators.push(Operator { lineage, was_held: held.is_some(), run, task });
        self.settle(begun).await
    }

    /// What operators see is what there is.
    fn list(&mut self) -> Checked {
        let now = self.wall.now();
        self.engine.observe();
        self.oracle.forget(now);
        let listed = self.engine.list(&self.stage.routes, &Selector::default()).into_iter().map(|overview| {
            let why = overview.failing.map(|(failure, _)| failure.as_str());
            (Asked::of(&overview.question.parameters), (overview.state, why, overview.held.is_some()))
        });
        let expected = Asked::all().filter_map(|asked| {
            let why = self.oracle.resting(asked, now);
            let is_known = self.oracle.known.contains_key(&Slot::Own(asked));
            let state = match self.oracle.worth(Slot::Own(asked), now) {
                _ if !is_known => "failing",
                Worth::Fresh => "fresh",
                Worth::WhileRevalidate => "stale_while_revalidate",
                Worth::IfError => "stale_if_error",
                Worth::Nothing => "expired",
            };
            let is_held = self.oracle.held.contains_key(&asked.lineage());
            (is_known || why.is_some()).then_some((asked, (state, why, is_held)))
        });
        let (listed, expected): (BTreeMap<_, _>, BTreeMap<_, _>) = (listed.collect(), expected.collect());
        if listed == expected { Ok(()) } else { Err(format!("listed is {listed:?} instead of {expected:?}")) }
    }
}

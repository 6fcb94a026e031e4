//! The oracle: what the engine must store and answer, as tables of states, backoffs and losses, without concurrency, storage or bytes.
//! Runs are numbers in the source's log. Times that the engine chooses at random are read from it and checked against their bounds.

mod held;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use crate::model::oracle::held::OracleHeld;
use crate::model::{
    rules::{ModelQuery, Slot},
    source::{Ran, RunEnd, Says},
    verdict::Accepted,
};
use domain::{clock::Timestamp, error::ErrorKind};

/// How an answer may be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worth {
    Fresh,
    WhileRevalidate,
    IfError,
    Nothing,
}

/// For how many milliseconds an answer is fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fresh {
    For(u64),
    /// It was fresh before the restart.
    Before,
    /// An invalidation ended it.
    Never,
}

/// A stored answer.
#[derive(Debug, Clone)]
pub(super) struct EngineState {
    pub ran: Ran,
    pub at: Timestamp,
    pub fresh: Fresh,
    /// When its question was answered for the first time.
    first: Timestamp,
    /// The number of the next run: later runs have this number or a higher one.
    run_number: usize,
}

/// A question that failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct OracleBackoff {
    pub why: &'static str,
    times: u32,
    since: Timestamp,
    lasts: u64,
}

/// A run under way.
#[derive(Debug, Clone, Copy)]
struct Flight {
    run: usize,
    query: ModelQuery,
    is_current: bool,
    /// When a caller last queried, if no caller waits for the run.
    queried_at: Option<Timestamp>,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub(super) enum Finished {
    Good(EngineState),
    /// Why there is no answer.
    Bad(&'static str),
}

/// The times that the engine chose, in milliseconds.
pub(super) trait Spread {
    /// How long the answer to `query` is fresh that was stored at `at`.
    fn life(&self, query: ModelQuery, at: Timestamp) -> Option<u64>;
    /// How long the backoff of `query` lasts after its failure at `since`.
    fn backoff(&self, query: ModelQuery, since: Timestamp) -> Option<u64>;
}

/// All that the engine must know.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub known: BTreeMap<Slot, EngineState>,
    pub backoffs: BTreeMap<ModelQuery, OracleBackoff>,
    pub held: BTreeMap<Slot, OracleHeld>,
    /// The accepted answers, the last one at the end.
    accepted: BTreeMap<Slot, Vec<Accepted>>,
    /// Slots whose record is lost.
    unreadable: BTreeSet<Slot>,
    /// Lineages whose baseline is lost.
    forgotten: BTreeSet<Slot>,
    /// The invalidations of this process, and their times.
    invalidated: Vec<(BTreeSet<ModelQuery>, Timestamp)>,
    flights: Vec<Flight>,
}

impl Oracle {
    /// How the answer in `slot` may be served.
    pub(super) fn worth(&self, slot: Slot, now: Timestamp) -> Worth {
        let Some(known) = self.known.get(&slot) else { return Worth::Nothing };
        let rules = slot.query().rules();
        let is_meant_to_wait = known.fresh == Fresh::Never || rules.ttl == 0;
        let Some(age) = now.0.checked_sub(known.at.0) else {
            // The clock was put back.
            let is_served = !is_meant_to_wait && rules.while_revalidate > 0;
            return if is_served { Worth::WhileRevalidate } else { Worth::IfError };
        };
        let over = match known.fresh {
            Fresh::For(life) if age < life => return Worth::Fresh,
            Fresh::For(life) => age - life,
            Fresh::Before | Fresh::Never => age,
        };
        let while_revalidate = if rules.ttl == 0 { 0 } else { rules.while_revalidate * 1000 };
        let was_fresh = if matches!(known.fresh, Fresh::For(1..)) { 0 } else { rules.ttl * 1000 };
        if over < while_revalidate && !is_meant_to_wait {
            Worth::WhileRevalidate
        } else if over < was_fresh + while_revalidate + rules.if_error * 1000 {
            Worth::IfError
        } else {
            Worth::Nothing
        }
    }

    /// How the answer to `query` itself may be served. An empty answer may not, if its lineage has a later answer that is not
    /// empty.
    pub(crate) fn own_worth(&self, query: ModelQuery, now: Timestamp) -> Worth {
        let is_nothing = |known: &EngineState| known.ran.names().is_none_or(|names| names.is_empty());
        let lineage = self.known.get(&query.lineage()).filter(|_| self.worth(query.lineage(), now) != Worth::Nothing);
        let is_outshone = self
            .known
            .get(&Slot::Own(query))
            .is_some_and(|own| is_nothing(own) && lineage.is_some_and(|last| !is_nothing(last) && last.at > own.at));
        if is_outshone { Worth::Nothing } else { self.worth(Slot::Own(query), now) }
    }

    /// Why `query` is in backoff, if it failed recently.
    pub(super) fn backoff(&self, query: ModelQuery, now: Timestamp) -> Option<&'static str> {
        let backoff = self.backoffs.get(&query)?;
        let passed = now.0.checked_sub(backoff.since.0)?;
        (passed < backoff.lasts).then_some(backoff.why)
    }

    /// The run that a new caller joins.
    pub(super) fn flight(&self, query: ModelQuery) -> Option<usize> {
        self.flights.iter().find(|flight| flight.query == query && flight.is_current).map(|flight| flight.run)
    }

    /// `run` began, for a caller or by the gateway itself.
    pub(crate) fn begin(&mut self, run: usize, query: ModelQuery, is_for_caller: bool) {
        let held = self.held.get(&query.lineage());
        let queried_at = if is_for_caller { None } else { held.map(|held| held.queried_at) };
        self.flights.push(Flight { run, query, is_current: true, queried_at });
    }

    /// The runs under way, the first one first.
    pub(super) fn flights(&self) -> impl Iterator<Item = usize> {
        self.flights.iter().map(|flight| flight.run)
    }

    /// `run` ended. Returns its result, and updates what is known.
    pub(super) fn finish(&mut self, run: usize, ran: Ran, spread: &impl Spread) -> Result<Finished, String> {
        let index = self.flights.iter().position(|flight| flight.run == run).ok_or("a run that never began")?;
        let flight = self.flights.remove(index);
        let Flight { query, is_current, .. } = flight;
        let rules = query.rules();
        let (at, ended) = ran.ended.ok_or("a run that has not ended")?;
        let checked = match (&ran.says, ended) {
            (_, RunEnd::Dropped) => Err("timeout"),
            (Says::Crash, _) => Err("crashed"),
            (Says::Unknown(fault), _) => Err(fault.kind().as_str()),
            _ => self.check(flight, &ran, at),
        };
        let begins_anew = match checked {
            Ok(begins_anew) => begins_anew,
            Err(why) => {
                if is_current {
                    let asks = if ended == RunEnd::Said { asks(&ran) } else { 0 };
                    self.back_off(query, why, at, asks, spread)?;
                }
                return Ok(Finished::Bad(why));
            }
        };
        let names = ran.names().unwrap_or_default();
        let first = self.known.get(&Slot::Own(query)).map_or(at, |known| known.first.min(at));
        let mut new = EngineState { ran, at, fresh: Fresh::Never, first, run_number: run + 1 };
        if self.known.get(&Slot::Own(query)).is_none_or(|known| known.run_number <= new.run_number) {
            new.fresh = life(&new, is_current, spread.life(query, at))?;
        }
        let mut is_head = false;
        if self.known.get(&Slot::Own(query)).is_none_or(|known| known.run_number <= new.run_number) {
            self.remember(Slot::Own(query), new.clone());
            is_head = !rules.follows;
        }
        // A commit that was answered earlier does not replace the head of its branch.
        let is_later =
            |known: &EngineState| (known.first, known.run_number) > (new.first, new.run_number) && known.first <= at;
        if rules.follows && !self.known.get(&query.lineage()).is_some_and(is_later) {
            self.remember(query.lineage(), new.clone());
            is_head = true;
        }
        if is_head {
            self.believe(query.lineage(), names, begins_anew, at);
        }
        if is_current {
            self.backoffs.remove(&query);
        }
        Ok(Finished::Good(new))
    }

    fn remember(&mut self, slot: Slot, known: EngineState) {
        self.unreadable.remove(&slot);
        self.known.insert(slot, known);
    }

    fn back_off(
        &mut self,
        query: ModelQuery,
        why: &'static str,
        at: Timestamp,
        asks: u64,
        spread: &impl Spread,
    ) -> Result<(), String> {
        let times = self.backoffs.get(&query).map_or(0, |backoff| backoff.times) + 1;
        let usual = (1000 << (times - 1).min(10)).min(60_000);
        let lasts =
            spread.backoff(query, at).ok_or_else(|| format!("{query:?} has no backoff after its failure ({why})"))?;
        // A backoff does not delay the gateway's own run for a held answer.
        let held = self.held.get(&query.lineage()).filter(|_| why == "held");
        let due = held.and_then(OracleHeld::due_at).map_or(u64::MAX, |due| due.saturating_sub(at.0));
        let (least, max) = ((usual * 9 / 10).min(due), (usual * 11 / 10).min(due));
        if !(least.max(asks)..=max.max(asks)).contains(&lasts) {
            return Err(format!(
                "{query:?} is in backoff for {lasts} ms after {times} failures, {least} to {max} are meant"
            ));
        }
        self.backoffs.insert(query, OracleBackoff { why, times, since: at, lasts });
        Ok(())
    }

    /// Invalidates the questions that are `is_meant`. Returns how many answers and runs that concerns.
    pub(super) fn invalidate(&mut self, is_meant: impl Fn(ModelQuery) -> bool, now: Timestamp) -> (usize, usize) {
        self.invalidated.push((ModelQuery::all().filter(|query| is_meant(*query)).collect(), now));
        let (mut answers, mut runs) = (0, 0);
        for (slot, known) in self.known.iter_mut().filter(|(_, known)| is_meant(known.ran.query)) {
            known.fresh = Fresh::Never;
            answers += usize::from(matches!(slot, Slot::Own(_)));
        }
        for flight in self.flights.iter_mut().filter(|flight| flight.is_current && is_meant(flight.query)) {
            flight.is_current = false;
            runs += 1;
        }
        self.backoffs.retain(|query, _| !is_meant(*query));
        (answers, runs)
    }

    /// Ends the process and starts another.
    pub(super) fn restart(&mut self, has_disk: bool) {
        self.flights.clear();
        self.backoffs.clear();
        self.invalidated.clear();
        if !has_disk {
            *self = Self::default();
        }
        self.known.values_mut().for_each(EngineState::read_back);
        self.held.values_mut().for_each(OracleHeld::read_back);
    }

    /// The answers to `query` and of its lineage are evicted from memory. Baselines stay.
    /// Returns the slots that held them. An answer whose time is that of an invalidation stays: only reading it shows whether
    /// it is older or newer.
    pub(crate) fn evict(&mut self, query: ModelQuery, has_disk: bool) -> BTreeSet<Slot> {
        let is_clear = |known: &EngineState| {
            let is_meant =
                |(query, at): &(BTreeSet<ModelQuery>, Timestamp)| known.at <= *at && query.contains(&known.ran.query);
            !self.invalidated.iter().any(is_meant)
        };
        let slots = BTreeSet::from([Slot::Own(query), query.lineage()]);
        let slots: BTreeSet<Slot> =
            slots.into_iter().filter(|slot| self.known.get(slot).is_some_and(is_clear)).collect();
        for slot in &slots {
            if !has_disk {
                self.known.remove(slot);
                self.unreadable.insert(*slot);
            } else if let Some(known) = self.known.get_mut(slot) {
                known.read_back();
            }
        }
        slots
    }

    /// The records of `query` and of its lineage are lost.
    pub(super) fn lose(&mut self, query: ModelQuery) {
        for slot in [Slot::Own(query), query.lineage()] {
            self.known.remove(&slot);
            self.unreadable.insert(slot);
        }
        self.accepted.remove(&query.lineage());
        self.forgotten.insert(query.lineage());
    }
}

impl EngineState {
    /// It was read from disk, so it is no longer fresh.
    fn read_back(&mut self) {
        self.run_number = 0;
        let never = self.fresh == Fresh::Never || self.fresh == Fresh::For(0);
        self.fresh = if never { Fresh::Never } else { Fresh::Before };
    }
}

/// How many milliseconds the source asks not to be called, ten minutes at most.
fn asks(ran: &Ran) -> u64 {
    let Says::Unknown(fault) = ran.says else { return 0 };
    let ErrorKind::Throttled { retry_after: Some(asks) } = fault.kind() else { return 0 };
    asks.as_secs().min(600) * 1000
}

/// How long the answer is fresh. The engine says `chosen`, which must be within the bounds.
fn life(new: &EngineState, is_current: bool, chosen: Option<u64>) -> Result<Fresh, String> {
    let query = new.ran.query;
    let chosen = chosen.ok_or_else(|| format!("the answer to {query:?} is not remembered"))?;
    let (least, max) = match new.ran.says {
        _ if !is_current => (0, 0),
        Says::List { lasting: Some(own), .. } => (own * 900, own * 1000),
        _ => (query.rules().ttl * 900, query.rules().ttl * 1100),
    };
    if !(least..=max).contains(&chosen) {
        return Err(format!("the answer to {query:?} is fresh for {chosen} ms, {least} to {max} are meant"));
    }
    Ok(if is_current { Fresh::For(chosen) } else { Fresh::Never })
}

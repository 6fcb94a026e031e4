//! What the engine must know and answer: the tables of states, rests and losses, without concurrency, storage or bytes.
//! Runs are numbers in the source's log. What the engine spreads, lives and rests, is read off it and held to its bounds.

use std::collections::BTreeMap;

use super::{
    rules::{Asked, Judgement, Slot},
    source::{Ended, Ran, Says},
};
use crate::{clock::Timestamp, error::ErrorKind, guard::Decision};

/// What an answer is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worth {
    Fresh,
    WhileRevalidate,
    IfError,
    Nothing,
}

/// For how many milliseconds an answer is fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fresh {
    For(u64),
    /// It was, before the restart.
    Before,
    /// It was said that it is not to be trusted.
    Never,
}

/// A remembered answer.
#[derive(Debug, Clone)]
pub struct Known {
    pub ran: Ran,
    pub at: Timestamp,
    pub fresh: Fresh,
    /// When its question was answered for the first time.
    first: Timestamp,
    /// The most sets that were believed of late, and when.
    peak: (usize, Timestamp),
    /// Which runs began after it.
    turn: usize,
}

/// A question that failed.
#[derive(Debug, Clone, Copy)]
pub struct Rest {
    pub why: &'static str,
    times: u32,
    since: Timestamp,
    lasts: u64,
}

/// An answer that waits for others that agree.
#[derive(Debug, Clone)]
pub struct Held {
    pub ran: Ran,
    agreed: u32,
    counted_at: Timestamp,
    seen_at: Timestamp,
    decision: Option<Decision>,
    decided_at: Timestamp,
    /// Whether it was said by those who had something.
    counts: bool,
}

/// A run under way.
#[derive(Debug, Clone, Copy)]
struct Flight {
    run: usize,
    asked: Asked,
    is_current: bool,
}

/// What a run came to.
#[derive(Debug, Clone)]
pub enum Landed {
    Good(Known),
    /// Why there is nothing.
    Bad(&'static str),
}

/// What the engine chose within its bounds, in milliseconds.
pub trait Spread {
    /// For how long the answer to `asked` is fresh that was stored at `at`.
    fn life(&self, asked: Asked, at: Timestamp) -> Option<u64>;
    /// For how long `asked` rests, which failed at `since`.
    fn rest(&self, asked: Asked, since: Timestamp) -> Option<u64>;
}

/// All that is known.
#[derive(Debug, Default)]
pub struct Oracle {
    pub known: BTreeMap<Slot, Known>,
    pub rests: BTreeMap<Asked, Rest>,
    pub held: BTreeMap<Slot, Held>,
    flights: Vec<Flight>,
}

impl Oracle {
    /// What the answer in `slot` is worth.
    pub fn worth(&self, slot: Slot, now: Timestamp) -> Worth {
        let Some(known) = self.known.get(&slot) else { return Worth::Nothing };
        let rules = slot.asked().rules();
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

    /// What its own answer is worth to `asked`: nothing where it says that there is nothing, and its lineage got something
    /// since.
    pub fn own_worth(&self, asked: Asked, now: Timestamp) -> Worth {
        let is_nothing = |known: &Known| known.ran.names().is_none_or(|names| names.is_empty());
        let lineage = self.known.get(&asked.lineage()).filter(|_| self.worth(asked.lineage(), now) != Worth::Nothing);
        let is_outshone = self
            .known
            .get(&Slot::Own(asked))
            .is_some_and(|own| is_nothing(own) && lineage.is_some_and(|last| !is_nothing(last) && last.at > own.at));
        if is_outshone { Worth::Nothing } else { self.worth(Slot::Own(asked), now) }
    }

    /// Why `asked` is not asked, if it failed of late.
    pub fn resting(&self, asked: Asked, now: Timestamp) -> Option<&'static str> {
        let rest = self.rests.get(&asked)?;
        let passed = now.0.checked_sub(rest.since.0)?;
        (passed < rest.lasts).then_some(rest.why)
    }

    /// The run that one who asks joins.
    pub fn flight(&self, asked: Asked) -> Option<usize> {
        self.flights.iter().find(|flight| flight.asked == asked && flight.is_current).map(|flight| flight.run)
    }

    /// `run` began.
    pub fn fly(&mut self, run: usize, asked: Asked) {
        self.flights.push(Flight { run, asked, is_current: true });
    }

    /// Those under way, from the first.
    pub fn flights(&self) -> impl Iterator<Item = usize> {
        self.flights.iter().map(|flight| flight.run)
    }

    /// `run` ended: what became of it, and what is known now.
    pub fn land(&mut self, run: usize, ran: Ran, spread: &impl Spread) -> Result<Landed, String> {
        let index = self.flights.iter().position(|flight| flight.run == run).ok_or("a run that never began")?;
        let Flight { asked, is_current, .. } = self.flights.remove(index);
        let rules = asked.rules();
        let (at, ended) = ran.ended.ok_or("a run that has not ended")?;
        let reviewed = match (&ran.says, ended) {
            (_, Ended::Dropped) => Err("timeout"),
            (Says::Crash, _) => Err("crashed"),
            (Says::Unknown(fault), _) => Err(fault.kind().as_str()),
            _ => self.review(asked, &ran, at, is_current),
        };
        let is_loss = match reviewed {
            Ok(is_loss) => is_loss,
            Err(why) => {
                if is_current {
                    let asks = if ended == Ended::Said { asks(&ran) } else { 0 };
                    self.rest(asked, why, at, asks, spread)?;
                }
                return Ok(Landed::Bad(why));
            }
        };
        let sets = ran.names().map_or(0, |names| names.len());
        let before = self.peak(asked.lineage(), at);
        let is_peak = is_loss || sets == 0 || sets >= before;
        let peak = if is_peak { (sets, at) } else { self.known[&asked.lineage()].peak };
        let first = self.known.get(&Slot::Own(asked)).map_or(at, |known| known.first.min(at));
        let mut new = Known { ran, at, fresh: Fresh::Never, first, peak, turn: run + 1 };
        if self.known.get(&Slot::Own(asked)).is_none_or(|known| known.turn <= new.turn) {
            new.fresh = life(&new, is_current, spread.life(asked, at))?;
        }
        if self.known.get(&Slot::Own(asked)).is_none_or(|known| known.turn <= new.turn) {
            self.known.insert(Slot::Own(asked), new.clone());
        }
        // A commit that was known before another does not take their branch back.
        let is_later = |known: &Known| (known.first, known.turn) > (new.first, new.turn) && known.first <= at;
        if rules.follows && !self.known.get(&asked.lineage()).is_some_and(is_later) {
            self.known.insert(asked.lineage(), new.clone());
        }
        if is_current {
            self.rests.remove(&asked);
        }
        Ok(Landed::Good(new))
    }

    /// The most sets that were believed in the last hour.
    fn peak(&self, lineage: Slot, now: Timestamp) -> usize {
        let (sets, at) = self.known.get(&lineage).map_or((0, now), |known| known.peak);
        if now >= at && now.0 < at.0 + 3_600_000 { sets } else { 0 }
    }

    /// Whether the answer of `ran` is a loss that is believed, or why it is not believed.
    fn review(&mut self, asked: Asked, ran: &Ran, at: Timestamp, is_current: bool) -> Result<bool, &'static str> {
        self.forget(at);
        let (rules, lineage) = (asked.rules(), asked.lineage());
        let last = self.known.get(&lineage).map(|known| &known.ran);
        let peak = self.peak(lineage, at);
        let (can_be_confirmed, counts) = match rules.judge(last, peak, ran) {
            Judgement::Good => {
                // What is outdated has no word in the matter.
                if is_current {
                    self.held.remove(&lineage);
                }
                return Ok(false);
            }
            Judgement::Nonsense => return Err("invalid_output"),
            // That a commit is not there yet says nothing about the one before.
            Judgement::Loss { can_be_confirmed } => {
                let is_new = rules.follows && !self.known.contains_key(&Slot::Own(asked));
                let counts = !(is_new && ran.names() == Some(Vec::new()));
                (can_be_confirmed && counts, counts)
            }
        };
        if !is_current {
            return Err("held");
        }
        let mut held =
            Held { ran: ran.clone(), agreed: 0, counted_at: at, seen_at: at, decision: None, decided_at: at, counts };
        if let Some(before) = self.held.remove(&lineage).filter(|before| rules.agree(&before.ran, ran)) {
            let is_apart = at.0 >= before.counted_at.0 + rules.confirm_for * 1000;
            if !counts {
                (held.agreed, held.counted_at, held.counts) = (before.agreed, before.counted_at, before.counts);
            } else if before.counts {
                held.agreed = before.agreed + u32::from(is_apart);
                if !is_apart && at >= before.counted_at {
                    held.counted_at = before.counted_at;
                }
            }
            // A release waits for an hour.
            let waits = at >= before.decided_at && at.0 < before.decided_at.0 + 3_600_000;
            held.decision = before.decision.filter(|decision| waits || *decision == Decision::Rejected);
            held.decided_at = before.decided_at;
        }
        let is_believed = match held.decision {
            Some(decision) => decision == Decision::Released,
            None => can_be_confirmed && held.agreed >= rules.confirm_after,
        };
        if is_believed {
            return Ok(true);
        }
        self.held.insert(lineage, held);
        Err("held")
    }

    fn rest(
        &mut self,
        asked: Asked,
        why: &'static str,
        at: Timestamp,
        asks: u64,
        spread: &impl Spread,
    ) -> Result<(), String> {
        let times = self.rests.get(&asked).map_or(0, |rest| rest.times) + 1;
        let usual = (1000 << (times - 1).min(10)).min(60_000);
        let lasts =
            spread.rest(asked, at).ok_or_else(|| format!("{asked:?} does not rest after its failure ({why})"))?;
        let (least, most) = (usual * 9 / 10, usual * 11 / 10);
        if !(least.max(asks)..=most.max(asks)).contains(&lasts) {
            return Err(format!("{asked:?} rests for {lasts} ms after {times} failures, {least} to {most} are meant"));
        }
        self.rests.insert(asked, Rest { why, times, since: at, lasts });
        Ok(())
    }

    /// Says that nothing that `is_meant` is to be trusted: how many answers that are, and how many runs.
    pub fn invalidate(&mut self, is_meant: impl Fn(Asked) -> bool) -> (usize, usize) {
        let (mut answers, mut runs) = (0, 0);
        for (slot, known) in self.known.iter_mut().filter(|(_, known)| is_meant(known.ran.asked)) {
            known.fresh = Fresh::Never;
            answers += usize::from(matches!(slot, Slot::Own(_)));
        }
        for flight in self.flights.iter_mut().filter(|flight| flight.is_current && is_meant(flight.asked)) {
            flight.is_current = false;
            runs += 1;
        }
        self.rests.retain(|asked, _| !is_meant(*asked));
        (answers, runs)
    }

    /// Ends the process and starts another.
    pub fn restart(&mut self, has_disk: bool) {
        self.flights.clear();
        self.rests.clear();
        if !has_disk {
            (self.known, self.held) = (BTreeMap::new(), BTreeMap::new());
        }
        for known in self.known.values_mut() {
            known.turn = 0;
            let never = known.fresh == Fresh::Never || known.fresh == Fresh::For(0);
            known.fresh = if never { Fresh::Never } else { Fresh::Before };
        }
    }

    /// An operator decides on what is held for `lineage`; the question that brought it, if there is any.
    pub fn decide(&mut self, lineage: Slot, decision: Decision, now: Timestamp) -> Option<Asked> {
        self.forget(now);
        let held = self.held.get_mut(&lineage)?;
        (held.decision, held.decided_at) = (Some(decision), now);
        let asked = held.ran.asked;
        if decision == Decision::Released {
            self.rests.remove(&asked);
        }
        Some(asked)
    }

    /// What nobody has asked about for a day is no longer held.
    pub fn forget(&mut self, now: Timestamp) {
        self.held.retain(|_, held| now.0 <= held.seen_at.0 + 24 * 3_600_000);
    }
}

/// For how many milliseconds the source wants to be left alone; ten minutes are granted at most.
fn asks(ran: &Ran) -> u64 {
    let Says::Unknown(fault) = ran.says else { return 0 };
    let ErrorKind::Throttled { retry_after: Some(asks) } = fault.kind() else { return 0 };
    asks.as_secs().min(600) * 1000
}

/// For how long the answer is fresh that the engine says is fresh for `chosen`.
fn life(new: &Known, is_current: bool, chosen: Option<u64>) -> Result<Fresh, String> {
    let asked = new.ran.asked;
    let chosen = chosen.ok_or_else(|| format!("the answer to {asked:?} is not remembered"))?;
    let (least, most) = match new.ran.says {
        _ if !is_current => (0, 0),
        Says::List { lasting: Some(own), .. } => (own * 900, own * 1000),
        _ => (asked.rules().ttl * 900, asked.rules().ttl * 1100),
    };
    if !(least..=most).contains(&chosen) {
        return Err(format!("the answer to {asked:?} is fresh for {chosen} ms, {least} to {most} are meant"));
    }
    Ok(if is_current { Fresh::For(chosen) } else { Fresh::Never })
}

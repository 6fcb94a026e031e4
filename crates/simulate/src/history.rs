//! The events of a run, in plain sentences, and how often each kind was tried.

use std::{collections::BTreeMap, fmt, hash::BuildHasher as _, time::Duration};

use foldhash::quality::FixedState;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The invariants, judged by the truth alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invariant {
    /// No Application is deleted unless its parameter set was truly gone within the last hour, or an operator released it.
    Deleted,
    /// None is deleted and made again within ten minutes without a true change.
    MadeAgain,
    /// An Application that is truly gone is deleted in time.
    Gone,
    /// An Application that is truly new appears in time.
    New,
    /// Digests are of a commit that CI passed, and an Application does not go back to an older one.
    Digest,
    /// Memory, files and store stay bounded.
    Bounded,
    /// There are not many requests while nothing changes.
    Rate,
    /// The simulation goes on.
    Progress,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleted => {
                "1: no Application is deleted unless its parameter set was truly gone, or an operator released that"
            }
            Self::MadeAgain => "2: no Application is deleted and made again without a true change",
            Self::Gone => "3: what is truly gone is deleted in time",
            Self::New => "4: what is truly new appears in time",
            Self::Digest => "5: digests are of a commit that CI passed, and do not go back",
            Self::Bounded => "6: memory, files and the store stay bounded",
            Self::Rate => "7: nobody makes many requests while nothing changes",
            Self::Progress => "the simulation does not hang",
        })
    }
}

/// An invariant that does not hold.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Which one.
    pub invariant: Invariant,
    /// When, from the start of the run.
    pub at: Duration,
    /// The observation.
    pub seen: String,
}

/// The history of a run, from its start on.
#[derive(Debug)]
pub struct History {
    start: Instant,
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    lines: Vec<(Duration, String)>,
    digest: u64,
    counts: BTreeMap<&'static str, u64>,
    violation: Option<Violation>,
}

impl Default for History {
    fn default() -> Self {
        Self { start: Instant::now(), written: Mutex::default() }
    }
}

impl History {
    /// The time since the start.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The time at the start.
    pub const fn start(&self) -> Instant {
        self.start
    }

    /// Writes a sentence down.
    pub fn say(&self, sentence: impl Into<String>) {
        let (at, sentence) = (self.now(), sentence.into());
        let mut written = self.written.lock();
        written.digest = FixedState::with_seed(written.digest).hash_one((at, &sentence));
        written.lines.push((at, sentence));
    }

    /// Counts one more of `what`.
    pub fn count(&self, what: &'static str) {
        *self.written.lock().counts.entry(what).or_default() += 1;
    }

    /// Notes that an invariant does not hold. The first one counts.
    pub fn violate(&self, invariant: Invariant, seen: impl Into<String>) {
        let (at, seen) = (self.now(), seen.into());
        self.say(format!("VIOLATION of {invariant}: {seen}"));
        self.written.lock().violation.get_or_insert(Violation { invariant, at, seen });
    }

    /// The first invariant that did not hold.
    pub fn violation(&self) -> Option<Violation> {
        self.written.lock().violation.clone()
    }

    /// How often each kind was tried.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.written.lock().counts.clone()
    }

    /// A hash of all sentences and their times: two runs of a seed have the same.
    pub fn digest(&self) -> u64 {
        self.written.lock().digest
    }

    /// The last sentences, one a line.
    pub fn last(&self, count: usize) -> String {
        let written = self.written.lock();
        let from = written.lines.len().saturating_sub(count);
        let lines = written.lines[from..].iter().map(|(at, line)| format!("{}  {line}\n", shown(*at)));
        let before = if from > 0 { format!("({from} sentences before)\n") } else { String::new() };
        before + &lines.collect::<String>()
    }
}

/// A time of the run, such as `day 2 03:04:05.678`.
pub fn shown(at: Duration) -> String {
    let seconds = at.as_secs();
    let (day, hour, minute) = (seconds / 86_400 + 1, seconds / 3600 % 24, seconds / 60 % 60);
    format!("day {day} {hour:02}:{minute:02}:{:02}.{:03}", seconds % 60, at.subsec_millis())
}

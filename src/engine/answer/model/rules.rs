//! What the model's routes promise, in the words of the configuration, and who asks what when.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::source::Ran;
use crate::domain::{
    clock::{Clock, Timestamp},
    generator::Parameters,
};

/// A clock on the wall: goes with the virtual time, and can be put forward or back.
#[derive(Debug)]
pub struct Wall {
    start: Instant,
    ahead: AtomicI64,
}

impl Default for Wall {
    fn default() -> Self {
        Self { start: Instant::now(), ahead: AtomicI64::new(1_700_000_000_000) }
    }
}

impl Wall {
    pub fn jump(&self, seconds: i64) {
        self.ahead.fetch_add(seconds * 1000, Ordering::Relaxed);
    }
}

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.start.elapsed().as_millis()).unwrap();
        Timestamp(u64::try_from(self.ahead.load(Ordering::Relaxed) + passed).unwrap())
    }
}

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asked {
    pub route: usize,
    pub branch: u8,
    pub commit: u8,
}

pub const BRANCHES: u8 = 2;
pub const COMMITS: u8 = 3;

impl Asked {
    pub fn parameters(self) -> Parameters {
        let Self { route, branch, commit } = self;
        json!({"of": route, "branch": branch, "commit": commit}).as_object().unwrap().clone()
    }

    pub fn of(parameters: &Parameters) -> Self {
        let number = |name: &str| u8::try_from(parameters[name].as_u64().unwrap()).unwrap();
        Self { route: number("of").into(), branch: number("branch"), commit: number("commit") }
    }

    pub fn all() -> impl Iterator<Item = Self> {
        let of_branch = |route, branch| (0..COMMITS).map(move |commit| Self { route, branch, commit });
        (0..ROUTES.len()).flat_map(move |route| (0..BRANCHES).flat_map(move |branch| of_branch(route, branch)))
    }

    pub const fn rules(self) -> &'static Rules {
        &ROUTES[self.route]
    }

    /// The place of what the next answer is held against.
    pub const fn lineage(self) -> Slot {
        if self.rules().follows { Slot::Lineage(self.route, self.branch) } else { Slot::Own(self) }
    }
}

/// Where an answer is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// For its question.
    Own(Asked),
    /// For those on a route that come after it on its branch.
    Lineage(usize, u8),
}

impl Slot {
    /// A question that looks there.
    pub const fn asked(self) -> Asked {
        match self {
            Self::Own(asked) => asked,
            Self::Lineage(route, branch) => Asked { route, branch, commit: 0 },
        }
    }
}

/// How a route tells its parameter sets apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// Not at all: it counts them.
    Counted,
    /// By their names, as the configuration says.
    Named,
    /// By their names, which the guard finds out: where there are two at least, before and after.
    Auto,
}

/// An answer that was believed in a lineage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Believed {
    pub names: Vec<u8>,
    /// When another took its place; `None` for the last one.
    pub until: Option<Timestamp>,
}

impl Believed {
    /// Whether it was the last one within the hour before `now`.
    pub fn is_recent(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now.0 < until.0 + 3_600_000)
    }
}

/// What a route promises; times in seconds.
#[derive(Debug)]
pub struct Rules {
    pub name: &'static str,
    /// Whether a commit follows the one before it on its branch.
    pub follows: bool,
    pub ttl: u64,
    pub while_revalidate: u64,
    pub if_error: u64,
    pub on_empty: &'static str,
    pub on_shrink: &'static str,
    pub least: usize,
    pub most: usize,
    pub shrink: u8,
    /// How sets are told apart.
    pub identity: Identity,
    pub confirm_after: u32,
    pub confirm_for: u64,
}

const USUAL: Rules = Rules {
    name: "plain",
    follows: false,
    ttl: 60,
    while_revalidate: 300,
    if_error: 24 * 3600,
    on_empty: "confirm",
    on_shrink: "confirm",
    least: 0,
    most: 1000,
    shrink: 30,
    identity: Identity::Counted,
    confirm_after: 2,
    confirm_for: 60,
};

/// The routes of the model.
pub static ROUTES: [Rules; 7] = [
    USUAL,
    Rules { name: "moving", follows: true, identity: Identity::Named, ..USUAL },
    Rules { name: "eager", follows: true, ttl: 0, on_empty: "keep", confirm_after: 1, confirm_for: 0, ..USUAL },
    Rules { name: "wary", ttl: 10, while_revalidate: 0, if_error: 3600, on_empty: "error", least: 2, most: 6, ..USUAL },
    Rules {
        name: "open",
        follows: true,
        identity: Identity::Named,
        on_empty: "allow",
        shrink: 50,
        confirm_for: 600,
        ..USUAL
    },
    Rules { name: "auto", identity: Identity::Auto, confirm_after: 3, confirm_for: 300, ..USUAL },
    Rules { name: "kept", follows: true, identity: Identity::Auto, on_shrink: "keep", ..USUAL },
];

impl Rules {
    pub fn config(&self) -> Value {
        let seconds = |n: u64| format!("{n}s");
        let mut config = json!({
            "name": self.name,
            "backend": {"fixed": {"parameters": []}},
            "cache": {
                "ttl": seconds(self.ttl),
                "staleWhileRevalidate": seconds(self.while_revalidate),
                "staleIfError": seconds(self.if_error),
            },
            "guard": {
                "onEmpty": self.on_empty,
                "minItems": self.least,
                "maxItems": self.most,
                "maxShrink": format!("{}%", self.shrink),
                "onShrink": self.on_shrink,
                "identity": match self.identity {
                    Identity::Counted => json!([]),
                    Identity::Named => json!(["name"]),
                    Identity::Auto => json!("auto"),
                },
                "confirmAfter": self.confirm_after,
                "confirmFor": seconds(self.confirm_for),
            },
        });
        if self.follows {
            config["lineage"] = json!(["branch"]);
        }
        config
    }

    /// Whether sets are told apart by their names in an answer with `count` of them.
    const fn names_tell(&self, count: usize) -> bool {
        match self.identity {
            Identity::Counted => false,
            Identity::Named => true,
            Identity::Auto => count >= 2,
        }
    }

    /// What `new` is at `now` after what was believed, the last of it at the end; `None` where its record is lost.
    pub fn judge(&self, before: Option<&[Believed]>, new: &Ran, now: Timestamp) -> Judgement {
        let after = new.names().unwrap_or_default();
        if new.says == super::source::Says::Twins || (after.is_empty() && self.on_empty == "error") {
            return Judgement::Nonsense;
        }
        let is_allowed = after.is_empty() && self.on_empty == "allow" && self.least == 0;
        let loss = |loses: bool| {
            let is_kept = if after.is_empty() { self.on_empty == "keep" } else { loses && self.on_shrink == "keep" };
            Judgement::Loss { can_be_confirmed: !is_kept }
        };
        let Some(before) = before else { return if is_allowed { Judgement::Good } else { loss(true) } };
        let last = before.last().map_or(&[][..], |last| &last.names);
        if after.is_empty() && !last.is_empty() {
            return if is_allowed { Judgement::Good } else { loss(true) };
        }
        let (of_last, of_hour, peak) = self.losses(before, last, &after, now);
        let is_more = |gone: usize, of: usize| gone * 100 > of * usize::from(self.shrink);
        let is_loss = is_more(of_last, last.len()) || (!after.is_empty() && is_more(of_hour, peak));
        if is_loss || after.len() < self.least || after.len() > self.most {
            return loss(of_last > 0 || of_hour > 0);
        }
        Judgement::Good
    }

    /// How many sets of the `last` answer are gone, how many of the last hour, and the most that one answer had then.
    fn losses(&self, before: &[Believed], last: &[u8], after: &[u8], now: Timestamp) -> (usize, usize, usize) {
        let recent = || before.iter().filter(|believed| believed.is_recent(now));
        let peak = recent().map(|believed| believed.names.len()).max().unwrap_or_default();
        let fewer = peak.saturating_sub(after.len());
        if !self.names_tell(last.len()) || !self.names_tell(after.len()) {
            return (last.len().saturating_sub(after.len()), fewer, peak);
        }
        // Names from before an answer that did not tell them are not remembered.
        let told =
            before.iter().rposition(|believed| !self.names_tell(believed.names.len())).map_or(0, |place| place + 1);
        let mut gone: Vec<u8> = before[told..]
            .iter()
            .filter(|believed| believed.is_recent(now))
            .flat_map(|each| each.names.clone())
            .collect();
        gone.sort_unstable();
        gone.dedup();
        gone.retain(|name| !after.contains(name));
        (last.iter().filter(|name| !after.contains(name)).count(), gone.len().max(fewer), peak)
    }

    /// Whether two answers have the same parameter sets.
    pub fn agree(&self, one: &Ran, other: &Ran) -> bool {
        let names = one.names();
        let are_alike = (one.asked, one.version) == (other.asked, other.version) || names == Some(Vec::new());
        let by_name = names.as_ref().is_some_and(|names| self.names_tell(names.len()));
        names == other.names() && (by_name || are_alike)
    }
}

/// What an answer is after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    Good,
    /// It must be seen again.
    Loss {
        can_be_confirmed: bool,
    },
    /// It cannot be meant.
    Nonsense,
}

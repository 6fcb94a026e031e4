//! What the model's routes promise, in the words of the configuration, and who asks what when.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::source::Ran;
use crate::{
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
    pub least: usize,
    pub most: usize,
    pub shrink: u8,
    /// Whether sets are told apart by their names.
    pub by_name: bool,
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
    least: 0,
    most: 1000,
    shrink: 30,
    by_name: false,
    confirm_after: 2,
    confirm_for: 60,
};

/// The routes of the model.
pub static ROUTES: [Rules; 5] = [
    USUAL,
    Rules { name: "moving", follows: true, by_name: true, ..USUAL },
    Rules { name: "eager", follows: true, ttl: 0, on_empty: "keep", confirm_after: 1, confirm_for: 0, ..USUAL },
    Rules { name: "wary", ttl: 10, while_revalidate: 0, if_error: 3600, on_empty: "error", least: 2, most: 6, ..USUAL },
    Rules { name: "open", follows: true, by_name: true, on_empty: "allow", shrink: 50, confirm_for: 600, ..USUAL },
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
                "identity": if self.by_name { json!(["name"]) } else { json!([]) },
                "confirmAfter": self.confirm_after,
                "confirmFor": seconds(self.confirm_for),
            },
        });
        if self.follows {
            config["lineage"] = json!(["branch"]);
        }
        config
    }

    /// What `new` is after `last`, when `peak` sets were believed of late.
    pub fn judge(&self, last: Option<&Ran>, peak: usize, new: &Ran) -> Judgement {
        let names = |ran: Option<&Ran>| ran.and_then(Ran::names).unwrap_or_default();
        let (before, after) = (names(last), names(Some(new)));
        if new.says == super::source::Says::Twins || (after.is_empty() && self.on_empty == "error") {
            return Judgement::Nonsense;
        }
        if after.is_empty() && !before.is_empty() {
            return match self.on_empty {
                "allow" if self.least == 0 => Judgement::Good,
                "keep" => Judgement::Loss { can_be_confirmed: false },
                _ => Judgement::Loss { can_be_confirmed: true },
            };
        }
        let gone = if self.by_name {
            before.iter().filter(|name| !after.contains(name)).count()
        } else {
            before.len().saturating_sub(after.len())
        };
        let is_more = |gone: usize, of: usize| gone * 100 > of * usize::from(self.shrink);
        let is_loss =
            is_more(gone, before.len()) || (!after.is_empty() && is_more(peak.saturating_sub(after.len()), peak));
        if is_loss || after.len() < self.least || after.len() > self.most {
            let can_be_confirmed = !(after.is_empty() && self.on_empty == "keep");
            return Judgement::Loss { can_be_confirmed };
        }
        Judgement::Good
    }

    /// Whether two answers have the same parameter sets.
    pub fn agree(&self, one: &Ran, other: &Ran) -> bool {
        let names = one.names();
        let are_alike = (one.asked, one.version) == (other.asked, other.version) || names == Some(Vec::new());
        names == other.names() && (self.by_name || are_alike)
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

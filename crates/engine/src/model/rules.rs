//! The rules of the model's routes in the terms of the configuration, and the questions.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};
use tokio::time::Instant;

use domain::{
    clock::{Clock, Timestamp},
    generator::Parameters,
};

/// A wall clock that follows the virtual time, and can be put forward or back.
#[derive(Debug)]
pub(super) struct Wall {
    start: Instant,
    offset: AtomicI64,
}

impl Default for Wall {
    fn default() -> Self {
        Self { start: Instant::now(), offset: AtomicI64::new(1_700_000_000_000) }
    }
}

impl Wall {
    pub(crate) fn jump(&self, seconds: i64) {
        self.offset.fetch_add(seconds * 1000, Ordering::Relaxed);
    }
}

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.start.elapsed().as_millis()).unwrap();
        Timestamp(u64::try_from(self.offset.load(Ordering::Relaxed) + passed).unwrap())
    }
}

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ModelQuery {
    pub route: usize,
    pub branch: u8,
    pub commit: u8,
}

pub(crate) const BRANCHES: u8 = 2;
pub(super) const COMMITS: u8 = 3;

impl ModelQuery {
    pub(super) fn parameters(self) -> Parameters {
        let Self { route, branch, commit } = self;
        json!({"of": route, "branch": branch, "commit": commit}).as_object().unwrap().clone()
    }

    pub(super) fn of(parameters: &Parameters) -> Self {
        let number = |name: &str| u8::try_from(parameters[name].as_u64().unwrap()).unwrap();
        Self { route: number("of").into(), branch: number("branch"), commit: number("commit") }
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        let of_branch = |route, branch| (0..COMMITS).map(move |commit| Self { route, branch, commit });
        (0..ROUTES.len()).flat_map(move |route| (0..BRANCHES).flat_map(move |branch| of_branch(route, branch)))
    }

    pub(super) const fn rules(self) -> &'static Rules {
        &ROUTES[self.route]
    }

    /// The slot with which the next answer is compared.
    pub(super) const fn lineage(self) -> Slot {
        if self.rules().follows { Slot::Lineage(self.route, self.branch) } else { Slot::Own(self) }
    }
}

/// Where an answer is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot {
    /// The answer to a question.
    Own(ModelQuery),
    /// The last answer of a branch, on a route with a lineage.
    Lineage(usize, u8),
}

impl Slot {
    /// A question that reads this slot.
    pub(super) const fn query(self) -> ModelQuery {
        match self {
            Self::Own(query) => query,
            Self::Lineage(route, branch) => ModelQuery { route, branch, commit: 0 },
        }
    }
}

/// How a route identifies its parameter sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleIdentity {
    /// It only counts them.
    Counted,
    /// By their names, as configured.
    Named,
    /// By their names, which the guard finds by itself if both answers have at least two sets.
    Auto,
}

/// The rules of a route; times in seconds.
#[derive(Debug)]
pub(super) struct Rules {
    pub name: &'static str,
    /// Whether commits of a branch share a lineage.
    pub follows: bool,
    pub ttl: u64,
    pub(crate) while_revalidate: u64,
    pub if_error: u64,
    pub(crate) on_empty: &'static str,
    pub(crate) on_shrink: &'static str,
    pub least: usize,
    pub max: usize,
    pub(crate) shrink: u8,
    /// How sets are identified.
    pub identity: RuleIdentity,
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
    max: 1000,
    shrink: 30,
    identity: RuleIdentity::Counted,
    confirm_after: 2,
    confirm_for: 60,
};

/// The routes of the model.
pub(super) static ROUTES: [Rules; 7] = [
    USUAL,
    Rules { name: "moving", follows: true, identity: RuleIdentity::Named, ..USUAL },
    Rules { name: "eager", follows: true, ttl: 0, on_empty: "keep", confirm_after: 1, confirm_for: 0, ..USUAL },
    Rules { name: "wary", ttl: 10, while_revalidate: 0, if_error: 3600, on_empty: "error", least: 2, max: 6, ..USUAL },
    Rules {
        name: "open",
        follows: true,
        identity: RuleIdentity::Named,
        on_empty: "allow",
        shrink: 50,
        confirm_for: 600,
        ..USUAL
    },
    Rules { name: "auto", identity: RuleIdentity::Auto, confirm_after: 3, confirm_for: 300, ..USUAL },
    Rules { name: "kept", follows: true, identity: RuleIdentity::Auto, on_shrink: "keep", ..USUAL },
];

impl Rules {
    pub(super) fn config(&self) -> Value {
        let seconds = |n: u64| format!("{n}s");
        let mut config = json!({
            "name": self.name,
            "cache": {
                "ttl": seconds(self.ttl),
                "staleWhileRevalidate": seconds(self.while_revalidate),
                "staleIfError": seconds(self.if_error),
                // The model foretells each run. `tests/it/prefetch.rs` covers the runs of prefetch.
                "prefetch": false,
            },
            "guard": {
                "onEmpty": self.on_empty,
                "minItems": self.least,
                "maxItems": self.max,
                "maxShrink": format!("{}%", self.shrink),
                "onShrink": self.on_shrink,
                "identity": match self.identity {
                    RuleIdentity::Counted => json!([]),
                    RuleIdentity::Named => json!(["name"]),
                    RuleIdentity::Auto => json!("auto"),
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
}

//! The guard (invariant I4): an answer that would delete Applications is held until further runs agree with it, or an operator releases it.
//! [`Guard::evaluate`] compares an answer with the [`Baseline`], [`Guard::check`] counts the runs that agree, and both are pure.
//! [`HeldAnswers`] stores the held answers.

pub mod baseline;
mod check;
mod held_answers;
mod identities;
pub mod identity;
mod rules;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use crate::guard::identities::usual_key;
pub use crate::guard::{
    baseline::Baseline,
    check::{GuardVerdict, Standing},
    held_answers::{Decision, Held, HeldAnswers},
    identities::Identities,
    identity::Identity,
    rules::InvalidAnswer,
};
use domain::{
    problem::{Path, Problems},
    units::{HumanDuration, Percent},
};

/// The losses that the guard of a route allows from one answer to the next.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GuardConfig {
    /// The treatment of an empty answer after one that was not.
    pub(crate) on_empty: OnEmpty,
    /// The treatment of an answer that loses more than `maxShrink` allows, but is not empty.
    pub(crate) on_shrink: OnShrink,
    /// An answer with fewer parameter sets is held.
    pub(crate) min_items: usize,
    /// An answer with more parameter sets is held.
    pub(crate) max_items: Option<usize>,
    /// An answer is held if it loses more than this share of the last good answer, or of what was accepted within the
    /// last hour.
    pub(crate) max_shrink: Percent,
    /// The keys that identify the Application of a parameter set. `auto`: the first of `name`, `id`, `number`,
    /// `branch`, `cluster`, `server`, `namespace`, `path` and `repository` that identifies all sets, before and after. `[]`: sets are only
    /// counted.
    pub identity: Identity,
    /// How many further runs must agree with a held answer before it is accepted. The gateway makes these runs itself.
    pub confirm_after: u32,
    /// The time between those runs.
    pub confirm_for: HumanDuration,
}

impl GuardConfig {
    /// One that holds nothing.
    pub(crate) fn allowing_all() -> Self {
        Self {
            on_empty: OnEmpty::Allow,
            max_shrink: Percent(100),
            identity: Identity::Keys(Vec::new()),
            ..Self::default()
        }
    }
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self {
            on_empty: OnEmpty::default(),
            on_shrink: OnShrink::default(),
            min_items: 0,
            max_items: None,
            max_shrink: Percent(30),
            identity: Identity::default(),
            confirm_after: 3,
            confirm_for: HumanDuration::from_secs(5 * 60),
        }
    }
}

/// The treatment of an empty answer after one that was not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnEmpty {
    /// It is accepted at once.
    Allow,
    /// It is held until further runs agree.
    #[default]
    Confirm,
    /// It is an error, also where nothing came before.
    Error,
    /// It is held until an operator releases it.
    Keep,
}

/// The treatment of an answer that loses too much, but is not empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnShrink {
    /// It is held until further runs agree.
    #[default]
    Confirm,
    /// It is held until an operator releases it.
    Keep,
}

/// A route's guard.
#[derive(Debug)]
pub struct Guard(GuardConfig);

/// The reason why an answer is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breach {
    /// The reason, for people.
    pub reason: String,
    /// The parameter sets that would be lost, by identity or name; at most a hundred.
    pub gone: Vec<String>,
    /// The keys that identify the sets; empty if sets are only counted.
    #[serde(default)]
    pub identity: Vec<String>,
    /// Whether further runs that agree can release it, without an operator.
    pub can_be_confirmed: bool,
    /// Whether it is held for what was there before, and not for its number of sets alone. Records of earlier versions lack it.
    #[serde(default = "yes")]
    pub is_loss: bool,
}

const fn yes() -> bool {
    true
}

impl Guard {
    /// Checks the rules against each other; `path` is the route's `guard`.
    pub fn build(config: &GuardConfig, path: &Path, problems: &mut Problems) -> Self {
        if config.max_items.is_some_and(|max| max < config.min_items) {
            problems.error(&path.key("maxItems"), "is less than `minItems`, so that every answer would be held");
        }
        let is_idle = |name: &str| {
            (name == "confirmAfter" && config.confirm_after == 0)
                || (name == "confirmFor" && config.confirm_after > 0 && config.confirm_for.0.is_zero())
        };
        for name in ["confirmAfter", "confirmFor"].into_iter().filter(|name| is_idle(name)) {
            problems.warning(
                &path.key(name),
                "with 0 a loss that lasts a moment is accepted",
                "leave it out, or set it to how long the source's hiccups last",
            );
        }
        Self::new(config.clone())
    }

    /// A guard by these rules, which are not checked.
    pub(crate) const fn new(config: GuardConfig) -> Self {
        Self(config)
    }

    /// Whether it holds an answer because of the last good one, which a restart may forget.
    #[must_use]
    pub const fn compares(&self) -> bool {
        matches!(self.0.on_empty, OnEmpty::Confirm | OnEmpty::Keep) || !self.0.max_shrink.is_unlimited()
    }

    /// The rules.
    #[must_use]
    pub const fn config(&self) -> &GuardConfig {
        &self.0
    }
}

/// The first characters of `text`, for a message.
fn short(text: &str) -> String {
    text.chars().take(120).collect()
}

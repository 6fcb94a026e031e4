//! The guard (invariant I4): an answer that would delete Applications is held until it was seen again, or an
//! operator says so. [`Guard::judge`] compares two answers and is pure; [`Ledger`] counts who agrees.

mod ledger;

use std::collections::HashMap;

use foldhash::quality::RandomState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use self::ledger::{Decision, Held, Ledger, Review, Standing};
use crate::{
    generator::{ParameterSet, Parameters},
    problem::{Path, Problems},
    units::{HumanDuration, Percent},
};

/// What a route's answers may lose from one to the next.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GuardConfig {
    /// What an empty answer means after one that was not.
    pub on_empty: OnEmpty,
    /// An answer with fewer parameter sets is held.
    pub min_items: usize,
    /// An answer with more parameter sets is held.
    pub max_items: Option<usize>,
    /// An answer that loses more of the last good one, or of the largest of the last hour, is held.
    pub max_shrink: Percent,
    /// The keys that say which Application a parameter set stands for. Without them sets are counted, so that
    /// one which changed is not one that is gone.
    pub identity: Vec<String>,
    /// How many further runs must agree with a held answer before it is believed.
    pub confirm_after: u32,
    /// How far apart those runs must be.
    pub confirm_for: HumanDuration,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self {
            on_empty: OnEmpty::default(),
            min_items: 0,
            max_items: None,
            max_shrink: Percent(30),
            identity: Vec::new(),
            confirm_after: 2,
            confirm_for: HumanDuration::from_secs(60),
        }
    }
}

/// What an empty answer means after one that was not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnEmpty {
    /// It is believed at once.
    Allow,
    /// It is held until further runs agree.
    #[default]
    Confirm,
    /// It is an error, also where nothing came before.
    Error,
    /// It is held for good.
    Keep,
}

/// A route's guard.
#[derive(Debug)]
pub struct Guard(GuardConfig);

/// Why an answer is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breach {
    /// In words.
    pub reason: String,
    /// The parameter sets that would be gone, by identity or name; a hundred of them at most.
    pub gone: Vec<String>,
    /// Whether agreement of further runs is enough.
    pub can_be_confirmed: bool,
}

impl Guard {
    /// Checks the rules against each other; `path` is the route's `guard`.
    pub fn build(config: &GuardConfig, path: &Path, problems: &mut Problems) -> Self {
        if config.max_items.is_some_and(|most| most < config.min_items) {
            problems.error(&path.key("maxItems"), "is less than `minItems`, so that every answer would be held");
        }
        let is_idle = |name: &str| {
            (name == "confirmAfter" && config.confirm_after == 0)
                || (name == "confirmFor" && config.confirm_after > 0 && config.confirm_for.0.is_zero())
        };
        for name in ["confirmAfter", "confirmFor"].into_iter().filter(|name| is_idle(name)) {
            problems.warning(
                &path.key(name),
                "with 0 a loss that lasts a moment is believed",
                "leave it out, or set it to how long the source's hiccups last",
            );
        }
        Self(config.clone())
    }

    /// Compares `new` with the `last` good answer, and with the `peak`, the most sets that were believed of late: a breach,
    /// or nothing when it may pass. `None` for `last` means that there may have been one, and nobody knows which; an empty
    /// list, that there was none.
    ///
    /// # Errors
    /// When the new answer cannot be meant at all: two sets with one identity, or none where it is needed.
    pub fn judge(
        &self,
        last: Option<&[ParameterSet]>,
        peak: usize,
        new: &[ParameterSet],
    ) -> Result<Option<Breach>, String> {
        let rules = &self.0;
        let is_lost = last.is_none();
        let last = last.unwrap_or_default();
        // One set with nothing before it is nobody's twin.
        let is_alone = new.len() < 2 && last.is_empty() && rules.identity.is_empty();
        let known = if is_alone { Identities::default() } else { self.identities(new)? };
        if new.is_empty() && rules.on_empty == OnEmpty::Error {
            return Err("an empty list, which the route's `guard.onEmpty` calls an error".to_owned());
        }
        // What was let through before is not judged again.
        let is_gone = |set: &&ParameterSet| self.identity(set).is_ok_and(|identity| !known.contains_key(&identity));
        let gone: Vec<&ParameterSet> = last.iter().filter(is_gone).collect();
        let losses = if rules.identity.is_empty() { last.len().saturating_sub(new.len()) } else { gone.len() };
        let gone: Vec<String> = gone.into_iter().take(MOST_GONE).map(|set| self.label(set)).collect();
        let (count, before) = (new.len(), last.len());
        let is_allowed = rules.on_empty == OnEmpty::Allow && rules.min_items == 0;
        let reason = if new.is_empty() && before > 0 {
            (!is_allowed).then(|| format!("an empty list after one of {before}"))
        } else if new.is_empty() && is_lost {
            let reason = "an empty list, while it is not known any more what was there before";
            (!is_allowed).then(|| reason.to_owned())
        } else if count < rules.min_items {
            Some(format!("{count} parameter sets, fewer than `guard.minItems: {}`", rules.min_items))
        } else if let Some(most) = rules.max_items.filter(|most| count > *most) {
            Some(format!("{count} parameter sets, more than `guard.maxItems: {most}`"))
        } else if rules.max_shrink.is_exceeded(losses, before) {
            Some(format!(
                "{losses} of {before} parameter sets would be gone, more than `guard.maxShrink: {}`",
                rules.max_shrink
            ))
        } else if count > 0 && rules.max_shrink.is_exceeded(peak.saturating_sub(count), peak) {
            let losses = peak - count;
            Some(format!(
                "{losses} of the {peak} parameter sets of the last hour would be gone, more than `guard.maxShrink: {}`",
                rules.max_shrink
            ))
        } else {
            None
        };
        let can_be_confirmed = !(new.is_empty() && rules.on_empty == OnEmpty::Keep);
        Ok(reason.map(|reason| Breach { reason, gone, can_be_confirmed }))
    }

    /// What two answers that agree have in common: who is in them.
    fn fingerprint(&self, sets: &[ParameterSet]) -> Result<[u8; 32], String> {
        let mut identities: Vec<String> = self.identities(sets)?.keys().map(Identity::canonical).collect();
        identities.sort_unstable();
        let mut hasher = Sha256::new();
        for identity in identities {
            hasher.update((identity.len() as u64).to_le_bytes());
            hasher.update(identity);
        }
        Ok(hasher.finalize().into())
    }

    /// Who is in `sets`, each with its place.
    fn identities<'a>(&self, sets: &'a [ParameterSet]) -> Result<Identities<'a>, String> {
        let mut identities = Identities::with_capacity_and_hasher(sets.len(), RandomState::default());
        for (index, set) in sets.iter().enumerate() {
            let identity = self.identity(set).map_err(|why| format!("parameter set {index}: {why}"))?;
            if let Some(first) = identities.insert(identity, index) {
                let label = if set.0.is_empty() { "empty".to_owned() } else { format!("`{}`", self.label(set)) };
                return Err(format!("the parameter sets {first} and {index} are both {label}"));
            }
        }
        Ok(identities)
    }

    fn identity<'a>(&self, set: &'a ParameterSet) -> Result<Identity<'a>, String> {
        if self.0.identity.is_empty() {
            return Ok(Identity::Whole(&set.0));
        }
        let part = |key| match set.0.get(key) {
            Some(value) => Ok(value),
            None => Err(format!("it has no `{key}`, which `guard.identity` needs")),
        };
        self.0.identity.iter().map(part).collect::<Result<_, _>>().map(Identity::Parts)
    }

    /// What a parameter set is called in a message: by its identity, else by what names things. Never all of it, which
    /// may hold anything.
    fn label(&self, set: &ParameterSet) -> String {
        let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let by = |names: &[&str]| {
            let parts: Vec<String> = names.iter().filter_map(|name| set.0.get(*name)).map(shown).collect();
            (!parts.is_empty()).then(|| short(&parts.join("/")))
        };
        let identity: Vec<&str> = self.0.identity.iter().map(String::as_str).collect();
        let name = || NAMES.iter().find_map(|name| by(&[name]));
        by(&identity).or_else(name).unwrap_or_else(|| {
            let keys: Vec<&str> = set.0.keys().map(String::as_str).collect();
            if keys.is_empty() { "an empty one".to_owned() } else { short(&format!("one with {}", keys.join(", "))) }
        })
    }
}

/// What generators call the thing that a parameter set stands for.
const NAMES: [&str; 7] = ["name", "branch", "cluster", "path", "id", "number", "url"];
/// How many of those that would be gone are told.
const MOST_GONE: usize = 100;

/// Who is in an answer, each with its place. A set's many parts are hashed one by one, for which the standard library's hash is dear.
type Identities<'a> = HashMap<Identity<'a>, usize, RandomState>;

/// Who a parameter set is, whatever the order of its keys.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'a> {
    /// All of it.
    Whole(&'a Parameters),
    /// These of its values.
    Parts(Vec<&'a Value>),
}

impl Identity<'_> {
    /// JSON with the keys of every object in order.
    fn canonical(&self) -> String {
        let mut value: Value = match self {
            Self::Whole(set) => Value::Object((*set).clone()),
            Self::Parts(values) => values.iter().copied().cloned().collect(),
        };
        value.sort_all_objects();
        value.to_string()
    }
}

fn short(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    pub(super) fn guard(config: &Value) -> Guard {
        let config: GuardConfig = serde_json::from_value(config.clone()).unwrap();
        let mut problems = Problems::default();
        let guard = Guard::build(&config, &Path::root(), &mut problems);
        assert_eq!(problems.into_vec(), vec![]);
        guard
    }

    /// Parameter sets called `names`, each with another digest.
    pub(super) fn sets(names: &[&str], digest: &str) -> Vec<ParameterSet> {
        let set = |name: &&str| ParameterSet(json!({"name": name, "digest": digest}).as_object().unwrap().clone());
        names.iter().map(set).collect()
    }

    #[test]
    fn what_is_held_and_why() {
        let twelve: Vec<String> = (0..12).map(|n| format!("n{n}")).collect();
        let twelve: Vec<&str> = twelve.iter().map(String::as_str).collect();
        let named = json!({"identity": ["name"]});
        for (config, last, new, held) in [
            (json!({}), &twelve[..], &twelve[..], None),
            (json!({}), &twelve, &twelve[..9], None),
            (json!({}), &twelve, &twelve[..8], Some("4 of 12 parameter sets would be gone")),
            (json!({}), &twelve, &[], Some("an empty list after one of 12")),
            (json!({}), &[], &[], None),
            (json!({}), &[], &twelve, None),
            (json!({"onEmpty": "allow"}), &twelve, &[], None),
            (json!({"onEmpty": "allow"}), &twelve, &twelve[..1], Some("11 of 12")),
            (json!({"onEmpty": "allow", "minItems": 5}), &twelve, &[], Some("an empty list")),
            (json!({"onEmpty": "keep"}), &twelve, &[], Some("an empty list")),
            (json!({"maxShrink": "100%"}), &twelve, &twelve[..1], None),
            (json!({"maxShrink": "0%"}), &twelve, &twelve[..11], Some("1 of 12")),
            (json!({"minItems": 2}), &[], &["a"], Some("fewer than `guard.minItems: 2`")),
            (json!({"maxItems": 2}), &[], &twelve, Some("more than `guard.maxItems: 2`")),
            // Sets are counted, unless it is known which is which.
            (json!({}), &["a", "b"], &["c", "d"], None),
            (named.clone(), &["a", "b"], &["c", "d"], Some("2 of 2")),
            (named, &["a", "b"], &["b", "a"], None),
        ] {
            let breach = guard(&config).judge(Some(&sets(last, "1")), 0, &sets(new, "2")).unwrap();
            match held {
                None => assert_eq!(breach, None, "{config} {last:?} {new:?}"),
                Some(reason) => assert!(breach.as_ref().unwrap().reason.contains(reason), "{breach:?}"),
            }
        }
        let breach =
            guard(&json!({"identity": ["name"]})).judge(Some(&sets(&["a", "b"], "1")), 0, &[]).unwrap().unwrap();
        assert_eq!(breach.gone, ["a", "b"]);
        let small = guard(&json!({})).judge(Some(&sets(&["a", "b", "c"], "1")), 12, &sets(&["a", "b", "c"], "1"));
        assert!(small.unwrap().unwrap().reason.contains("9 of the 12 parameter sets of the last hour"));
        let lost = |config: &Value, new: &[&str]| guard(config).judge(None, 0, &sets(new, "1")).unwrap();
        let breach = lost(&json!({}), &[]).unwrap();
        assert!(breach.reason.contains("not known any more") && breach.can_be_confirmed);
        assert_eq!([lost(&json!({}), &["a"]), lost(&json!({"onEmpty": "allow"}), &[])], [None, None]);
    }

    #[test]
    fn what_cannot_be_meant_is_an_error() {
        let judge = |config: &Value, new: &[ParameterSet]| guard(config).judge(Some(&[]), 0, new).unwrap_err();
        let twins = [sets(&["a"], "1"), sets(&["a"], "2")].concat();
        let error = judge(&json!({"identity": ["name"]}), &twins);
        assert_eq!(error, "the parameter sets 0 and 1 are both `a`");
        assert!(judge(&json!({}), &sets(&["a", "a"], "1")).contains("0 and 1"));
        let empty = [ParameterSet::default(), ParameterSet::default()];
        assert_eq!(judge(&json!({}), &empty), "the parameter sets 0 and 1 are both empty");
        assert!(guard(&json!({})).judge(Some(&[]), 0, &twins).is_ok());
        assert!(judge(&json!({"identity": ["id"]}), &twins).contains("parameter set 0: it has no `id`"));
        assert!(judge(&json!({"onEmpty": "error"}), &[]).contains("onEmpty"));
    }
}

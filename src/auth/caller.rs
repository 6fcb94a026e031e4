//! Who a caller is, and why somebody is none.

use std::{borrow::Cow, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{Allowance, CallPermit, Excess, Scope};
use crate::domain::problem::{Path, Problems};

/// What a token is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Role {
    /// To ask routes, as Argo CD does.
    #[default]
    Caller,
    /// To see and change what is remembered and held, on the admin listener.
    Admin,
}

/// An authenticated caller.
#[derive(Debug, Clone)]
pub struct Caller {
    /// What it is called in logs.
    pub name: String,
    /// What it is for.
    pub(crate) role: Role,
    scope: Scope,
    allowance: Arc<Allowance>,
}

impl Caller {
    /// The caller called `name`, which may ask what `scope` holds if its `role` lets it ask at all, and no more than `allowance`.
    #[must_use]
    pub(crate) const fn new(name: String, role: Role, scope: Scope, allowance: Arc<Allowance>) -> Self {
        Self { name, role, scope, allowance }
    }

    /// A turn for one more call, once it has one.
    ///
    /// # Errors
    /// When it would have none `until` then.
    pub(crate) async fn enter(&self, until: Instant) -> Result<CallPermit, Excess> {
        self.allowance.enter(until).await
    }

    /// What it is called, and how much it may ask.
    pub(super) fn allowance(&self) -> (&str, &Arc<Allowance>) {
        (&self.name, &self.allowance)
    }

    /// The same, to be put in another's place.
    pub(super) fn allowance_mut(&mut self) -> (&str, &mut Arc<Allowance>) {
        (&self.name, &mut self.allowance)
    }

    /// Whether it may ask `route`.
    #[must_use]
    pub(crate) fn may_ask(&self, route: &str) -> bool {
        self.role == Role::Caller && self.scope.has_route(route)
    }

    /// Whether it may ask for the ApplicationSet that a call names.
    #[must_use]
    pub(crate) fn may_ask_for(&self, application_set: &str) -> bool {
        self.role == Role::Caller && self.scope.has_application_set(application_set)
    }
}

/// Why a caller is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The token is missing, malformed, forged or nobody's. The text is for the log alone.
    Wrong(Cow<'static, str>),
    /// The token is genuine, and does not do.
    Unfit {
        /// What its holder is called, as far as that is known.
        who: Option<String>,
        /// Why it does not do, which its holder is told.
        why: String,
    },
    /// Whoever vouches for it is asked about too many from where it came, until that time has passed.
    Later(Duration),
    /// Whoever vouches for it cannot be asked now. The text is for the log alone.
    Unknown(String),
}

impl Refused {
    /// With the reason.
    pub(super) fn wrong(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Wrong(why.into())
    }

    /// With the reason, where it is not known what the token's holder is called.
    pub(super) fn unfit(why: impl Into<String>) -> Self {
        Self::Unfit { who: None, why: why.into() }
    }

    /// What two refusals of one token come to: what is not known before what is, and what a genuine token lacks before what makes it
    /// none.
    pub(super) fn or(self, other: Self) -> Self {
        let rank = |refused: &Self| match refused {
            Self::Wrong(_) => 0,
            Self::Unfit { .. } => 1,
            Self::Later(_) | Self::Unknown(_) => 2,
        };
        if rank(&other) >= rank(&self) { other } else { self }
    }
}

/// Notes a name that no log line could show.
pub(super) fn check_name(name: &str, path: &Path, problems: &mut Problems) {
    if name.is_empty() || name.chars().any(char::is_control) {
        problems.error(path, "a caller needs a printable name");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_asks_nothing() {
        let caller = |role| Caller::new("a".to_owned(), role, Scope::all(), Arc::default());
        assert!(caller(Role::Caller).may_ask("r") && caller(Role::Caller).may_ask_for("a"));
        assert!(!caller(Role::Admin).may_ask("r") && !caller(Role::Admin).may_ask_for("a"));
    }

    #[test]
    fn what_is_not_known_is_told_before_what_is() {
        let (wrong, unfit) = (Refused::wrong("a"), Refused::unfit("b"));
        let unknown = Refused::Unknown("c".to_owned());
        assert_eq!(wrong.clone().or(unfit.clone()), unfit);
        assert_eq!(unfit.clone().or(wrong.clone()), unfit);
        assert_eq!(unknown.clone().or(unfit).or(wrong), unknown);
    }
}

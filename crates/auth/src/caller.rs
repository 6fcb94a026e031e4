//! An authenticated caller, and the reasons to refuse one.

use std::{borrow::Cow, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{Allowance, CallPermit, Excess, Scope};
use domain::{
    clock::Timestamp,
    problem::{Path, Problems},
};

/// The rights of a caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Call routes, as Argo CD does.
    #[default]
    Caller,
    /// List and change remembered and held answers, on the admin listener.
    Admin,
    /// List what an admin can list, on the admin listener, and change nothing.
    Viewer,
    /// Send events to the hooks that name it as `caller`, and nothing else.
    Sender,
}

impl Role {
    /// Its name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Admin => "admin",
            Self::Viewer => "viewer",
            Self::Sender => "sender",
        }
    }

    /// Whether it may read everything on the admin listener.
    #[must_use]
    pub const fn may_look(self) -> bool {
        matches!(self, Self::Admin | Self::Viewer)
    }
}

/// An authenticated caller.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Its name in logs.
    pub name: String,
    /// Its role.
    pub role: Role,
    scope: Scope,
    allowance: Arc<Allowance>,
}

impl Caller {
    /// The caller called `name`. Its `scope` and `allowance` count only if its `role` may call routes.
    #[must_use]
    pub const fn new(name: String, role: Role, scope: Scope, allowance: Arc<Allowance>) -> Self {
        Self { name, role, scope, allowance }
    }

    /// Waits for a permit for one more call.
    ///
    /// # Errors
    /// When the permit would come after `until`.
    pub async fn enter(&self, until: Instant) -> Result<CallPermit, Excess> {
        self.allowance.enter(until).await
    }

    /// Notes that it sends the question `id`, a hash, at the time `now`.
    ///
    /// # Errors
    /// When it is one question too many within a day.
    pub fn note_question(&self, id: u64, now: impl FnOnce() -> Timestamp) -> Result<(), Excess> {
        self.allowance.note_question(id, now)
    }

    /// Its name and its allowance.
    pub(super) fn allowance(&self) -> (&str, &Arc<Allowance>) {
        (&self.name, &self.allowance)
    }

    /// The same, for replacing the allowance.
    pub(super) fn allowance_mut(&mut self) -> (&str, &mut Arc<Allowance>) {
        (&self.name, &mut self.allowance)
    }

    /// Whether it may ask `route`.
    #[must_use]
    pub fn may_ask(&self, route: &str) -> bool {
        self.role == Role::Caller && self.scope.has_route(route)
    }

    /// Whether it may ask for the ApplicationSet that a call names.
    #[must_use]
    pub fn may_ask_for(&self, application_set: &str) -> bool {
        self.role == Role::Caller && self.scope.has_application_set(application_set)
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The token is missing, malformed, forged or unknown. The text is for the log only.
    Wrong(Cow<'static, str>),
    /// The token is genuine but not sufficient.
    Unfit {
        /// The name of its holder, if known.
        who: Option<String>,
        /// The reason, which the answer names.
        why: String,
    },
    /// Too many unknown tokens came from this address. The next one is checked after this time.
    Later(Duration),
    /// The issuer or API server cannot be reached now. The text is for the log only.
    Unknown(String),
}

impl Refused {
    /// A wrong token, with the reason.
    pub(super) fn wrong(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Wrong(why.into())
    }

    /// An insufficient token, with the reason; its holder's name is not known.
    pub(super) fn unfit(why: impl Into<String>) -> Self {
        Self::Unfit { who: None, why: why.into() }
    }

    /// The more important of two refusals of one token: unknown before insufficient before wrong. Of equal ones, the later.
    pub(super) fn or(self, other: Self) -> Self {
        let rank = |refused: &Self| match refused {
            Self::Wrong(_) => 0,
            Self::Unfit { .. } => 1,
            Self::Later(_) | Self::Unknown(_) => 2,
        };
        if rank(&other) >= rank(&self) { other } else { self }
    }
}

/// Notes a name that a log line cannot show.
pub(super) fn check_name(name: &str, path: &Path, problems: &mut Problems) {
    if name.is_empty() || name.chars().any(char::is_control) {
        problems.error(path, "a caller needs a printable name");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_role_caller_may_call_routes() {
        let caller = |role| Caller::new("a".to_owned(), role, Scope::all(), Arc::default());
        assert!(caller(Role::Caller).may_ask("r") && caller(Role::Caller).may_ask_for("a"));
        for role in [Role::Admin, Role::Viewer, Role::Sender] {
            assert!(!caller(role).may_ask("r") && !caller(role).may_ask_for("a"), "{role:?}");
        }
    }

    #[test]
    fn unknown_comes_before_insufficient_and_wrong() {
        let (wrong, unfit) = (Refused::wrong("a"), Refused::unfit("b"));
        let unknown = Refused::Unknown("c".to_owned());
        assert_eq!(wrong.clone().or(unfit.clone()), unfit);
        assert_eq!(unfit.clone().or(wrong.clone()), unfit);
        assert_eq!(unknown.clone().or(unfit).or(wrong), unknown);
    }
}

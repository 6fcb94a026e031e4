//! The rights that one entry of `auth` grants its callers. The four kinds of entries (`tokens`, `jwt`, `tokenReview.callers`, `certificates`) share
//! these keys, and this is the one place that defines and checks them.

use std::sync::Arc;

use super::{Allowance, CallLimits, Caller, Role, Scope};
use domain::problem::{Path, Problems};

/// Defines the configuration of one kind of `auth` entry: its own keys, then the keys that all kinds share.
///
/// This is a macro because `#[serde(flatten)]` loses the paths of errors and does not work with `deny_unknown_fields`.
macro_rules! entry_config {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_visibility:vis $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        $visibility struct $name {
            $($(#[$field_meta])* $field_visibility $field: $type,)*
            /// The routes that its callers may ask, as globs over route names. All routes unless set. Only with the role `caller`.
            pub routes: Option<Vec<String>>,
            /// The ApplicationSets that its callers may ask for, as globs over the name in the call. All ApplicationSets unless set. The
            /// caller chooses that name, so this prevents mistakes and proves nothing. Only with the role `caller`.
            pub application_sets: Option<Vec<String>>,
            /// How many calls per second its callers may make together; no limit unless set. Further calls wait for a permit. A call whose
            /// permit would come after its deadline gets a 429.
            #[schemars(range(min = 1))]
            pub rate: Option<u32>,
            /// How many calls of its callers may be in flight at the same time; no limit unless set. Further calls wait for a permit. A call whose
            /// permit would come after its deadline gets a 429.
            #[schemars(range(min = 1))]
            pub concurrency: Option<usize>,
            /// How many different questions its callers may ask together within a day; no limit unless set. A question is a route with input
            /// parameters, and counts until it was not sent for a day. One more gets a 429; those that were sent before are answered.
            #[schemars(range(min = 1, max = 1_000_000))]
            pub(crate) max_questions: Option<usize>,
        }

        impl $name {
            /// The rights of the entry's callers with this `role`.
            pub(crate) fn grants(&self, role: $crate::Role) -> $crate::grants::Grants<'_> {
                $crate::grants::Grants {
                    role,
                    routes: self.routes.as_deref(),
                    application_sets: self.application_sets.as_deref(),
                    limits: $crate::CallLimits {
                        rate: self.rate,
                        concurrency: self.concurrency,
                        max_questions: self.max_questions,
                    },
                }
            }
        }
    };
}
pub(crate) use entry_config;

/// The rights of one entry, as in the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grants<'a> {
    pub role: Role,
    pub routes: Option<&'a [String]>,
    pub application_sets: Option<&'a [String]>,
    pub limits: CallLimits,
}

impl Grants<'_> {
    /// The caller called `name` with these grants. The entry is at `path`.
    pub(crate) fn caller(self, name: &str, path: &Path, problems: &mut Problems) -> Option<Caller> {
        let scope = self.scope(path, problems);
        let allowance = self.allowance(path, problems);
        Some(Caller::new(name.to_owned(), self.role, scope?, allowance))
    }

    /// Which routes and ApplicationSets the callers may ask.
    pub(crate) fn scope(self, path: &Path, problems: &mut Problems) -> Option<Scope> {
        Scope::build(self.role, self.routes, self.application_sets, path, problems)
    }

    /// How much the callers may ask.
    pub(crate) fn allowance(self, path: &Path, problems: &mut Problems) -> Arc<Allowance> {
        Allowance::build(self.limits, path, problems)
    }

    /// Whether `other` grants the same. Leaving a list of globs out means `*`.
    pub(crate) fn is_same(self, other: Self) -> bool {
        let any = ["*".to_owned()];
        self.role == other.role
            && self.routes.unwrap_or(&any) == other.routes.unwrap_or(&any)
            && self.application_sets.unwrap_or(&any) == other.application_sets.unwrap_or(&any)
            && self.limits == other.limits
    }
}

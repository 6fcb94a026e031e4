//! `now` in templates and expressions: the time, in whole seconds since 1970.
//!
//! An answer that used it may be another one as soon as time passes, although its source has not changed. When that is cannot be known from the
//! expression, so such an answer is fresh for at most [`LIFE`].

use std::{fmt, sync::Arc, time::Duration};

use domain::{clock::Clock, generator::Outcome};

/// The name of the variable.
pub(crate) const NOW: &str = "now";
/// How long an answer that used `now` is fresh, at most.
const LIFE: Duration = Duration::from_mins(1);

/// The clock of the variable.
#[derive(Clone)]
pub(crate) struct Now(Arc<dyn Clock>);

impl Now {
    /// That of `clock`.
    pub(crate) fn of(clock: &Arc<dyn Clock>) -> Self {
        Self(Arc::clone(clock))
    }

    /// The value of the variable. One answer has one.
    pub(crate) fn seconds(&self) -> u64 {
        self.0.now().0 / 1000
    }
}

impl fmt::Debug for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Now")
    }
}

/// `outcome`, which used `now`. `life` is how long it is fresh otherwise, if its source says so.
pub(crate) fn limit(outcome: Outcome, life: Option<Duration>) -> Outcome {
    outcome.lasting_at_most(life.map_or(LIFE, |life| life.min(LIFE)))
}

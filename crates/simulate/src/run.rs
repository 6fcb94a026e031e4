//! Runs a seed, and makes the plan of one that fails small.

use std::{sync::Arc, time::Duration};

use crate::{
    disk::Writers,
    history::{History, Invariant, Violation, shown},
    plan::Plan,
    seed::Seed,
    world::{World, in_simulated_time},
};
use telemetry::metrics::Metrics;

/// How many runs shrinking takes at most.
const MOST_RUNS: usize = 80;

/// The events that must have been tried in a simulated day, at least. An invariant that holds because nothing happened proves nothing.
const LEAST_A_DAY: [(&str, u64); 13] = [
    ("call", 1000),
    ("reconciled", 500),
    ("Application created", 4),
    ("Application deleted", 2),
    ("true change", 15),
    ("lie", 2),
    ("link fault", 1),
    ("source fault", 1),
    ("answer with elements", 200),
    ("operator", 1),
    ("store or process fault", 1),
    ("delivery", 2),
    ("refresh", 4),
];

/// The result of a run.
pub struct Outcome {
    /// The plan.
    pub plan: Plan,
    /// The events.
    pub history: Arc<History>,
    /// How long it was, in simulated time.
    pub lasted: Duration,
}

impl Outcome {
    /// The invariant that did not hold, if one did not.
    pub fn violation(&self) -> Option<Violation> {
        self.history.violation()
    }

    /// The failing run in plain sentences: its events, and the violation.
    pub fn describe(&self) -> String {
        let Some(violation) = self.violation() else { return "no violation\n".to_owned() };
        format!(
            "seed {}: at {}, a violation of\n  {}\n  {}\n\nwhat was done ({:?}):\n{}\nwhat happened at last:\n{}",
            self.plan.seed,
            shown(violation.at),
            violation.invariant,
            violation.seen,
            self.plan.deployed,
            self.plan.describe(),
            self.history.last(60),
        )
    }
}

/// Runs `plan`.
///
/// # Errors
/// When the system gives no runtime or no metrics.
fn run_plan(plan: &Plan) -> std::io::Result<Outcome> {
    let metrics = Arc::new(Metrics::new().map_err(std::io::Error::other)?);
    let writers = Arc::<Writers>::default();
    in_simulated_time(&writers, async {
        let world = World::run(plan, &metrics, &writers).await?;
        let history = Arc::clone(&world.history);
        let lasted = history.now();
        Ok(Outcome { plan: plan.clone(), history, lasted })
    })?
}

/// Runs `seed` for so long. A run that tried too little fails.
///
/// # Errors
/// As [`run_plan`].
pub fn run(seed: Seed, lasts: Duration) -> std::io::Result<Outcome> {
    let outcome = run_plan(&Plan::of(seed, lasts))?;
    if outcome.violation().is_none() {
        check_what_was_tried(&outcome);
    }
    Ok(outcome)
}

/// Checks that `outcome` tried enough. Else that is a violation.
fn check_what_was_tried(outcome: &Outcome) {
    let (hours, counts) = (outcome.lasted.as_secs() / 3600, outcome.history.counts());
    for (what, least_a_day) in LEAST_A_DAY {
        let (tried, least) = (counts.get(what).copied().unwrap_or_default(), least_a_day * hours / 24);
        if tried < least {
            let seen = format!("too little was tried: {what}, {tried} of at least {least}");
            outcome.history.violate(Invariant::Progress, seen);
        }
    }
}

/// The smallest plan found that violates the same invariant, with its events.
///
/// # Errors
/// As [`run_plan`].
pub fn shrink(failed: Outcome) -> std::io::Result<Outcome> {
    let Some(violation) = failed.violation() else { return Ok(failed) };
    let is_same = |outcome: &Outcome| outcome.violation().is_some_and(|other| other.invariant == violation.invariant);
    let mut best = failed;
    best.plan.acts.retain(|(at, _)| *at <= violation.at);
    let (mut runs, mut part) = (0, best.plan.acts.len().div_ceil(2));
    while part > 0 && runs < MOST_RUNS {
        let mut from = 0;
        while from < best.plan.acts.len() && runs < MOST_RUNS {
            let mut plan = best.plan.clone();
            plan.acts.drain(from..(from + part).min(plan.acts.len()));
            let outcome = run_plan(&plan)?;
            runs += 1;
            if is_same(&outcome) {
                best = outcome;
            } else {
                from += part;
            }
        }
        part = if part == 1 { 0 } else { part.div_ceil(2) };
    }
    Ok(best)
}

#[cfg(test)]
mod tests;

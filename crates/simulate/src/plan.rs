//! The events of a run beside the calls: a list that follows from the seed. Shrinking leaves parts of it out.

mod act;
mod draw;

use std::{fmt::Write as _, time::Duration};

use fastrand::Rng;

pub use self::act::{Act, Delivery};
use self::draw::{beside, fault, lie, operator, truth};
use crate::{
    fleet::{Deployed, MACHINES},
    history::shown,
    seed::Seed,
};

/// Draws an act.
type Draw = fn(&mut Rng) -> Act;

/// The acts of a run with their times, in order.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed from which all else follows.
    pub seed: Seed,
    /// How long the run takes.
    pub lasts: Duration,
    /// How the gateway is deployed.
    pub deployed: Deployed,
    /// The acts.
    pub acts: Vec<(Duration, Act)>,
}

impl Plan {
    /// The plan of `seed` for a run of so long.
    pub fn of(seed: Seed, lasts: Duration) -> Self {
        let mut acts = Vec::new();
        let kinds: [(&str, u64, Draw); 4] =
            [("truth", 1800, truth), ("fault", 4200, fault), ("lie", 9000, lie), ("operator", 9000, operator)];
        for (kind, every, act) in kinds {
            let mut dice = seed.dice(kind);
            let mut at = Duration::from_mins(10);
            loop {
                at += Duration::from_millis(dice.u64(..every * 2000));
                if at >= lasts {
                    break;
                }
                let begun = act(&mut dice);
                acts.extend(beside(at, &begun, &mut dice));
                acts.push((at, begun));
                // A second one close to it, now and then: trouble comes in twos.
                if dice.u8(..3) == 0 {
                    acts.push((at + Duration::from_millis(dice.u64(..90_000)), act(&mut dice)));
                }
            }
        }
        acts.sort_by_key(|(at, _)| *at);
        let mut dice = seed.dice("deployed");
        let count = dice.usize(1..=MACHINES);
        let deployed = match dice.u8(..4) {
            0 => Deployed::Alone,
            1 => Deployed::ReplicasWithFiles(count),
            _ => Deployed::Replicas(count),
        };
        Self { seed, lasts, deployed, acts }
    }

    /// The acts, one a line.
    pub fn describe(&self) -> String {
        let line = |mut text: String, (at, act): &(Duration, Act)| {
            let _ = writeln!(text, "{}  {act}", shown(*at));
            text
        };
        self.acts.iter().fold(String::new(), line)
    }
}

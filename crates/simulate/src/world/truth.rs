//! What truly changes.

use std::time::Duration;

use fastrand::Rng;

use super::World;
use crate::plan::Act;

impl World {
    /// The items of a list change.
    pub(super) fn change_list(&self, act: &Act, now: Duration, dice: &mut Rng) {
        let mut truth = self.truth.lock();
        let said = match *act {
            Act::Add(set) => format!("{} exists", truth.add(set, now, dice)),
            Act::Remove(set) | Act::RemoveHalf(set) => {
                let mut items = truth.items(set);
                dice.shuffle(&mut items);
                let count = if matches!(act, Act::Remove(_)) { 1 } else { items.len() / 2 };
                items.truncate(count.min(items.len().saturating_sub(set.least())));
                for name in &items {
                    truth.remove(set, name, now);
                }
                format!("gone: {}", items.join(", "))
            }
            _ => return,
        };
        drop(truth);
        self.history.say(said);
    }

    /// The pull requests change.
    pub(super) fn change_branches(&self, act: &Act, now: Duration, dice: &mut Rng) {
        let mut truth = self.truth.lock();
        if let Act::Open(builds) = *act {
            let name = truth.open_branch(now);
            let commit = truth.push(&name, Some(now + Duration::from_secs(builds)));
            drop(truth);
            return self.history.say(format!("{name} is open with {commit}"));
        }
        let among: Vec<String> = match act {
            Act::Reopen => truth.closed().cloned().collect(),
            _ => truth.open().map(|(name, _)| name.clone()).collect(),
        };
        if among.is_empty() {
            return;
        }
        let name = &among[dice.usize(..among.len())];
        let said = match *act {
            Act::Push(builds, passes) => {
                let commit = truth.push(name, passes.then(|| now + Duration::from_secs(builds)));
                format!("{name} has {commit}")
            }
            Act::Park if truth.park(name, now) => format!("{name} is parked"),
            Act::Park => format!("{name} is parked no longer"),
            _ => {
                let is_open = *act == Act::Reopen;
                truth.set_open(name, now, is_open);
                format!("{name} is {}", if is_open { "open again" } else { "closed" })
            }
        };
        drop(truth);
        self.history.say(said);
    }
}

//! The events of a run beside the calls: a list that follows from the seed. Shrinking leaves parts of it out.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use fastrand::Rng;

use crate::{
    api::ApiState,
    disk::DiskState,
    fleet::{Deployed, MACHINES},
    history::shown,
    link::LinkState,
    seed::Seed,
    sources::Trouble,
    truth::Set,
    volume::Damage,
};

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// An item comes to truly exist.
    Add(Set),
    /// An item ceases to exist.
    Remove(Set),
    /// Half of all items cease to exist.
    RemoveHalf(Set),
    /// A pull request is opened; CI takes this many seconds for its first commit.
    Open(u64),
    /// A pull request is closed.
    Close,
    /// A commit is pushed. CI takes this many seconds, and passes it or not.
    Push(u64, bool),
    /// A source is in trouble for this many seconds.
    Source(Set, Trouble, u64),
    /// The way from a machine to the store is in this state for so many seconds.
    Link(usize, LinkState, u64),
    /// The way from Argo CD to a machine is in this state for so many seconds.
    Calls(usize, LinkState, u64),
    /// The store is away for so many seconds.
    StoreAway(u64),
    /// The store refuses to write for so many seconds.
    StoreReadOnly(u64),
    /// The store fails over, and the last second is lost.
    FailOver,
    /// The store is emptied.
    Emptied,
    /// The store goes back to its content of so many seconds before.
    Backup(u64),
    /// A process is killed, and starts again after so many seconds.
    Kill(usize, u64),
    /// The disk of a machine is in this state for so many seconds.
    Disk(usize, DiskState, u64),
    /// A process is killed, and its volume is damaged meanwhile.
    Damage(usize, u64, Damage),
    /// The clock of a machine is put forward or back, by so many seconds.
    Jump(usize, i64),
    /// All processes are replaced, one after the other.
    RollOut,
    /// Another number of processes is wanted.
    Scale(usize),
    /// Other times for the cache.
    Reload,
    /// A route gets another name.
    Rename(Set),
    /// An operator invalidates the answers of a route.
    Invalidate(Set),
    /// A source loses most of its items for forty minutes, and an operator rejects that.
    Reject(Set),
    /// An operator releases the held answers of a route, right or wrong.
    Release(Set),
    /// An ApplicationSet is annotated, so that it is reconciled now.
    Refresh(Set),
    /// Something new comes to exist, and a webhook reports it.
    Deliver(Set, Delivery),
    /// Argo CD's API server is in this state for so many seconds.
    Api(ApiState, u64),
}

/// How a webhook is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// At once.
    InTime,
    /// So many seconds before the source has what it reports.
    Early(u64),
    /// So many seconds later.
    Late(u64),
    /// Twice, with so many seconds between.
    Twice(u64),
    /// Never.
    Lost,
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(set) => write!(f, "one more of {} comes to exist", set.name()),
            Self::Remove(set) => write!(f, "one of {} ceases to exist", set.name()),
            Self::RemoveHalf(set) => write!(f, "half of {} cease to exist", set.name()),
            Self::Open(builds) => write!(f, "a pull request is opened, and CI takes {builds} s"),
            Self::Close => write!(f, "a pull request is closed"),
            Self::Push(builds, passes) => {
                write!(f, "a commit is pushed, which CI {} after {builds} s", if *passes { "passes" } else { "fails" })
            }
            Self::Source(set, trouble, lasts) => write!(f, "the source of {}: {trouble:?} for {lasts} s", set.name()),
            Self::Link(machine, state, lasts) => {
                write!(f, "the link of machine {machine} to the store: {state:?} for {lasts} s")
            }
            Self::Calls(machine, state, lasts) => {
                write!(f, "the link of Argo CD to machine {machine}: {state:?} for {lasts} s")
            }
            Self::StoreAway(lasts) => write!(f, "the store is away for {lasts} s"),
            Self::StoreReadOnly(lasts) => write!(f, "the store refuses to write for {lasts} s"),
            Self::FailOver => write!(f, "the store fails over and loses its last second"),
            Self::Emptied => write!(f, "the store is emptied"),
            Self::Backup(since) => write!(f, "a backup of the store is made, and restored after {since} s"),
            Self::Kill(machine, later) => {
                write!(f, "the process of machine {machine} is killed, and starts again after {later} s")
            }
            Self::Disk(machine, state, lasts) => write!(f, "the disk of machine {machine}: {state:?} for {lasts} s"),
            Self::Damage(machine, later, damage) => {
                write!(
                    f,
                    "the process of machine {machine} is killed, its file damaged ({damage:?}), and it starts after {later} s"
                )
            }
            Self::Jump(machine, by) => write!(f, "the clock of machine {machine} jumps by {by} s"),
            Self::RollOut => write!(f, "all processes are replaced"),
            Self::Scale(count) => write!(f, "{count} processes are wanted"),
            Self::Reload => write!(f, "the cache's times are changed"),
            Self::Rename(set) => write!(f, "the route of {} is renamed", set.name()),
            Self::Invalidate(set) => write!(f, "an operator invalidates the answers for {}", set.name()),
            Self::Reject(set) => {
                write!(f, "the source of {} loses most for forty minutes, and an operator rejects that", set.name())
            }
            Self::Release(set) => write!(f, "an operator releases what is held for {}", set.name()),
            Self::Refresh(set) => write!(f, "ApplicationSet {} is annotated", set.name()),
            Self::Deliver(set, delivery) => write!(f, "a webhook reports one more of {}: {delivery:?}", set.name()),
            Self::Api(state, lasts) => write!(f, "Argo CD's API server: {state:?} for {lasts} s"),
        }
    }
}

impl Act {
    /// Whether replicas stay in contact with the store while it lasts.
    pub const fn leaves_contact(&self) -> bool {
        matches!(self, Self::Source(..) | Self::Reject(_) | Self::Calls(..) | Self::Backup(_) | Self::Deliver(..))
    }

    /// Its kind, for counting.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Add(_)
            | Self::Remove(_)
            | Self::RemoveHalf(_)
            | Self::Open(_)
            | Self::Close
            | Self::Push(..)
            | Self::Deliver(..) => "true change",
            Self::Source(..) => "trouble of a source",
            Self::Link(..) | Self::Calls(..) | Self::Api(..) => "link fault",
            Self::StoreAway(_)
            | Self::StoreReadOnly(_)
            | Self::FailOver
            | Self::Emptied
            | Self::Backup(_)
            | Self::Kill(..)
            | Self::Disk(..)
            | Self::Damage(..)
            | Self::Jump(..) => "store or process fault",
            Self::RollOut | Self::Scale(_) | Self::Reload | Self::Rename(_) => "rollout",
            Self::Invalidate(_) | Self::Reject(_) | Self::Release(_) | Self::Refresh(_) => "operator",
        }
    }
}

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
                // Whoever is cut off from what changes is wrong. If nothing changes, nobody would see it.
                if let Act::Link(_, _, lasts) = begun
                    && lasts > SHORT
                {
                    let changes = dice.u64(1..=3);
                    acts.extend(
                        (0..changes).map(|_| (at + Duration::from_secs(dice.u64(..lasts.min(600))), truth(&mut dice))),
                    );
                }
                if let Act::Disk(machine, _, lasts) = begun {
                    acts.extend(beside_disk(at, machine, lasts, &mut dice));
                }
                // The same for refreshes that do not arrive.
                if let Act::Api(_, lasts) = begun {
                    acts.push((at + Duration::from_secs(dice.u64(..lasts)), deliver(&mut dice)));
                }
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

fn any(dice: &mut Rng) -> Set {
    Set::ALL[dice.usize(..Set::ALL.len())]
}

fn list(dice: &mut Rng) -> Set {
    Set::LISTS[dice.usize(..Set::LISTS.len())]
}

fn truth(dice: &mut Rng) -> Act {
    match dice.u8(..20) {
        0..5 => Act::Add(list(dice)),
        5 | 6 => deliver(dice),
        7..12 => Act::Remove(list(dice)),
        12 => Act::RemoveHalf(list(dice)),
        13 | 14 => Act::Open(dice.u64(20..1200)),
        15 => Act::Close,
        _ => Act::Push(dice.u64(20..1200), dice.u8(..4) > 0),
    }
}

/// What happens while a disk does not write: things change, and a process ends, when sometimes a source is wrong.
fn beside_disk(at: Duration, machine: usize, lasts: u64, dice: &mut Rng) -> Vec<(Duration, Act)> {
    let seconds = Duration::from_secs;
    let changes = dice.u64(1..=3);
    let mut acts: Vec<_> = (0..changes).map(|_| (at + seconds(dice.u64(..lasts)), truth(dice))).collect();
    acts.push((at + seconds(1), Act::Open(dice.u64(20..200))));
    let ends = at + seconds(dice.u64(lasts / 2..=lasts * 2));
    acts.push((ends, if dice.bool() { Act::Kill(machine, 5) } else { Act::Damage(machine, 5, Damage::PowerCut) }));
    if dice.bool() {
        let begins = ends.saturating_sub(seconds(dice.u64(..60)));
        acts.push((begins, Act::Source(Set::Previews, Trouble::LosesAll, dice.u64(300..1500))));
    }
    acts
}

fn deliver(dice: &mut Rng) -> Act {
    let delivery = match dice.u8(..10) {
        0..3 => Delivery::InTime,
        3..5 => Delivery::Early(dice.u64(1..60)),
        5 | 6 => Delivery::Late(dice.u64(1..300)),
        7 | 8 => Delivery::Twice(dice.u64(..20)),
        _ => Delivery::Lost,
    };
    Act::Deliver(any(dice), delivery)
}

fn api(dice: &mut Rng) -> ApiState {
    match dice.u8(..7) {
        0 | 1 => ApiState::Away,
        2 => ApiState::Silent,
        3 => ApiState::OneWay,
        4 => ApiState::Throttles,
        5 => ApiState::Unnoticed,
        _ => ApiState::Slow(dice.u64(500..8000)),
    }
}

fn state(dice: &mut Rng) -> LinkState {
    match dice.u8(..6) {
        0 => LinkState::Cut,
        1 => LinkState::Silent,
        2 => LinkState::OneWay,
        3 => LinkState::Twice,
        _ => LinkState::Slow(dice.u64(20..180)),
    }
}

/// The longest of the short faults, in seconds.
const SHORT: u64 = 90;

/// How long a fault lasts, in seconds: mostly some, sometimes many minutes.
fn lasting(dice: &mut Rng) -> u64 {
    if dice.u8(..4) == 0 { dice.u64(300..1500) } else { dice.u64(1..=SHORT) }
}

fn fault(dice: &mut Rng) -> Act {
    let machine = dice.usize(..MACHINES);
    match dice.u8(..26) {
        22 | 23 => Act::Api(api(dice), lasting(dice)),
        24 | 25 => Act::Disk(machine, [DiskState::Full, DiskState::Fails][dice.usize(..2)], lasting(dice)),
        0..5 => Act::Link(machine, state(dice), lasting(dice)),
        5 | 6 => Act::Calls(machine, state(dice), lasting(dice)),
        7 => Act::StoreAway(lasting(dice)),
        8 => Act::StoreReadOnly(lasting(dice)),
        9 | 10 => Act::FailOver,
        11 => Act::Emptied,
        12 => Act::Backup(dice.u64(30..3000)),
        13 | 14 => Act::Kill(machine, dice.u64(..120)),
        15 => {
            let all = [
                Damage::TornPage,
                Damage::Cut,
                Damage::FileGone,
                Damage::MarksGone,
                Damage::TornJournal,
                Damage::PowerCut,
            ];
            Act::Damage(machine, dice.u64(..120), all[dice.usize(..all.len())])
        }
        16 => Act::Jump(machine, [-3600, -60, -5, 5, 60, 3600][dice.usize(..6)]),
        _ => {
            let troubles = [
                Trouble::Unavailable,
                Trouble::Hangs,
                Trouble::Slow,
                Trouble::Throttles,
                Trouble::Denies,
                Trouble::Garbles,
            ];
            Act::Source(any(dice), troubles[dice.usize(..troubles.len())], lasting(dice))
        }
    }
}

/// A lie is shorter than the guard's confirmations take, or is another one each time, or comes and goes.
fn lie(dice: &mut Rng) -> Act {
    let set = any(dice);
    let trouble = [Trouble::LosesAll, Trouble::LosesMost, Trouble::Wavers, Trouble::Flaps][dice.usize(..4)];
    let lasts = match (trouble, set) {
        (Trouble::Wavers | Trouble::Flaps, Set::Tenants | Set::Regions) => dice.u64(60..1800),
        (_, Set::Tenants) => dice.u64(5..110),
        (_, Set::Regions) => dice.u64(5..340),
        (_, Set::Edges | Set::Previews) => dice.u64(60..5400),
    };
    Act::Source(set, trouble, lasts)
}

fn operator(dice: &mut Rng) -> Act {
    match dice.u8(..14) {
        0 | 1 => Act::RollOut,
        2 | 3 => Act::Scale(dice.usize(1..=MACHINES)),
        4 => Act::Reload,
        5 | 6 => Act::Rename(any(dice)),
        7 | 8 => Act::Invalidate(any(dice)),
        9 => Act::Reject(if dice.bool() { Set::Tenants } else { Set::Regions }),
        10 => Act::Release(any(dice)),
        _ => Act::Refresh(any(dice)),
    }
}

//! Draws the acts of a plan.

use std::time::Duration;

use fastrand::Rng;

use crate::{
    api::ApiState,
    disk::DiskState,
    fleet::MACHINES,
    link::LinkState,
    plan::{Act, Delivery},
    sources::{Share, Trouble},
    truth::Set,
    volume::Damage,
};

/// What belongs to `act`, which begins at `at`, so that it matters.
pub(super) fn beside(at: Duration, act: &Act, dice: &mut Rng) -> Vec<(Duration, Act)> {
    let seconds = Duration::from_secs;
    match *act {
        // Whoever is cut off from what changes is wrong. If nothing changes, nobody would see it.
        Act::Link(_, _, lasts) if lasts > SHORT => {
            let changes = dice.u64(1..=3);
            (0..changes).map(|_| (at + seconds(dice.u64(..lasts.min(600))), truth(dice))).collect()
        }
        Act::Disk(machine, _, lasts) => beside_disk(at, machine, lasts, dice),
        // The same for refreshes that do not arrive.
        Act::Api(_, lasts) => vec![(at + seconds(dice.u64(..lasts)), deliver(dice))],
        // And for elements that nobody can ask for.
        Act::Elements(_, _, lasts) => {
            let changes = dice.u64(1..=2);
            (0..changes).map(|_| (at + seconds(dice.u64(..=lasts)), pull_request(dice))).collect()
        }
        // A process that has lost its records needs all elements.
        Act::Damage(..) | Act::Kill(..) if dice.bool() => {
            let elements = Act::Elements(share(dice), fails(dice), dice.u64(300..1500));
            vec![(at.saturating_sub(seconds(dice.u64(1..60))), elements)]
        }
        _ => Vec::new(),
    }
}

fn any(dice: &mut Rng) -> Set {
    Set::ALL[dice.usize(..Set::ALL.len())]
}

fn list(dice: &mut Rng) -> Set {
    Set::LISTS[dice.usize(..Set::LISTS.len())]
}

pub(super) fn truth(dice: &mut Rng) -> Act {
    match dice.u8(..24) {
        0..5 => Act::Add(list(dice)),
        5..8 => deliver(dice),
        8..13 => Act::Remove(list(dice)),
        13 => Act::RemoveHalf(list(dice)),
        _ => pull_request(dice),
    }
}

fn pull_request(dice: &mut Rng) -> Act {
    match dice.u8(..14) {
        0 | 1 => Act::Open(dice.u64(20..1200)),
        // Disks and webhooks open some too.
        2..6 => Act::Close,
        6 => Act::Reopen,
        7 => Act::Park,
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

pub(super) fn fault(dice: &mut Rng) -> Act {
    let machine = dice.usize(..MACHINES);
    match dice.u8(..34) {
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
        17..22 | 32.. => Act::Source(any(dice), fails(dice), lasting(dice)),
        _ => elements(dice),
    }
}

/// One element sometimes fails for so long that all others must change meanwhile.
fn elements(dice: &mut Rng) -> Act {
    let share = share(dice);
    let lasts = if share == Share::One && dice.u8(..3) == 0 { dice.u64(2400..9000) } else { lasting(dice) };
    Act::Elements(share, fails(dice), lasts)
}

/// How a source fails without a lie.
fn fails(dice: &mut Rng) -> Trouble {
    let troubles =
        [Trouble::Unavailable, Trouble::Hangs, Trouble::Slow, Trouble::Throttles, Trouble::Denies, Trouble::Garbles];
    troubles[dice.usize(..troubles.len())]
}

/// Mostly one element.
fn share(dice: &mut Rng) -> Share {
    [Share::One, Share::One, Share::One, Share::Some, Share::All][dice.usize(..5)]
}

/// A lie is shorter than the guard's confirmations take, or is another one each time, or comes and goes.
pub(super) fn lie(dice: &mut Rng) -> Act {
    let set = any(dice);
    let trouble = [Trouble::LosesAll, Trouble::LosesMost, Trouble::Wavers, Trouble::Flaps][dice.usize(..4)];
    let lasts = match (trouble, set) {
        (Trouble::Wavers | Trouble::Flaps, Set::Tenants | Set::Regions | Set::Pulls) => dice.u64(60..1200),
        (_, Set::Tenants | Set::Pulls) => dice.u64(5..110),
        (_, Set::Regions) => dice.u64(5..340),
        (_, Set::Edges | Set::Previews) => dice.u64(60..5400),
    };
    match (set, trouble) {
        (Set::Pulls, Trouble::Wavers) => Act::Elements(share(dice), trouble, lasts),
        (Set::Pulls, _) if dice.u8(..3) > 0 => Act::Elements(share(dice), trouble, lasts),
        _ => Act::Source(set, trouble, lasts),
    }
}

pub(super) fn operator(dice: &mut Rng) -> Act {
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

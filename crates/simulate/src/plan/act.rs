//! The acts of a plan, in words.

use std::fmt;

use crate::{
    api::ApiState,
    disk::DiskState,
    link::LinkState,
    sources::{Share, Trouble},
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
    /// A pull request is parked, or one is parked no longer: the list has it all the time.
    Park,
    /// A closed pull request is opened again.
    Reopen,
    /// A source is in trouble for this many seconds. That of the elements has a list of its own: this is meant.
    Source(Set, Trouble, u64),
    /// The source of elements is in trouble about these of them for this many seconds.
    Elements(Share, Trouble, u64),
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
            Self::Park => write!(f, "a pull request is parked, or is parked no longer"),
            Self::Reopen => write!(f, "a closed pull request is opened again"),
            Self::Elements(share, trouble, lasts) => {
                write!(f, "the source of elements, for {share:?} of them: {trouble:?} for {lasts} s")
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
        matches!(
            self,
            Self::Source(..)
                | Self::Elements(..)
                | Self::Reject(_)
                | Self::Calls(..)
                | Self::Backup(_)
                | Self::Deliver(..)
        )
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
            | Self::Park
            | Self::Reopen
            | Self::Deliver(..) => "true change",
            Self::Source(..) | Self::Elements(..) => "trouble of a source",
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

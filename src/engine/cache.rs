//! The cache: answers by [`Key`], stored in [`Memory`]; [`policy`] says how long each may be served.

pub(crate) mod answers;
pub(crate) mod disk;
pub(crate) mod entry;
pub(crate) mod evicted;
pub(crate) mod failing;
pub(crate) mod key;
mod listed;
pub(crate) mod memory;
pub(crate) mod policy;
mod turn;

pub(crate) use answers::Answers;
pub(crate) use disk::{Disk, Trouble, Unreadable};
pub use entry::{Encoded, Entry, PackedQuestion};
pub(crate) use evicted::EvictedKeys;
pub(crate) use failing::{Failing, Rest, Wish};
pub(crate) use key::{Key, KeyPrefix, MadeUnder, Revision};
pub(crate) use listed::Listed;
pub(crate) use memory::{CacheLimits, Memory};
pub(crate) use policy::{CacheConfig, Freshness, Life, Policy, Stale};
pub(crate) use turn::Turn;

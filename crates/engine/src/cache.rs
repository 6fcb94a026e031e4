//! The cache: answers by [`Key`], stored in [`Memory`]; [`policy`] says how long each may be served.

pub mod answers;
pub mod disk;
pub mod entry;
pub mod evicted;
pub mod failing;
pub mod key;
mod key_start;
mod listed;
pub mod memory;
pub mod policy;
pub mod shares;
mod turn;

pub use answers::Answers;
pub use disk::{Disk, Trouble, Unreadable};
pub(crate) use entry::question_size;
pub use entry::{Encoded, Entry, PackedQuestion};
pub use evicted::EvictedKeys;
pub use failing::{Failed, Failing, Rest, Wish};
pub use key::{Key, KeyPrefix, MadeUnder, Revision, RouteId};
pub use key_start::{KeyStart, NotOne};
pub use listed::Listed;
pub use memory::{CacheLimits, Memory};
pub use policy::{CacheConfig, Freshness, Life, Policy, Stale};
pub(crate) use shares::in_turns;
pub use shares::{Shares, Usage};
pub use turn::Turn;

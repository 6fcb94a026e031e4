//! What is remembered: answers by [`Key`], judged by [`policy`], stored in [`Memory`].

pub mod answers;
pub mod disk;
pub mod entry;
pub mod evicted;
pub mod failing;
pub mod key;
mod listed;
pub mod memory;
pub mod policy;

pub use answers::Answers;
pub use disk::{Disk, Trouble, Unreadable};
pub use entry::{Encoded, Entry, PackedQuestion};
pub use evicted::EvictedKeys;
pub use failing::{Failing, Wish};
pub use key::{Key, KeyPrefix, Revision};
pub use listed::Listed;
pub use memory::{CacheLimits, Memory};
pub use policy::{CacheConfig, Freshness, Life, Policy, Stale};

//! The cache: answers by [`Key`], stored in [`Memory`]; [`policy`] computes how long each may be served.

pub mod answers;
pub mod disk;
mod elements;
pub mod entry;
pub mod evicted;
pub mod failing;
pub mod key;
mod key_start;
mod last_served;
mod listed;
pub mod memory;
mod outline;
pub mod policy;
mod sharded;
pub mod shares;

pub use answers::Answers;
pub use disk::{Disk, Medium, Operation, Part, Place, Trouble, Unreadable};
pub use elements::{ElementCounts, ElementState, Elements};
pub(crate) use entry::question_size;
pub use entry::{Encoded, Entry, PackedQuestion};
pub use evicted::EvictedKeys;
pub use failing::{Backoff, Delay, Failed, Failing, Subject};
pub use key::{Key, KeyPrefix, MadeUnder, Revision, RouteId};
pub use key_start::{KeyStart, KeyStartError, NotOne};
pub use last_served::LastServed;
pub use listed::Listed;
pub use memory::{CacheLimits, Memory};
pub use policy::{CacheConfig, Freshness, Life, Policy, Stale};
pub(crate) use shares::round_robin;
pub use shares::{Shares, Usage};

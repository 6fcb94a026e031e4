//! What is remembered: answers by [`Key`], judged by [`policy`], stored in [`Memory`].

pub mod answers;
pub mod disk;
pub mod entry;
pub mod failing;
pub mod key;
pub mod memory;
pub mod policy;

pub use answers::{Answers, Listed};
pub use disk::{Disk, Trouble};
pub use entry::{Encoded, Entry, PackedQuestion, Peak};
pub use failing::Failing;
pub use key::{Key, KeyPrefix, Revision};
pub use memory::{CacheLimits, Memory};
pub use policy::{CacheConfig, Life, Policy, Stale, State};

//! A client for image registries (OCI distribution specification) and image layouts. It turns a reference into a digest, and distinguishes
//! *missing* from *unknown*. It has no routes and no answers.
//!
//! Start at [`registries`], which shares the results and prefers mirrors. A registry is one host, with its [`credentials`]
//! and tokens. `lookup`, `contents`, `listing` and `referrers` read its replies.

pub mod challenge;
pub mod config;
pub mod contents;
pub mod credentials;
pub mod digest;
pub mod documents;
pub mod layout;
pub mod listing;
pub mod lookup;
pub mod manifest;
mod platform;
mod reading;
pub mod reference;
pub mod referrers;
pub mod registries;
mod registry;
pub mod token;

pub use config::RegistryConfig;
pub use contents::Contents;
pub use contents::MAX_DEPTH;
pub use digest::Digest;
pub use documents::Documents;
pub use layout::Layout;
pub use lookup::{Lookup, Missing, Target};
pub use platform::Platform;
pub use reading::Reading;
pub use reference::Reference;
pub use referrers::{Lists, Search, Subject};
pub use registries::{Patience, Registries};

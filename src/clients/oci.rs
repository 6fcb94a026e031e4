//! A client for image registries (OCI distribution specification) and image layouts. It turns a reference into a digest, and
//! distinguishes *missing* from *unknown*. It knows nothing of routes or answers.
//!
//! [`registries`] shares what is known and asks mirrors first. A registry is one host, with its [`credentials`] and tokens.
//! `lookup`, `contents`, `listing` and `referrers` read its answers.

pub mod challenge;
pub(crate) mod config;
pub(crate) mod contents;
pub mod credentials;
pub(crate) mod digest;
pub(crate) mod documents;
pub(crate) mod layout;
pub(crate) mod listing;
pub mod lookup;
pub mod manifest;
mod reading;
pub(crate) mod reference;
pub(crate) mod referrers;
pub(crate) mod registries;
mod registry;
pub mod token;

pub use config::RegistryConfig;
pub use contents::Contents;
pub use digest::Digest;
pub(crate) use documents::Documents;
pub(crate) use layout::Layout;
pub use lookup::{Lookup, Missing, Target};
pub use manifest::Platform;
pub(crate) use reading::Reading;
pub use reference::Reference;
pub(crate) use referrers::{Lists, Search, Subject};
pub use registries::{Patience, Registries};

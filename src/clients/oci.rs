//! A client for image registries (OCI distribution specification) and image layouts: from a
//! reference to a digest, telling *missing* from *unknown*. Knows nothing of routes or answers.
//!
//! From the outside in: [`registries`] shares what is known and goes by mirrors, a registry asks one host, with the
//! [`credentials`] and tokens that it wants; what comes back is read by `lookup`, `contents` and `listing`.

pub mod challenge;
pub(crate) mod config;
pub(crate) mod contents;
pub mod credentials;
pub(crate) mod digest;
pub(crate) mod layout;
pub(crate) mod listing;
pub mod lookup;
pub mod manifest;
pub(crate) mod reference;
pub(crate) mod registries;
mod registry;
pub mod token;

pub use config::RegistryConfig;
pub use contents::Contents;
pub use digest::Digest;
pub(crate) use layout::Layout;
pub use lookup::{Lookup, Missing, Target};
pub use manifest::Platform;
pub use reference::Reference;
pub use registries::{Patience, Registries};

//! A client for image registries (OCI distribution specification) and image layouts: from a
//! reference to a digest, telling *missing* from *unknown*. Knows nothing of routes or answers.
//!
//! From the outside in: [`registries`] shares what is known and goes by mirrors, a registry asks one host, with the
//! [`credentials`] and tokens that it wants; what comes back is read by `lookup`, `contents` and `listing`.

pub mod challenge;
pub mod config;
pub mod contents;
pub mod credentials;
pub mod digest;
pub mod layout;
pub mod listing;
pub mod lookup;
pub mod manifest;
pub mod reference;
pub mod registries;
mod registry;
pub mod token;

pub use config::RegistryConfig;
pub use contents::Contents;
pub use digest::Digest;
pub use layout::Layout;
pub use lookup::{Lookup, Missing, Target};
pub use manifest::Platform;
pub use reference::Reference;
pub use registries::{Patience, Registries};

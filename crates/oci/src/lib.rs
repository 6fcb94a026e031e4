//! A client for image registries (OCI distribution specification) and image layouts. It turns a reference into a digest, and distinguishes
//! *missing* from *unknown*. It has no routes and no answers.
//!
//! Start at [`Registries`], which shares results between callers and prefers mirrors. A [`Reference`] names an image, and a `registry` is one host.
//!
//! - [`lookup`] finds the digest of a tag; [`contents`] reads annotations, platforms and the commit of a digest ([`manifest`] has the
//!   documents, `platform` the comparison); [`listing`] lists tags and repositories.
//! - [`referrers`] finds the documents beside an image; [`documents`] are those that may be signatures; [`reading`](Reading) is the budget of one
//!   lookup: documents and bytes.
//! - Authentication: `registry/authorized` answers a registry's challenge; [`challenge`] parses it, [`token`] fetches the token, and
//!   [`credentials`] reads `config.json`. `registry/redirected` follows redirects without credentials.
//! - [`layout`] reads an image layout in a folder.

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
pub use registries::{Patience, Registries, RegistriesMeans};

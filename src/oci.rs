//! A client for image registries (OCI distribution specification) and image layouts: from a
//! reference to a digest, telling *missing* from *unknown*. Knows nothing of routes or answers.

pub mod challenge;
pub mod credentials;
pub mod digest;
pub mod layout;
pub mod reference;
pub mod registry;

pub use digest::Digest;
pub use layout::Layout;
pub use reference::Reference;
pub use registry::{Registries, RegistryConfig};

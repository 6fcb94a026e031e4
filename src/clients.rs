//! Everything outside of the gateway: [`outbound`] (HTTP), [`oci`] (registries and image layouts), [`launcher`] (programs), [`collector`]
//! (where traces go).

pub mod collector;
pub mod launcher;
pub mod oci;
pub mod outbound;

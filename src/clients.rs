//! Everything outside of the gateway: [`outbound`] (HTTP), [`oci`] (registries and image layouts), [`launcher`] (programs), [`collector`]
//! (where traces go), [`store`] (what replicas share).

pub mod collector;
pub mod launcher;
pub mod oci;
pub mod outbound;
pub(crate) mod store;

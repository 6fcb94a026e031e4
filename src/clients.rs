//! Everything outside of the gateway: [`outbound`] (HTTP), [`oci`] (registries and image layouts), [`launcher`] (programs), [`collector`]
//! (where traces go), [`store`] (what replicas share), [`kubernetes`] (a cluster's API server).

pub mod collector;
pub(crate) mod kubernetes;
pub mod launcher;
pub mod oci;
pub mod outbound;
pub(crate) mod store;

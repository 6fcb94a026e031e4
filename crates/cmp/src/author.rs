//! For authors of plugins: what Argo CD would see, without Argo CD. The same code answers as in a server, over a connection in memory.

pub(crate) mod check;
mod client;
mod compare;
mod pack;
pub(crate) mod render;

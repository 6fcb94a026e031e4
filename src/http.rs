//! The gateway's HTTP side: [`edge`] accepts connections, [`server`] answers requests.

pub mod edge;
pub mod server;

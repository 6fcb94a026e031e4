//! The gateway's HTTP side: [`edge`] accepts connections, [`server`] answers requests, `page` draws what people see.

pub mod edge;
pub(crate) mod page;
pub mod server;

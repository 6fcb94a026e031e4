//! The gateway's HTTP side: [`edge`] accepts connections, [`server`] answers requests, `page` draws the views for people.

pub mod edge;
pub(crate) mod page;
pub mod server;

//! What replicas exchange by their store: the records of questions, who requested what, and refreshes that one leaves to another.

mod offer;
pub mod refreshes;
mod requesters;
mod sync;

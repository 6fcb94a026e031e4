//! The exchange of replicas by their store: the records of questions, the requesters, and refreshes that one leaves to another.

mod recovery;
pub mod refreshes;
mod requesters;
mod sync;

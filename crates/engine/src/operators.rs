//! The actions of operators: list the stored answers, invalidate them, decide on held ones.

pub mod conditions;
mod decide;
pub mod elements;
pub mod explain;
mod invalidate;
mod list;
mod observe;
mod recorded;
pub mod remembered;

pub use self::{
    decide::{Decided, NotDecided},
    list::Overview,
};
pub use crate::answer::expire::Invalidated;

/// The operator of an action, and the request, for the log.
#[derive(Debug)]
pub struct Operator {
    /// The caller's name.
    pub caller: String,
    /// The request's id.
    pub request_id: String,
    /// Why, in the operator's words.
    pub reason: Option<String>,
}

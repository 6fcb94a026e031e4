//! What operators do: list the stored answers, invalidate them, decide on held ones.

mod decide;
mod invalidate;
mod list;

pub use self::{
    decide::{Decided, NotDecided},
    invalidate::Invalidated,
    list::Overview,
};

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

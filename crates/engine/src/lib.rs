//! From a call to an answer.
//!
//! On a request's way:
//!
//! - [`route`] picks the route, and checks its input.
//! - [`answer`] is where to start: `Engine::answer` takes an answer from the cache, or waits for a run.
//! - [`run`] takes the lease of a question, calls the backend once for all waiting callers, and commits what that changes.
//! - [`shape`] makes parameter sets of the backend's result.
//! - [`guard`] holds answers that would delete Applications.
//! - [`cache`] stores answers, in memory and in a file.
//!
//! Beside it:
//!
//! - [`state`] is all that is stored about questions; [`failure`] says why a question has no new answer.
//! - [`replica`] is this process as one of those that share a store; [`replication`] is what these exchange.
//! - [`renewal`] has the runs that the gateway starts by itself: confirmations, rechecks after events, and those after a start.
//! - [`operators`] is what people see and decide.
//! - [`shadow`] compares a route's answers with those of a candidate.
//!
//! The engine has no HTTP, and no kind of backend: it uses [`source`], which `backend` implements. Replicas share what it stores by [`store`].

pub mod answer;
pub mod cache;
pub mod failure;
pub mod guard;
#[cfg(test)]
mod model;
pub mod operators;
pub mod renewal;
pub mod replica;
pub mod replication;
pub mod route;
pub mod run;
pub mod shadow;
pub mod shape;
pub mod state;

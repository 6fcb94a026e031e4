//! From a call to an answer. Start at [`Engine::answer`](answer::Engine::answer).
//!
//! For a request, in this order:
//!
//! - [`route`] picks the route, and checks its input.
//! - [`answer`] takes an answer from the cache, or waits for a run.
//! - [`run`] takes the lease of a question, calls the backend once for all waiting callers, and commits the changes.
//! - [`shape`] makes parameter sets of the backend's result.
//! - [`guard`] holds answers that would delete Applications, and counts the runs that confirm one.
//! - [`cache`] stores answers, in memory and in a file.
//!
//! Beside it:
//!
//! - [`state`] is all that is stored about questions; [`failure`] is the reason why a question has no new answer.
//! - [`replica`] is this process as one of those that share a store: its contact with the store, and its copy. [`replication`] is the exchange
//!   between them: sync, and offers of copies in a recovery.
//! - [`renewal`] has the runs that the gateway starts by itself: confirmations (it only schedules them), rechecks after events, and renewals
//!   after a start.
//! - [`operators`] has the views and decisions of operators.
//! - [`shadow`] compares a route's answers with those of a candidate.
//!
//! The engine has no HTTP, and no kind of backend: it uses [`source`], which `backend` implements. Replicas share its records by [`store`].

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

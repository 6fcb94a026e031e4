//! From a call to an answer.
//!
//! - [`route`] picks the route, and checks its input.
//! - [`answer`] is where to start: `Engine::answer` takes an answer from the cache, or runs the route's backend once for all waiting callers.
//! - [`shape`] makes parameter sets of the backend's result.
//! - [`guard`] holds answers that would delete Applications.
//! - [`shadow`] compares them with those of a candidate.
//! - [`cache`] stores answers, in memory and in a file.
//!
//! The engine has no HTTP, and no kind of backend: it uses [`source`], which `backend` implements. Replicas share what it stores by [`store`].

pub mod answer;
pub mod cache;
pub mod failure;
pub mod guard;
pub mod operators;
pub mod renewal;
pub mod replica;
pub mod replication;
pub mod route;
pub mod run;
pub mod shadow;
pub mod shape;
pub mod state;

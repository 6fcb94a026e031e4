//! From a call to an answer. [`route`] picks the route. [`answer`] runs its backend once for all waiting callers. [`shape`] makes
//! parameter sets from the backend's result. [`guard`] holds suspicious answers. [`shadow`] compares them with a candidate's. [`cache`] stores
//! answers.

pub(crate) mod answer;
pub mod cache;
pub(crate) mod guard;
pub(crate) mod route;
pub(crate) mod shadow;
pub mod shape;

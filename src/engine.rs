//! From a call to an answer: [`route`] picks the route, [`answer`] runs it once for all who ask, [`cache`] remembers, [`guard`] holds back
//! suspicious answers, [`shape`] makes parameter sets of what a backend found.

pub(crate) mod answer;
pub mod cache;
pub(crate) mod guard;
pub(crate) mod route;
pub mod shape;

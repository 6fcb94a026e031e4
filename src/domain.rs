//! The types of the problem domain, which every room uses.

pub mod clock;
pub(crate) mod count;
pub mod document;
pub mod error;
pub mod generator;
pub mod lifecycle;
pub mod problem;
pub mod secret;
pub(crate) mod units;

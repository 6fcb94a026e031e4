//! The types of the problem domain, which every room uses.

pub mod clock;
pub(crate) mod count;
pub(crate) mod difference;
pub mod document;
pub mod error;
pub mod generator;
pub(crate) mod glob;
pub(crate) mod junit;
pub mod lifecycle;
pub(crate) mod pattern;
pub mod problem;
pub(crate) mod replay;
pub mod secret;
pub(crate) mod spelling;
pub(crate) mod units;
pub(crate) mod visible;

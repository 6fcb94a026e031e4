//! The contract of Argo CD's plugin generator as a suite for any plugin server: what it must and should do, and replies by which
//! Argo CD deletes Applications that nobody wanted to delete.
//!
//! The suite asks as Argo CD does, and [`judge`] reads each reply as Argo CD does.

pub mod cases;
mod checks;
pub mod judge;
mod kept;
pub mod report;
pub mod rules;
pub mod suite;
pub mod target;
pub mod upstream;

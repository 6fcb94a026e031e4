//! The contract of Argo CD's plugin generator as a suite for any plugin server: what it must and should do, and replies by which
//! Argo CD deletes Applications that nobody wanted to delete.
//!
//! The suite asks as Argo CD does, and [`evaluate`] reads each reply as Argo CD does.

pub mod cases;
mod checks;
pub mod evaluate;
mod kept;
pub mod report;
pub mod rules;
pub mod suite;
pub mod target;
pub mod upstream;

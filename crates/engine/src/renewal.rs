//! Runs that the gateway starts by itself: to confirm held answers, after events, and after a start.

pub mod confirm;
pub mod left_behind;
pub mod recheck;
pub mod warm;

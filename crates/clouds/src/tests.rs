//! Each identity against a cloud that the test plays: the whole way, and each step with each fault.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod cloud;
mod faults;
mod limits;
mod logins;
mod ways;

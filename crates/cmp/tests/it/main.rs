//! Whole servers, asked by a client that connects as Argo CD does: `tests/client`, which needs Go.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod bad_input;
mod by_tls;
mod calls;
mod credentials;
mod differential;
mod ends;
mod examples;
mod git_server;
mod guard;
mod hermetic;
mod kept;
mod limits;
mod metrics;
mod network;
mod relay;
mod relay_cuts;
mod relay_ends;
mod relay_exchange;
mod relay_faults;
mod relay_rotation;
mod remotes;
mod support;
mod traces;
mod transport;

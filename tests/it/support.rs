//! What the tests use: a gateway in this process on real sockets, real programs beside it, and the judge.

pub mod apiserver;
pub mod app;
pub mod authority;
pub mod binary;
pub mod browser;
pub mod check;
pub mod contract;
pub mod images;
pub mod issuer;
pub mod kernel;
pub mod modules;
pub mod mounted;
pub mod nginx;
pub mod processes;
pub mod promtool;
pub mod proxy;
pub mod push;
pub mod registry;
pub mod service;
pub mod signer;
pub mod signing;
pub mod store;
pub mod upstream;
pub mod visitor;
pub mod wire;

pub use app::{TestApp, TestClock};
pub use appset_gateway::conformance::judge as argo;
pub use argo::Verdict;
pub use wire::Reply;

/// The token of every gateway in the tests, as in Argo CD's documentation.
pub const TOKEN: &str = "strong-password";
/// The operator's token of every gateway in the tests.
pub const ADMIN_TOKEN: &str = "operators-password";

//! What the tests use: a gateway in this process on real sockets, real programs beside it, and the judge.

pub(crate) mod apiserver;
pub(crate) mod app;
pub(crate) mod authority;
pub(crate) mod binary;
pub(crate) mod browser;
pub(crate) mod check;
pub(crate) mod contract;
pub(crate) mod database;
pub(crate) mod images;
pub(crate) mod issuer;
pub(crate) mod kernel;
pub(crate) mod modules;
pub(crate) mod mounted;
pub(crate) mod nginx;
pub(crate) mod processes;
pub(crate) mod promtool;
pub(crate) mod proxy;
pub(crate) mod push;
pub(crate) mod registry;
pub(crate) mod service;
pub(crate) mod signer;
pub(crate) mod signing;
pub(crate) mod store;
pub(crate) mod upstream;
pub(crate) mod visitor;
pub(crate) mod wire;

pub(crate) use app::{TestApp, TestClock};
pub(crate) use argo::Verdict;
pub(crate) use conformance::evaluate as argo;
pub(crate) use wire::Reply;

/// The token of every gateway in the tests, as in Argo CD's documentation.
pub(crate) const TOKEN: &str = "strong-password";
/// The operator's token of every gateway in the tests.
pub(crate) const ADMIN_TOKEN: &str = "operators-password";

//! The server behind Argo CD's ApplicationSet plugin generator.
//!
//! # The life of a request
//!
//! ```text
//! http::edge ─ http::server ─ auth ─ engine::route ─ engine::answer ┬ engine::cache
//!                                                                   ├ flight ─ backend ─ engine::shape ─ engine::guard ─ engine::cache
//!                                                                   └ encode
//! ```
//!
//! 1. [`http::edge`] accepts the connection; [`http::server`] speaks HTTP on it.
//! 2. [`auth`] turns the bearer token into a caller, before the body is read.
//! 3. [`engine::route`] picks the route, by path or by match, and checks the input parameters.
//! 4. [`engine::answer`] looks in the [`engine::cache`]; a fresh answer goes out as the bytes that were stored.
//! 5. Otherwise one [`flight`] per key asks the [`backend`], even if its callers go away.
//! 6. [`engine::shape`] makes parameter sets of the result, [`engine::guard`] compares them with earlier ones, and they are stored and sent.
//!
//! An event of [`hooks`] lets the engine look again, and [`argocd`] tells ApplicationSets of another answer. Backends use [`clients`] (HTTP, registries, programs) and [`lang`] (templates and expressions). [`domain`] has the types that every room uses.
//! [`app`] holds what lives as long as the process, [`config`] reads the configuration, [`cli`] starts it.

#![warn(unreachable_pub)]

pub mod app;
pub(crate) mod argocd;
pub mod auth;
pub mod backend;
pub(crate) mod bounded_cache;
pub mod cli;
pub mod clients;
pub mod config;
pub mod conformance;
pub(crate) mod diff;
pub mod domain;
pub mod engine;
pub mod file;
pub(crate) mod flight;
pub(crate) mod hooks;
pub mod http;
pub mod lang;
pub(crate) mod overview;
pub(crate) mod replay;
pub mod signature;
pub mod telemetry;
pub mod tls;

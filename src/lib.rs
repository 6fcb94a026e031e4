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
//! 2. [`auth`] finds the caller of the bearer token, before the body is read.
//! 3. [`engine::route`] picks the route, by path or by match, and checks the input parameters.
//! 4. [`engine::answer`] reads the [`engine::cache`]; a fresh answer goes out as the bytes that were stored.
//! 5. Otherwise one `flight` per key asks the [`backend`]. It goes on if its callers disconnect.
//! 6. [`engine::shape`] makes parameter sets of the result, [`engine::guard`] compares them with earlier ones, and they are stored and sent.
//!
//! An event of [`hooks`] makes the engine ask its sources again, and [`argocd`] refreshes the ApplicationSets whose answer has changed. Backends use
//! [`outbound`] (HTTP), [`oci`] (registries), [`launcher`] (programs) and [`lang`] (templates and expressions). [`domain`] has the types that every
//! crate uses. [`app`] holds everything that lives as long as the process, [`config`] reads the configuration, `routes` builds the routes of it,
//! [`cli`] starts it. Start at `http::server::getparams`, then [`engine::answer::Engine::answer`].

pub mod app;
pub mod cli;
pub mod collector;
pub mod config;
pub(crate) mod diff;
pub mod http;
pub(crate) mod overview;
pub(crate) mod replay;
pub(crate) mod routes;

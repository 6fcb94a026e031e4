//! The server behind Argo CD's ApplicationSet plugin generator.
//!
//! # The life of a request
//!
//! ```text
//! edge ─ server ─ auth ─ route ─ answer ┬ cache
//!                                       ├ flight ─ backend ─ shape ─ cache
//!                                       └ encode
//! ```
//!
//! 1. [`edge`] accepts the connection; [`server`] speaks HTTP on it.
//! 2. [`auth`] turns the bearer token into a caller, before the body is read.
//! 3. [`route`] picks the route, by path or by match, and checks the input parameters.
//! 4. [`answer`] looks in the [`cache`]; a fresh answer goes out as the bytes that were stored.
//! 5. Else one [`flight`] per key asks the [`backend`], whatever becomes of the callers.
//! 6. [`shape`] makes parameter sets of what was found; they are encoded whole, remembered and sent.
//!
//! Below these are [`outbound`] (the one way out over HTTP), [`launcher`] (the one way to start programs), [`oci`] (registries and image layouts),
//! [`collector`] (where traces go), [`evaluator`] (where expressions and templates are evaluated), [`template`] and [`expression`] (the two languages of a configuration), and at the bottom the words
//! of the domain, [`generator`] and [`error`]. [`app`] wires, [`config`] reads, [`cli`] starts.

pub mod cli;

pub mod app;
pub mod config;

pub mod edge;
pub mod server;

pub mod auth;
pub mod route;

pub mod answer;
pub mod cache;
pub mod flight;
pub mod shape;

pub mod backend;

pub mod collector;
pub mod evaluator;
pub mod launcher;
pub mod oci;
pub mod outbound;
pub mod tls;

pub mod landing;

pub mod expression;
pub mod template;

pub mod telemetry;

pub mod base_dir;
pub mod bounded;
pub mod certificate;
pub mod clock;
pub mod document;
pub mod error;
pub mod file;
pub mod generator;
pub mod guard;
pub mod problem;
pub mod renewal;
pub mod secret;
pub mod trace;
pub mod units;

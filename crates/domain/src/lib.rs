//! The types that every crate uses. They do no I/O, except for [`mod@file`] and [`secret`], which read files.
//!
//! - [`generator`]: the words of the plugin generator: `Query`, `Question`, `ParameterSet`, and a backend's `Outcome`.
//! - [`error`]: why a backend has no answer.
//! - [`document`]: strict JSON and YAML, whose numbers keep their text.
//! - [`problem`]: mistakes of a configuration, and their places.
//! - [`secret`]: secrets, and how they are kept out of all output.
//! - [`clock`], [`units`], [`bounded_cache`] and the others are small tools.

pub mod bounded_cache;
pub mod clock;
pub mod difference;
pub mod document;
pub mod error;
pub mod file;
pub mod generator;
pub mod glob;
pub mod junit;
pub mod lifecycle;
pub mod pattern;
pub mod problem;
pub mod replay;
pub mod secret;
pub mod spelling;
pub mod units;
pub mod visible;

//! The types that every crate uses. They do no I/O, except for [`mod@file`] and [`secret`], which read files.
//!
//! Start at [`generator`], the terms of the plugin generator: [`Query`](generator::Query) is one request of a backend, with its deadline and
//! notes; [`Question`](generator::Question) is the identity of a request, which is stored with the answer;
//! [`ParameterSet`](generator::ParameterSet) is one item of an answer; [`Outcome`](generator::Outcome) is the result of a backend.
//!
//! - [`error`]: why a backend has no answer.
//! - [`document`]: strict JSON and YAML, whose numbers keep their text.
//! - [`problem`]: mistakes of a configuration, and their places.
//! - [`section`]: one part of a configuration while it is built.
//! - [`secret`]: secrets, and their redaction.
//! - [`difference`]: the sets that were added, removed and changed between two answers.
//! - [`replay`]: recorded replies of sources, used in their place by `appset-gateway test`.
//! - [`lifecycle`]: the phase of the process: serving, draining, closing.
//! - [`visible`]: shows control and invisible characters of foreign texts by their code.
//! - [`spelling`]: "did you mean" for misspelt names.
//! - Small tools: [`clock`], [`units`] (durations, sizes), [`bounded_cache`], [`glob`], [`pattern`] (regular expressions), [`junit`] (reports).

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
pub mod section;
pub mod spelling;
pub mod units;
pub mod visible;

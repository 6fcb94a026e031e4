//! The documentation: its links lead somewhere, its configurations pass `check`, its commands print what it shows, and it knows
//! all metrics and kinds of backends.

mod commands;
mod completeness;
mod configurations;
mod links;
mod page;

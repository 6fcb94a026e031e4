//! The documentation: its links are valid, its configurations pass `check`, its commands print the shown output, and it lists
//! all metrics and kinds of backends.

mod commands;
mod completeness;
mod configurations;
mod gallery;
mod links;
mod page;
mod spans;

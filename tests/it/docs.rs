//! The documentation: its links are valid, its tables are whole, its configurations pass `check`, its commands print the shown
//! output, its reference is that of the schema, and it lists all metrics and kinds of backends.

mod commands;
mod completeness;
mod configurations;
mod gallery;
mod links;
mod page;
mod reference;
mod spans;
mod tables;

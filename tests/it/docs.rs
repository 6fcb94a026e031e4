//! The documentation: its links lead somewhere, its configurations pass `check`, and its commands print what it shows.

mod commands;
mod configurations;
mod links;
mod page;

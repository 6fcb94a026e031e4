//! The page for people, drawn as HTML. It sees neither requests nor callers' tokens: `http::server` asks for a view and sends it.
//!
//! Everything that comes from outside passes [`text::outside`], which escapes it and makes invisible characters visible.

pub(crate) mod configuration;
mod document;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod files;
pub(crate) mod held;
pub(crate) mod notice;
pub(crate) mod overview;
pub(crate) mod pages;
pub(crate) mod routes;
pub(crate) mod sources;
mod text;

pub(crate) use self::document::{Frame, Tab, Visitor, draw};

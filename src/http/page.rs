//! The page for people, drawn as HTML. It knows neither requests nor callers' tokens: `http::server` asks for a view and sends it.
//!
//! Everything that comes from outside passes [`text::outside`], which escapes it and makes invisible characters visible.

mod document;
pub(crate) mod files;
pub(crate) mod held;
pub(crate) mod notice;
pub(crate) mod overview;
pub(crate) mod pages;
mod text;

pub(crate) use self::document::{Frame, Tab, Visitor, draw};

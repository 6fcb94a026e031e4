//! Functions of both languages, over plain texts and numbers.

pub(crate) mod base64;
pub mod label;
pub(crate) mod name_error;
pub(crate) mod slug;
pub(crate) mod time;

//! The changes by the next configuration: it gets stored questions, and its answers are compared with those that callers got.
//! Nothing is stored, and no cache is used. The command line reads the questions, from a gateway or a file.

pub(crate) mod applications;
pub(crate) mod ask;
pub(crate) mod compare;
pub(crate) mod record;
pub(crate) mod recording;
pub(crate) mod report;

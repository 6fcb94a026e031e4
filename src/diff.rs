//! What the next configuration would change: it gets remembered questions, and its answers are compared with those that callers got.
//! Nothing is stored, and no cache is used. It does not know where the questions come from: the command line reads them.

pub(crate) mod applications;
pub(crate) mod ask;
pub(crate) mod compare;
pub(crate) mod record;
pub(crate) mod recording;
pub(crate) mod report;

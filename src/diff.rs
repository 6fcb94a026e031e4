//! What the next configuration would change: remembered questions are asked of it, and compared with the answers that callers were given.
//! Nothing is stored, and no cache is used. It does not know where the questions come from: the command line reads them.

pub(crate) mod applications;
pub(crate) mod ask;
pub(crate) mod compare;
pub(crate) mod record;
pub(crate) mod recording;
pub(crate) mod report;

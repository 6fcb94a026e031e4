//! `test` and `record`: questions and the sources' replies, kept in files beside a configuration, and replayed without the sources.

pub(crate) mod ask;
pub(crate) mod case;
pub(crate) mod clock;
pub(crate) mod play;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod replies;
pub(crate) mod report;
pub(crate) mod secrets;
pub(crate) mod update;

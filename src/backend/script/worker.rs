//! Workers: programs that stay, and answer one question after the other in lines of JSON. A route has its own; each has one
//! question at a time. A worker that does not do as it should is ended, and what comes after it starts anew.

mod answer;
mod basis;
mod exchange;
mod permit;
mod pool;
mod process;
mod tail;

use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) use self::pool::Pool;
use super::{Config, protocol::Protocol};
use crate::domain::{
    problem::{Path, Problems},
    units::ByteSize,
};

/// When a program is started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Mode {
    /// For each question.
    #[default]
    Once,
    /// It stays, and answers one question after the other: `{"id":1,"request":{…}}` in a line on stdin, and
    /// `{"id":1,"output":[…]}` or `{"id":1,"error":"…"}` in a line on stdout.
    Worker,
}

/// How workers live. There are `concurrency` of them at most.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct WorkerConfig {
    /// How many there are before anybody asks. Others start when they are needed, and end when they have nothing to do for
    /// a minute.
    pub(crate) ahead: usize,
    /// After how many questions one is replaced.
    #[schemars(range(min = 1))]
    pub(crate) recycle_after: u64,
    /// With how much memory one is replaced, all that it started included, once it has answered; never unless set.
    pub(crate) max_memory: Option<ByteSize>,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self { ahead: 1, recycle_after: 10_000, max_memory: None }
    }
}

/// Notes what does not go together in `config`, which stands at `path`.
pub(crate) fn check(config: &Config, path: &Path, problems: &mut Problems) {
    let at = path.key("worker");
    if config.mode == Mode::Once {
        if config.worker.is_some() {
            problems.error_with_help(&at, "it has no workers", "write `mode: worker`");
        }
        return;
    }
    if config.protocol != Protocol::Json {
        let help = "leave it out; docs/workers.md says what a worker reads and writes";
        problems.error_with_help(&path.key("protocol"), "workers speak lines of JSON with ids only", help);
    }
    let WorkerConfig { ahead, recycle_after, max_memory } = config.worker.unwrap_or_default();
    if recycle_after == 0 {
        problems.error(&at.key("recycleAfter"), "with 0 a worker would answer nothing");
    }
    if max_memory == Some(ByteSize(0)) {
        problems.error(&at.key("maxMemory"), "with 0 a worker would answer once");
    }
    if ahead > config.concurrency {
        let error = format!("there are {} workers at most (`concurrency`)", config.concurrency);
        problems.error(&at.key("ahead"), error);
    }
}

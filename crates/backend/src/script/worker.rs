//! Workers: programs that keep running and answer requests in lines of JSON. Each route has its own workers. A worker answers one
//! request at a time. A worker that breaks the protocol is ended and replaced.

mod answer;
mod basis;
mod exchange;
mod permit;
mod pool;
mod process;
mod tail;

use schemars::JsonSchema;
use serde::Deserialize;

pub(super) use self::pool::Pool;
use super::{Config, protocol::Protocol};
use crate::Building;
use domain::units::ByteSize;

/// When a program is started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// For each request.
    #[default]
    Once,
    /// Once. The program keeps running and answers one request after the other: `{"id":1,"request":{…}}` in a line on stdin, and
    /// `{"id":1,"output":[…]}` or `{"id":1,"error":"…"}` in a line on stdout.
    Worker,
}

/// Settings of workers. There are at most `concurrency` workers.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WorkerConfig {
    /// How many workers start before the first request. More start when needed, and end after a minute without a request.
    pub ahead: usize,
    /// A worker is replaced after this many requests.
    #[schemars(range(min = 1))]
    pub(crate) recycle_after: u64,
    /// A worker that uses more memory than this is replaced after its answer. The memory of its descendants counts too. By default
    /// there is no limit.
    pub(crate) max_memory: Option<ByteSize>,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self { ahead: 1, recycle_after: 10_000, max_memory: None }
    }
}

/// Notes contradictory settings in `config`.
pub(super) fn check(config: &Config, building: &mut Building<'_>) {
    if config.mode == Mode::Once {
        if config.worker.is_some() {
            building.key("worker").error_with_help("this script has no workers", "write `mode: worker`");
        }
        return;
    }
    if config.protocol != Protocol::Json {
        let help = "leave it out; docs/workers.md says what a worker reads and writes";
        building.key("protocol").error_with_help("workers only speak lines of JSON with ids", help);
    }
    let WorkerConfig { ahead, recycle_after, max_memory } = config.worker.unwrap_or_default();
    let mut at = building.key("worker");
    if recycle_after == 0 {
        at.key("recycleAfter").error("with 0 a worker would answer nothing");
    }
    if max_memory == Some(ByteSize(0)) {
        at.key("maxMemory").error("with 0 a worker would answer once");
    }
    if ahead > config.concurrency {
        let error = format!("there are {} workers at most (`concurrency`)", config.concurrency);
        at.key("ahead").error(error);
    }
}

//! The tasks that query the elements of answers: one for each question. The next run of a question replaces the task of the one before,
//! which may still be busy with what it could not do in time. Runs that were started go on.

use std::collections::HashMap;

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::cache::Key;

/// The tasks, by question.
#[derive(Debug, Default)]
pub(crate) struct Gathering(Mutex<HashMap<Key, AbortHandle, RandomState>>);

impl Gathering {
    /// Notes the task for the question with `key`, and ends the one before.
    pub(crate) fn replace(&self, key: Key, task: AbortHandle) {
        let mut tasks = self.0.lock();
        tasks.retain(|_, task| !task.is_finished());
        if let Some(before) = tasks.insert(key, task) {
            before.abort();
        }
    }
}

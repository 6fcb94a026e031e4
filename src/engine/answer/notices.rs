//! What runs tell whoever follows them: that an answer was renewed, or that a source is in trouble.

use std::sync::{Arc, OnceLock};

use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::{domain::generator::Question, engine::cache::Key};

/// How many notices wait at most. Later ones are dropped.
const MAX_WAITING: usize = 10_000;
/// From so many failures in a row on, a source counts as failing.
const FAILURES: u32 = 3;

/// What happened to a question.
#[derive(Debug, Clone)]
pub(crate) struct Notice {
    /// The key of the question.
    pub(crate) key: Key,
    /// The question.
    pub(crate) question: Question,
    /// What happened.
    pub(crate) what: What,
}

/// What happened to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// A run in the background brought an accepted answer.
    Renewed,
    /// The source was asked again after an event.
    Looked,
    /// An operator has released the held answer, and the source was asked again.
    Released,
    /// The guard holds the answer, for this reason.
    Held(String),
    /// The guard no longer holds an answer, for this reason.
    HoldEnded(&'static str),
    /// The source has failed several times, the last time for this reason.
    Failing(String),
    /// The source answers again, after it counted as failing.
    Recovered,
}

/// The way of notices to whoever follows them. Until somebody does, they are dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notices(Arc<OnceLock<Sender<Notice>>>);

impl Notices {
    /// The notices from now on. There is one follower: a second one gets none.
    pub(crate) fn follow(&self) -> Receiver<Notice> {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let _ = self.0.set(sender);
        receiver
    }

    /// Sends a notice, if somebody follows.
    pub(super) fn send(&self, key: Key, question: &Question, what: impl FnOnce() -> What) {
        if let Some(sender) = self.0.get() {
            let _ = sender.try_send(Notice { key, question: question.clone(), what: what() });
        }
    }

    /// Sends a notice if so many failures in a row make a failing source.
    pub(super) fn failed(&self, key: Key, question: &Question, times: u32, why: &impl ToString) {
        if times == FAILURES {
            self.send(key, question, || What::Failing(why.to_string()));
        }
    }

    /// Sends a notice if a source that failed `times` times was failing.
    pub(super) fn recovered(&self, key: Key, question: &Question, times: u32) {
        if times >= FAILURES {
            self.send(key, question, || What::Recovered);
        }
    }
}

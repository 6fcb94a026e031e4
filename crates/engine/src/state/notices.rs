//! The notices of runs to their follower: that an answer was renewed, or that a source is in trouble.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::sync::mpsc::{self, Receiver, Sender, error::TrySendError};

use crate::{
    cache::{Backoff, Key},
    route::ResolvedQuery,
};
use domain::generator::{Part, Question};

/// How many notices wait at most. Later ones are dropped.
const MAX_WAITING: usize = 10_000;
/// From so many failures in a row on, a source counts as failing.
const FAILURES: u32 = 3;
/// An element that is unknown for longer is a notice.
const LONG_UNKNOWN: Duration = Duration::from_hours(1);

/// A notice about a question.
#[derive(Debug, Clone)]
pub struct Notice {
    /// The key of the question.
    pub key: Key,
    /// The question.
    pub question: Question,
    /// Its event.
    pub what: What,
}

/// An event of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A run in the background brought an accepted answer.
    Renewed,
    /// The source was called again after an event.
    Rechecked,
    /// An operator has released the held answer, and the source was called again.
    Released,
    /// The guard holds the answer, for this reason.
    Held(String),
    /// The guard no longer holds an answer, for this reason.
    HoldEnded(&'static str),
    /// The guard has accepted a held answer because further runs agreed. No operator released it.
    Confirmed(String),
    /// The source has failed several times, the last time for this reason.
    Failing(String),
    /// The source answers again, after it counted as failing.
    Recovered,
    /// An element of the answer has been unknown for more than an hour.
    ElementUnknown {
        /// Its key.
        element: String,
        /// The last reason.
        why: String,
    },
    /// It is known again.
    ElementKnown {
        /// Its key.
        element: String,
    },
}

/// The way of notices to their follower. Without one, they are dropped.
#[derive(Debug, Clone, Default)]
pub struct Notices(Arc<OnceLock<Follower>>);

/// The follower of the notices.
struct Follower {
    sender: Sender<Notice>,
    /// Called for each notice that does not fit into the queue.
    dropped: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").finish_non_exhaustive()
    }
}

impl Notices {
    /// The notices from now on. There is one follower: a second one gets none. `dropped` is called for each notice that does not fit into the queue.
    pub fn follow(&self, dropped: impl Fn() + Send + Sync + 'static) -> Receiver<Notice> {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let _ = self.0.set(Follower { sender, dropped: Box::new(dropped) });
        receiver
    }

    /// Sends a notice, if there is a follower.
    pub(crate) fn send(&self, key: Key, question: &Question, what: impl FnOnce() -> What) {
        let Some(Follower { sender, dropped }) = self.0.get() else { return };
        let notice = Notice { key, question: question.clone(), what: what() };
        if let Err(TrySendError::Full(_)) = sender.try_send(notice) {
            dropped();
        }
    }

    /// Sends a notice if so many failures in a row make a failing source.
    pub(crate) fn failed(&self, key: Key, question: &Question, times: u32, why: &impl ToString) {
        if times == FAILURES {
            self.send(key, question, || What::Failing(why.to_string()));
        }
    }

    /// Sends a notice if a source that failed `times` times was failing.
    pub(crate) fn recovered(&self, key: Key, question: &Question, times: u32) {
        if times >= FAILURES {
            self.send(key, question, || What::Recovered);
        }
    }
}

impl Notices {
    /// Sends a notice if the element that `resolved` is about has become unknown for long by `now`, the last failure of its row, which was
    /// `before`. So there is one notice for each row.
    pub(crate) fn element_failed<F>(
        &self,
        resolved: &ResolvedQuery,
        before: Option<&Backoff<F>>,
        now: &Backoff<F>,
        why: &impl ToString,
    ) {
        if now.lasted() >= LONG_UNKNOWN && before.is_some_and(|before| before.lasted() < LONG_UNKNOWN) {
            self.send_of_element(resolved, |element| What::ElementUnknown { element, why: why.to_string() });
        }
    }

    /// Sends a notice if the element that `resolved` is about is known again after it was unknown for long.
    pub(crate) fn element_known<F>(&self, resolved: &ResolvedQuery, before: Option<&Backoff<F>>) {
        if before.is_some_and(|before| before.lasted() >= LONG_UNKNOWN) {
            self.send_of_element(resolved, |element| What::ElementKnown { element });
        }
    }

    /// Sends a notice about the whole answer that has the element of `resolved`.
    fn send_of_element(&self, resolved: &ResolvedQuery, what: impl FnOnce(String) -> What) {
        if let Some(element) = resolved.query.part.as_ref().and_then(Part::element) {
            self.send(resolved.whole_key(), &resolved.question.whole(), || what(element.label()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn notices_that_do_not_fit_are_counted() {
        let (notices, dropped) = (Notices::default(), Arc::new(AtomicUsize::new(0)));
        let question = Question { route: "r".into(), application_set: None, parameters: Arc::default(), part: None };
        let send = || notices.send(Key::of_bytes([0; 32]), &question, || What::Rechecked);
        send();
        let counted = Arc::clone(&dropped);
        let mut receiver = notices.follow(move || _ = counted.fetch_add(1, Ordering::Relaxed));
        (0..MAX_WAITING + 3).for_each(|_| send());
        assert_eq!((receiver.len(), dropped.load(Ordering::Relaxed)), (MAX_WAITING, 3));
        receiver.close();
        while receiver.try_recv().is_ok() {}
        send();
        assert_eq!(dropped.load(Ordering::Relaxed), 3, "nobody follows any more");
    }
}

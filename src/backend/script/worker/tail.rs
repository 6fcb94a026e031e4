//! The end of a worker's stderr, which is read all the time, so that it never waits for a reader.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use crate::backend::script::run::{STDERR_TAIL, Stderr};

/// The end of stderr since a question began. Dropped, nothing is read any more.
#[derive(Debug)]
pub(crate) struct Tail {
    kept: Arc<Mutex<StderrTail>>,
    reading: JoinSet<()>,
}

#[derive(Debug, Default)]
struct StderrTail {
    bytes: BytesMut,
    /// Whether what comes next is the rest of a line that began before the question.
    is_within: bool,
}

impl Tail {
    /// The end of what comes out of `stderr`.
    pub(crate) fn of(stderr: pipe::Receiver) -> Self {
        let kept = Arc::<Mutex<StderrTail>>::default();
        let mut reading = JoinSet::new();
        reading.spawn(read(stderr, Arc::clone(&kept)));
        Self { kept, reading }
    }

    /// A question begins: what was written before belongs to others.
    pub(crate) fn clear(&self) {
        let mut kept = lock(&self.kept);
        if let Some(last) = kept.bytes.last() {
            // Half a secret would not be recognised.
            kept.is_within = *last != b'\n';
        }
        kept.bytes.clear();
    }

    /// Waits for the end, no longer than to `until`: what was written may not have been read yet.
    pub(crate) async fn settle(&mut self, until: Instant) {
        let _ = timeout_at(until, self.reading.join_next()).await;
    }

    /// What was written since the question began.
    pub(crate) fn told(&self) -> Stderr {
        Stderr::of(&lock(&self.kept).bytes)
    }
}

impl StderrTail {
    /// Adds `bytes`, and keeps about the last [`STDERR_TAIL`].
    fn add(&mut self, bytes: &[u8]) {
        let bytes = if self.is_within {
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
            self.is_within = false;
            &bytes[end + 1..]
        } else {
            bytes
        };
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > 2 * STDERR_TAIL {
            let surplus = self.bytes.len() - STDERR_TAIL;
            let _ = self.bytes.split_to(surplus);
        }
    }
}

fn lock(kept: &Mutex<StderrTail>) -> MutexGuard<'_, StderrTail> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read(mut pipe: pipe::Receiver, kept: Arc<Mutex<StderrTail>>) {
    let mut bytes = BytesMut::with_capacity(STDERR_TAIL);
    while matches!(pipe.read_buf(&mut bytes).await, Ok(1..)) {
        lock(&kept).add(&bytes);
        bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_question_begins_with_a_line_of_its_own() {
        let tail = Tail { kept: Arc::default(), reading: JoinSet::new() };
        let told = || String::from_utf8_lossy(&lock(&tail.kept).bytes).into_owned();
        for (before, after, kept) in [
            ("", "first\n", "first\n"),
            ("", "whole\n", "whole\n"),
            ("hunt", "er2", ""),
            ("", " is wrong\nso\n", "so\n"),
            ("x\n", "next", "next"),
        ] {
            lock(&tail.kept).add(before.as_bytes());
            tail.clear();
            lock(&tail.kept).add(after.as_bytes());
            assert_eq!(told(), kept, "{before:?}, {after:?}");
        }
    }

    #[test]
    fn only_the_end_is_kept() {
        let mut kept = StderrTail::default();
        for _ in 0..40 {
            kept.add(&[b'x'; 10_000]);
        }
        kept.add(b"end");
        assert!((STDERR_TAIL..=2 * STDERR_TAIL).contains(&kept.bytes.len()));
        assert!(kept.bytes.ends_with(b"xend"));
    }
}

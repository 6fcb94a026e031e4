//! Keeps the end of a worker's stderr. A task reads it all the time, so that the worker never blocks on writing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use crate::script::run::{STDERR_TAIL, Stderr};

/// The end of stderr since the last request began. Dropping this stops the reading.
#[derive(Debug)]
pub(super) struct Tail {
    kept: Arc<Mutex<StderrTail>>,
    reading: JoinSet<()>,
}

#[derive(Debug, Default)]
struct StderrTail {
    bytes: BytesMut,
    /// Whether the next bytes continue a line that began before the request.
    is_within: bool,
}

impl Tail {
    /// Starts to read `stderr`.
    pub(super) fn of(stderr: pipe::Receiver) -> Self {
        let kept = Arc::<Mutex<StderrTail>>::default();
        let mut reading = JoinSet::new();
        reading.spawn(read(stderr, Arc::clone(&kept)));
        Self { kept, reading }
    }

    /// Forgets the text of earlier requests, when a new request begins.
    pub(super) fn clear(&self) {
        let mut kept = lock(&self.kept);
        if let Some(last) = kept.bytes.last() {
            // Redaction would not recognise half a secret.
            kept.is_within = *last != b'\n';
        }
        kept.bytes.clear();
    }

    /// Waits for the end of stderr, at most until `deadline`: some text may not have been read yet.
    pub(super) async fn finish(&mut self, deadline: Instant) {
        let _ = timeout_at(deadline, self.reading.join_next()).await;
    }

    /// The text since the last request began.
    pub(super) fn stderr(&self) -> Stderr {
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
    async fn a_request_begins_on_a_new_line() {
        let tail = Tail { kept: Arc::default(), reading: JoinSet::new() };
        let text = || String::from_utf8_lossy(&lock(&tail.kept).bytes).into_owned();
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
            assert_eq!(text(), kept, "{before:?}, {after:?}");
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

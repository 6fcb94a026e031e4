//! Says on standard error that a command still works, once it takes longer than a second. Only a terminal gets this.

use std::{
    io::{IsTerminal as _, Write as _, stderr},
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How long a command may take before it reports progress, and how often it reports.
const EVERY: Duration = Duration::from_secs(1);

/// Says that work is under way, until it is dropped.
pub(crate) struct Progress(Option<(Sender<()>, JoinHandle<()>)>);

impl Progress {
    /// Begins to say `what` is done, such as "asking the sources".
    pub(crate) fn begin(what: &str) -> Self {
        if !stderr().is_terminal() {
            return Self(None);
        }
        let (sender, receiver) = channel::<()>();
        let what = what.to_owned();
        let thread = std::thread::spawn(move || {
            let (began, mut is_shown) = (Instant::now(), false);
            while receiver.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                is_shown = true;
                let _ = write!(stderr(), "\r\u{1b}[K{what} … {} s", began.elapsed().as_secs());
            }
            if is_shown {
                let _ = write!(stderr(), "\r\u{1b}[K");
            }
        });
        Self(Some((sender, thread)))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

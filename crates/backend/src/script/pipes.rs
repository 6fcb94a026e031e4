//! Reads both output pipes of a program until it has ended.

use std::pin::pin;

use futures_util::future::{Either, select};
use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe::Sender,
    time::{Duration, timeout},
};

use super::capture::{Capture, Lost};
use launcher::{Ended, LaunchError, RunningProcess};

/// How long the gateway waits for a program before it starts to watch the pipes: once, and once more. A program that ends sooner
/// and fills no pipe needs no watching. Watching the pipes costs as much as all the rest of reading.
const WAITS: [Duration; 2] = [Duration::from_millis(15), Duration::from_millis(20)];
/// How long the rest of the output may take when the program and its descendants have ended.
const AFTER_EXIT: Duration = Duration::from_millis(250);

/// The output pipes of a program.
pub(super) struct Pipes {
    /// Its stdout.
    pub(super) output: Capture,
    /// Its stderr.
    pub(super) errors: Capture,
}

/// The end of a program.
pub(super) struct Exit {
    /// How the program ended, or why that is not known.
    pub(super) ended: Result<Ended, LaunchError>,
    /// Whether both pipes were read to their end.
    pub(super) is_read: bool,
}

impl Pipes {
    /// Reads both pipes until the program of `process` has ended. Writes `input` to `stdin` where there is one.
    ///
    /// # Errors
    /// When the program writes too much, or a pipe cannot be read.
    pub(super) async fn read_to_exit(
        &mut self,
        process: &mut RunningProcess,
        stdin: Option<Sender>,
        input: &[u8],
    ) -> Result<Exit, Lost> {
        let mut over = None;
        if stdin.is_none() {
            let (ended, is_read) = self.read_without_watching(process).await?;
            if is_read && let Some(ended) = ended {
                return Ok(Exit { ended, is_read });
            }
            over = ended;
        }
        let reading = self.read();
        let feed = async move {
            if let Some(mut stdin) = stdin {
                // A program need not read its input.
                let _ = stdin.write_all(input).await;
            }
        };
        tokio::pin!(reading, feed);
        let (mut is_read, mut is_fed) = (false, false);
        let ended = loop {
            if let Some(over) = over {
                break over;
            }
            tokio::select! {
                ended = process.over() => over = Some(ended),
                whole = &mut reading, if !is_read => {
                    // Fail at once: a later end by a signal would hide the reason.
                    whole?;
                    is_read = true;
                }
                () = &mut feed, if !is_fed => is_fed = true,
            }
        };
        if !is_read && let Ok(whole) = timeout(AFTER_EXIT, &mut reading).await {
            whole?;
            is_read = true;
        }
        Ok(Exit { ended, is_read })
    }

    /// Reads the pipes at the program's end, without watching them. Returns early once there is output, and returns how the
    /// program ended if it has, and whether both pipes were read to their end.
    async fn read_without_watching(
        &mut self,
        process: &mut RunningProcess,
    ) -> Result<(Option<Result<Ended, LaunchError>>, bool), Lost> {
        for wait in WAITS {
            let ended = timeout(wait, process.over()).await.ok();
            let (output, errors) = (self.output.read_available(), self.errors.read_available());
            let is_read = output? & errors?;
            if ended.is_some() || !self.output.bytes.is_empty() || !self.errors.bytes.is_empty() {
                return Ok((ended, is_read));
            }
        }
        Ok((None, false))
    }

    /// Reads both pipes to their end.
    async fn read(&mut self) -> Result<(), Lost> {
        match select(pin!(self.output.read()), pin!(self.errors.read())).await {
            Either::Left((Ok(()), reading_stderr)) => reading_stderr.await,
            Either::Left((lost, reading_stderr)) => {
                // The program may have explained the long output on stderr. It need not end by itself.
                let _ = timeout(AFTER_EXIT, reading_stderr).await;
                lost
            }
            Either::Right((is_stderr_read, reading)) => reading.await.and(is_stderr_read),
        }
    }
}

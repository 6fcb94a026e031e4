//! A question in, a line out.

use std::os::fd::AsFd;

use bytes::{Bytes, BytesMut};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
};

/// The least that is read at once, if it is there, in bytes.
const CHUNK: usize = 8 * 1024;

/// Why there is no line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The other side has gone; before it wrote a byte or after.
    Gone { is_silent: bool },
    /// The line is longer than it may be.
    TooMuch,
    /// It wrote what it was not asked for.
    Unasked(&'static str),
}

/// Writes `question` and reads a line of at most `most` bytes, without its end.
///
/// # Errors
/// When there is none, or more than that.
pub(crate) async fn exchange(
    stdin: &mut pipe::Sender,
    stdout: &mut pipe::Receiver,
    question: &[u8],
    most: usize,
) -> Result<Bytes, Broken> {
    let mut line = BytesMut::with_capacity(CHUNK);
    let writing = stdin.write_all(question);
    tokio::pin!(writing);
    let mut is_written = false;
    loop {
        let seen = line.len();
        tokio::select! {
            written = &mut writing, if !is_written => {
                written.map_err(|_| Broken::Gone { is_silent: line.is_empty() })?;
                is_written = true;
            }
            read = stdout.read_buf(&mut line) => {
                if !matches!(read, Ok(1..)) {
                    return Err(Broken::Gone { is_silent: line.is_empty() });
                }
                if let Some(end) = line[seen..].iter().position(|byte| *byte == b'\n') {
                    let end = seen + end;
                    let is_last = end + 1 == line.len() && !waiting(stdout).contains(PollFlags::POLLIN);
                    return match (is_last, is_written) {
                        _ if end > most => Err(Broken::TooMuch),
                        (false, _) => Err(Broken::Unasked("it wrote more than one line")),
                        (true, false) => Err(Broken::Unasked("it answered before it had read the question")),
                        (true, true) => Ok(line.split_to(end).freeze()),
                    };
                }
                if line.len() > most {
                    return Err(Broken::TooMuch);
                }
            }
        }
    }
}

/// Whether `pipe` is open, and nothing waits in it.
pub(crate) fn is_quiet(pipe: &pipe::Receiver) -> bool {
    waiting(pipe).is_empty()
}

/// What waits in `pipe`: output, or its end.
fn waiting(pipe: &pipe::Receiver) -> PollFlags {
    let mut pipe = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    match poll(&mut pipe, PollTimeout::ZERO) {
        Ok(_) => pipe[0].revents().unwrap_or(PollFlags::POLLERR),
        Err(_) => PollFlags::POLLERR,
    }
}

//! Writes one request to a worker and reads its answer, one line.

use std::os::fd::AsFd;

use bytes::{Bytes, BytesMut};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
};

/// The initial buffer for a line, in bytes.
const CHUNK: usize = 8 * 1024;

/// Why there is no valid line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// The worker closed its side. `is_silent`: before it wrote a byte.
    Gone { is_silent: bool },
    /// The line is too long.
    TooMuch,
    /// The worker wrote output without a request.
    Unrequested(&'static str),
}

/// Writes `request` and reads a line of at most `max_line` bytes, without the line end.
///
/// # Errors
/// When there is not exactly one line.
pub(super) async fn exchange(
    stdin: &mut pipe::Sender,
    stdout: &mut pipe::Receiver,
    request: &[u8],
    max_line: usize,
) -> Result<Bytes, Broken> {
    let mut line = BytesMut::with_capacity(CHUNK);
    let writing = stdin.write_all(request);
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
                        _ if end > max_line => Err(Broken::TooMuch),
                        (false, _) => Err(Broken::Unrequested("it wrote more than one line")),
                        (true, false) => Err(Broken::Unrequested("it answered before it had read the request")),
                        (true, true) => Ok(line.split_to(end).freeze()),
                    };
                }
                if line.len() > max_line {
                    return Err(Broken::TooMuch);
                }
            }
        }
    }
}

/// Whether `pipe` is open and empty.
pub(crate) fn is_quiet(pipe: &pipe::Receiver) -> bool {
    waiting(pipe).is_empty()
}

/// The pending events of `pipe`: output, or its end.
fn waiting(pipe: &pipe::Receiver) -> PollFlags {
    let mut pipe = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    match poll(&mut pipe, PollTimeout::ZERO) {
        Ok(_) => pipe[0].revents().unwrap_or(PollFlags::POLLERR),
        Err(_) => PollFlags::POLLERR,
    }
}

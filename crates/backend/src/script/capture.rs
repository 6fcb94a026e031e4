//! Reads one output pipe of a program that runs once.

use std::io::{self, ErrorKind, PipeReader, Read};

use tokio::{io::AsyncReadExt, net::unix::pipe};

/// The capacity of a pipe, in bytes (pipe(7)).
const PIPE_BYTES: usize = 64 * 1024;

/// A non-blocking pipe from a program, and the bytes that were read from it.
#[derive(Debug)]
pub(super) struct Capture {
    pipe: Option<PipeReader>,
    /// The bytes that were read and kept.
    pub bytes: Vec<u8>,
    keep: Keep,
}

/// How many bytes are kept.
#[derive(Debug, Clone, Copy)]
pub(super) enum Keep {
    /// All bytes. More than this many is an error.
    AtMost(usize),
    /// At least this many bytes of the end, at most twice as many.
    Last(usize),
}

/// Why the output was not read to its end.
#[derive(Debug)]
pub(super) enum Lost {
    /// The program wrote more than it may.
    TooMuch,
    /// The system could not read the pipe.
    Unread(io::Error),
}

impl Capture {
    /// Captures `pipe`. Most programs write at most `capacity` bytes.
    pub(super) fn new(pipe: PipeReader, capacity: usize, keep: Keep) -> Self {
        Self { pipe: Some(pipe), bytes: Vec::with_capacity(capacity), keep }
    }

    /// Reads the bytes that are there, without waiting. Returns whether the pipe has ended.
    ///
    /// # Errors
    /// When the output is too long, or cannot be read.
    pub(crate) fn read_available(&mut self) -> Result<bool, Lost> {
        let Some(pipe) = &self.pipe else { return Ok(true) };
        // The bytes that were read before an error are kept.
        let has_ended = match pipe.take(PIPE_BYTES as u64).read_to_end(&mut self.bytes) {
            Ok(read) => read < PIPE_BYTES,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => return Err(Lost::Unread(error)),
        };
        if has_ended {
            self.pipe = None;
        }
        self.trim()?;
        Ok(has_ended)
    }

    /// Reads to the end of the pipe.
    ///
    /// # Errors
    /// When the output is too long, or cannot be read.
    pub(super) async fn read(&mut self) -> Result<(), Lost> {
        let Some(pipe) = self.pipe.take() else { return Ok(()) };
        let mut pipe = watch(pipe).map_err(Lost::Unread)?;
        while pipe.read_buf(&mut self.bytes).await.map_err(Lost::Unread)? > 0 {
            self.trim()?;
        }
        Ok(())
    }

    fn trim(&mut self) -> Result<(), Lost> {
        match self.keep {
            Keep::AtMost(max) if self.bytes.len() > max => Err(Lost::TooMuch),
            Keep::Last(max) if self.bytes.len() > 2 * max => {
                self.bytes.drain(..self.bytes.len() - max);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Registers the non-blocking `pipe` with the runtime, so that a task can wait for its output.
///
/// # Errors
/// When the system cannot watch more files.
pub(super) fn watch(pipe: PipeReader) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd_unchecked(pipe.into())
}

#[cfg(test)]
mod tests {
    use std::io::{PipeWriter, Write};

    use super::*;

    fn pipe(keep: Keep) -> (PipeWriter, Capture) {
        let (ours, theirs) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&ours, true).unwrap();
        (theirs, Capture::new(ours, 16, keep))
    }

    #[tokio::test]
    async fn available_output_is_read_without_waiting_then_the_rest() {
        let (mut program, mut captured) = pipe(Keep::AtMost(200_000));
        assert!(!captured.read_available().unwrap() && captured.bytes.is_empty());
        program.write_all(b"some").unwrap();
        assert!(!captured.read_available().unwrap() && captured.bytes == b"some");
        let full = vec![b'x'; PIPE_BYTES];
        program.write_all(&full).unwrap();
        assert!(!captured.read_available().unwrap(), "a full pipe may have more to come");
        let more = vec![b'y'; 2 * PIPE_BYTES];
        let expected = [b"some", full.as_slice(), &more].concat();
        let writing = std::thread::spawn(move || program.write_all(&more).unwrap());
        captured.read().await.unwrap();
        writing.join().unwrap();
        assert!(captured.bytes == expected);
        assert!(captured.read_available().unwrap() && captured.read().await.is_ok());
    }

    #[tokio::test]
    async fn too_much_output_is_an_error_and_a_tail_keeps_the_end() {
        for is_watched in [false, true] {
            let (mut program, mut much) = pipe(Keep::AtMost(9));
            let (mut talker, mut tail) = pipe(Keep::Last(4));
            program.write_all(b"0123456789").unwrap();
            talker.write_all(b"0123456789").unwrap();
            drop((program, talker));
            let ((), has_ended) =
                if is_watched { (tail.read().await.unwrap(), true) } else { ((), tail.read_available().unwrap()) };
            assert!(has_ended && tail.bytes == b"6789");
            let lost = if is_watched { much.read().await } else { much.read_available().map(|_| ()) };
            assert!(matches!(lost, Err(Lost::TooMuch)), "{lost:?}");
        }
    }
}

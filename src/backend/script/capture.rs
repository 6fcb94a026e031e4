//! What comes out of a program that runs once, by one of its pipes.

use std::io::{self, ErrorKind, PipeReader, Read};

use tokio::{io::AsyncReadExt, net::unix::pipe};

/// What a pipe holds, in bytes (pipe(7)).
const PIPE: usize = 64 * 1024;

/// One of a program's pipes, which never blocks, and what came out of it.
#[derive(Debug)]
pub(crate) struct Capture {
    pipe: Option<PipeReader>,
    /// What came out of it, but for what was dropped.
    pub(crate) bytes: Vec<u8>,
    keep: Keep,
}

/// How much of it is kept, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keep {
    /// All, and more than so much is too much.
    AtMost(usize),
    /// About so much of its end.
    Last(usize),
}

/// Why not all of it is known.
#[derive(Debug)]
pub(crate) enum Lost {
    /// It is more than it may be.
    TooMuch,
    /// The system did not let it be read.
    Unread(io::Error),
}

impl Capture {
    /// The one of `pipe`, of which most programs fill `room` bytes at most.
    pub(crate) fn new(pipe: PipeReader, room: usize, keep: Keep) -> Self {
        Self { pipe: Some(pipe), bytes: Vec::with_capacity(room), keep }
    }

    /// Takes what is there, and waits for nothing; whether that is the end of it.
    ///
    /// # Errors
    /// When it is too much, or cannot be read.
    pub(crate) fn look(&mut self) -> Result<bool, Lost> {
        let Some(pipe) = &self.pipe else { return Ok(true) };
        // What was read before an error is kept.
        let is_over = match pipe.take(PIPE as u64).read_to_end(&mut self.bytes) {
            Ok(read) => read < PIPE,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => return Err(Lost::Unread(error)),
        };
        if is_over {
            self.pipe = None;
        }
        self.trim()?;
        Ok(is_over)
    }

    /// Reads it to the end.
    ///
    /// # Errors
    /// When it is too much, or cannot be read.
    pub(crate) async fn read(&mut self) -> Result<(), Lost> {
        let Some(pipe) = self.pipe.take() else { return Ok(()) };
        let mut pipe = watched(pipe).map_err(Lost::Unread)?;
        while pipe.read_buf(&mut self.bytes).await.map_err(Lost::Unread)? > 0 {
            self.trim()?;
        }
        Ok(())
    }

    fn trim(&mut self) -> Result<(), Lost> {
        match self.keep {
            Keep::AtMost(most) if self.bytes.len() > most => Err(Lost::TooMuch),
            Keep::Last(most) if self.bytes.len() > 2 * most => {
                self.bytes.drain(..self.bytes.len() - most);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// `pipe`, which never blocks, for who waits for what comes out of it.
///
/// # Errors
/// When no more can be watched.
pub(crate) fn watched(pipe: PipeReader) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd_unchecked(pipe.into())
}

#[cfg(test)]
mod tests {
    use std::io::{PipeWriter, Write};

    use super::*;

    fn outlet(keep: Keep) -> (PipeWriter, Capture) {
        let (ours, theirs) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&ours, true).unwrap();
        (theirs, Capture::new(ours, 16, keep))
    }

    #[tokio::test]
    async fn what_is_there_is_taken_and_the_rest_read() {
        let (mut program, mut outlet) = outlet(Keep::AtMost(200_000));
        assert!(!outlet.look().unwrap() && outlet.bytes.is_empty());
        program.write_all(b"some").unwrap();
        assert!(!outlet.look().unwrap() && outlet.bytes == b"some");
        let full = vec![b'x'; PIPE];
        program.write_all(&full).unwrap();
        assert!(!outlet.look().unwrap(), "nobody knows whether that was all");
        let more = vec![b'y'; 2 * PIPE];
        let expected = [b"some", full.as_slice(), &more].concat();
        let writing = std::thread::spawn(move || program.write_all(&more).unwrap());
        outlet.read().await.unwrap();
        writing.join().unwrap();
        assert!(outlet.bytes == expected);
        assert!(outlet.look().unwrap() && outlet.read().await.is_ok());
    }

    #[tokio::test]
    async fn too_much_is_told_and_of_a_tail_the_end_is_kept() {
        for is_watched in [false, true] {
            let (mut program, mut much) = outlet(Keep::AtMost(9));
            let (mut talker, mut tail) = outlet(Keep::Last(4));
            program.write_all(b"0123456789").unwrap();
            talker.write_all(b"0123456789").unwrap();
            drop((program, talker));
            let ((), is_over) =
                if is_watched { (tail.read().await.unwrap(), true) } else { ((), tail.look().unwrap()) };
            assert!(is_over && tail.bytes == b"6789");
            let lost = if is_watched { much.read().await } else { much.look().map(|_| ()) };
            assert!(matches!(lost, Err(Lost::TooMuch)), "{lost:?}");
        }
    }
}

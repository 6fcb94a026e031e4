//! The protocol between the gateway and a launcher, over a socket. A frame is a length and a message in postcard's format; both
//! sides are the same program, so they agree on it. A request that starts a program carries its three standard streams.

mod start;

use std::{
    io::{self, IoSlice, IoSliceMut, Write},
    mem::MaybeUninit,
    ops::Range,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use super::failure::StartFailure;

pub use self::start::{Copied, Environment, First, Program};
pub(crate) use self::start::{Start, Texts};

/// stdin, stdout and stderr.
pub(crate) const STREAMS: usize = 3;
/// The largest frame, in bytes: more than the kernel takes as arguments and environment of a program.
const MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;
/// The size of a frame's length, in bytes.
const HEAD: usize = 4;
/// The space for a frame, in bytes. Most frames fit.
const USUAL: usize = 1024;
/// How much an [`Inbox`] reads at once, in bytes. Most frames fit.
const ROOM: usize = 16 * 1024;

/// A message from the gateway to a launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LauncherRequest<'a> {
    /// Start a program. Its three streams come with the message.
    #[serde(borrow)]
    Start(Start<'a>),
    /// End the program and all that it started: TERM, then KILL after the grace.
    Stop(Duration),
}

/// A message from a launcher to the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LauncherReport {
    /// The launcher is ready: at first when it is confined, later when it has emptied its folder. Names what the kernel could not
    /// take away.
    Ready(Vec<String>),
    /// The program could not be started, and why.
    NotStarted(StartFailure),
    /// The program has ended, and so has all that it started.
    Ended(Ended),
}

/// A program that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// By an exit code or a signal.
    pub how: ExitKind,
    /// The processor time that it and its children took.
    pub cpu: Duration,
    /// The most memory that one process of this launcher ever took, in bytes.
    pub peak: u64,
    /// Whether a killed descendant still had its stdout open, so that the output may lack its end.
    pub is_cut: bool,
    /// The fate of its launcher.
    pub(crate) fate: Fate,
    /// Whether [`Program::first`] ended so, and the program itself did not run.
    pub is_first: bool,
}

/// The fate of a launcher whose program has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fate {
    /// The launcher can be used again at once.
    Goes,
    /// The launcher must empty its folder first, and then reports that it is ready.
    Waits,
    /// The launcher ends, since a process of the program may be left.
    Ends,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitKind {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// The kernel gave no reason.
    Unknown,
}

/// `message` as a frame.
///
/// # Errors
/// When the message is too large.
pub(crate) fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut room = Vec::with_capacity(USUAL);
    room.extend([0; HEAD]);
    let mut frame = postcard::to_extend(message, room).map_err(io::Error::other)?;
    let length = frame.len() - HEAD;
    if length > MAX_MESSAGE_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let length = u32::try_from(length).map_err(io::Error::other)?;
    frame[..HEAD].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

/// The range of the first frame's body in `bytes`, once its length is known. `bytes` may end before the body does.
///
/// # Errors
/// When the frame is too large.
pub(crate) fn body(bytes: &[u8]) -> io::Result<Option<Range<usize>>> {
    let Some((head, _)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(*head)).ok().filter(|length| *length <= MAX_MESSAGE_BYTES);
    let length = length.ok_or(io::ErrorKind::InvalidData)?;
    Ok(Some(HEAD..HEAD + length))
}

/// The message in `body`.
///
/// # Errors
/// When it is malformed.
pub(crate) fn message<'a, T: Deserialize<'a>>(body: &'a [u8]) -> io::Result<T> {
    postcard::from_bytes(body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Sends the first part of `frame` with `files`, at most [`STREAMS`] of them, and returns how many bytes were sent.
///
/// # Errors
/// Those of the socket.
pub(crate) fn send_with(socket: impl AsFd, frame: &[u8], files: &[OwnedFd]) -> io::Result<usize> {
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
    }
    Ok(sendmsg(socket, &[IoSlice::new(frame)], &mut ancillary, SendFlags::NOSIGNAL)?)
}

/// A launcher's end of the socket.
#[derive(Debug)]
pub(crate) struct Inbox {
    socket: UnixStream,
    /// The first `filled` bytes have been received and not been taken yet.
    buffer: Vec<u8>,
    filled: usize,
    streams: Vec<OwnedFd>,
}

impl Inbox {
    /// Receives from `socket`.
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self { socket, buffer: vec![0; ROOM], filled: 0, streams: Vec::new() }
    }

    /// Waits for the body of a frame; `None` when the other side is gone. Streams are a barrier in the socket (unix(7)): one read
    /// never returns bytes that were sent after them.
    ///
    /// # Errors
    /// Those of the socket, or when the frame is malformed.
    pub(crate) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let mut until = ROOM;
            if let Some(body) = body(&self.buffer[..self.filled])? {
                until = body.end;
                if until <= self.filled {
                    let body = self.buffer[body].to_vec();
                    self.buffer.copy_within(until..self.filled, 0);
                    self.filled -= until;
                    self.buffer.resize(ROOM.max(self.filled), 0);
                    self.buffer.shrink_to(ROOM);
                    return Ok(Some(body));
                }
                self.buffer.resize(ROOM.max(until), 0);
            }
            if !self.fill(until)? {
                return Ok(None);
            }
        }
    }

    /// Whether a whole frame has been received and not been taken yet.
    ///
    /// # Errors
    /// When the frame is malformed.
    pub(crate) fn has_next(&self) -> io::Result<bool> {
        Ok(body(&self.buffer[..self.filled])?.is_some_and(|body| body.end <= self.filled))
    }

    /// The files that came with the last request to start something.
    pub(crate) fn streams(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.streams)
    }

    /// Reads until at most `until` bytes are in the buffer. Returns whether the other side is still there.
    fn fill(&mut self, until: usize) -> io::Result<bool> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let room = &mut [IoSliceMut::new(&mut self.buffer[self.filled..until])];
        let got = recvmsg(&self.socket, room, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
        for received in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = received {
                self.streams.extend(received);
            }
        }
        self.filled += got;
        Ok(got > 0)
    }

    /// Sends `message`.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.socket.write_all(&frame(message)?)
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, io::Read};

    use super::*;

    #[test]
    fn messages_arrive_whole_and_streams_with_theirs() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut inbox = Inbox::new(theirs);
        let program = |argument: &str| Program {
            path: "/bin/x".into(),
            argv0: Some("x".to_owned()),
            arguments: vec![argument.to_owned()],
            folder: Some("/tmp".into()),
            first: Some(First { path: "init".into(), argv0: None, arguments: Vec::new() }),
            copy: Some(Copied {
                from: "/from".into(),
                max_bytes: 7,
                max_files: 9,
                inside: "in".into(),
                is_fixed: true,
            }),
        };
        let variables: Environment<'_> =
            [("A", "1"), ("B", ""), ("A", "2=3")].map(|(name, value)| (name.into(), OsStr::new(value).into())).into();
        let stop = frame(&LauncherRequest::Stop(Duration::from_millis(1500))).unwrap();
        for size in [0, 5, ROOM, 10 * ROOM] {
            let argument = "x".repeat(size);
            let start = frame(&LauncherRequest::Start(program(&argument).start(&variables).unwrap())).unwrap();
            let expected = start.clone();
            let (mut end, other) = io::pipe().unwrap();
            let streams = [other.try_clone().unwrap().into(), other.try_clone().unwrap().into(), other.into()];
            let mut sender = ours.try_clone().unwrap();
            // A stop that comes too late, the next program, and the stop of that one.
            let sending = std::thread::spawn({
                let stop = stop.clone();
                move || {
                    sender.write_all(&stop).unwrap();
                    let sent = send_with(&sender, &start, &streams).unwrap();
                    sender.write_all(&[&start[sent..], &stop[..]].concat()).unwrap();
                }
            });
            let is_stop = |inbox: &mut Inbox| inbox.next().unwrap() == Some(stop[HEAD..].to_vec());
            assert!(is_stop(&mut inbox));
            let (body, mut streams) = (inbox.next().unwrap().unwrap(), inbox.streams());
            assert_eq!((body.as_slice(), inbox.filled, streams.len()), (&expected[HEAD..], 0, STREAMS));
            let LauncherRequest::Start(start) = message(&body).unwrap() else { panic!("{body:?}") };
            let texts =
                |texts: &Texts<'_>| texts.iter().map(|text| text.to_str().unwrap().to_owned()).collect::<Vec<_>>();
            assert_eq!(texts(&start.command), ["/bin/x", "x", &argument]);
            assert_eq!(
                (texts(&start.environment), texts(&start.folder)),
                (vec!["A=2=3".into(), "B=".into()], vec!["/tmp".into()])
            );
            assert_eq!(
                (start.first.as_ref().map(texts), start.copy),
                (Some(vec!["init".to_owned(), String::new()]), program("").copy)
            );
            std::fs::File::from(streams.pop().unwrap()).write_all(b"stderr").unwrap();
            drop(streams);
            assert_eq!(io::read_to_string(&mut end).unwrap(), "stderr");
            assert!(is_stop(&mut inbox));
            sending.join().unwrap();
        }
        inbox.send(&LauncherReport::Ready(vec!["x".to_owned()])).unwrap();
        let mut report = vec![0; HEAD];
        ours.read_exact(&mut report).unwrap();
        let place = body(&report).unwrap().unwrap();
        report.resize(place.end, 0);
        ours.read_exact(&mut report[HEAD..]).unwrap();
        assert_eq!(message::<LauncherReport>(&report[place]).unwrap(), LauncherReport::Ready(vec!["x".to_owned()]));
        ours.write_all(&[0xff; HEAD]).unwrap();
        assert_eq!(inbox.next().unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(ours);
        assert!(Inbox::new(inbox.socket).next().unwrap().is_none());
    }
}

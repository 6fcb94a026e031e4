//! What the gateway and a launcher say to each other over their socket: frames of a length and a message in postcard's
//! format, which both read in one way, since both are the same program. A request that starts a program carries its three
//! standard streams.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::{CStr, OsStr},
    io::{self, IoSlice, IoSliceMut, Write},
    mem::MaybeUninit,
    ops::Range,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::PathBuf,
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// stdin, stdout and stderr.
pub(crate) const STREAMS: usize = 3;
/// The largest frame, in bytes: more than the kernel takes as a program's arguments and environment.
const MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;
/// The bytes that say how long a frame is.
const HEAD: usize = 4;
/// Most frames are shorter, in bytes.
const USUAL: usize = 1024;
/// What an [`Inbox`] takes at once, in bytes: most frames whole.
const ROOM: usize = 16 * 1024;

/// What the gateway wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request<'a> {
    /// Start a program. Its streams come with it.
    #[serde(borrow)]
    Start(Start<'a>),
    /// End the program and all that it started: TERM, then KILL after the grace.
    Stop(Duration),
}

/// Environment variables and their values. Of two of a name the later one holds.
pub(crate) type Environment<'a> = Vec<(Cow<'a, str>, Cow<'a, OsStr>)>;

/// A program that is run again and again, each time with another environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// An absolute path, or one in the copy.
    pub(crate) path: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// Where it runs; its work folder unless set.
    pub(crate) folder: Option<PathBuf>,
    /// What runs before it, with the same environment and in the same folder; only when it ends well does the program run.
    pub(crate) first: Option<First>,
    /// A folder that is copied into its work folder. It runs in the copy.
    pub(crate) copy: Option<Copied>,
}

/// A program that runs before another. What it writes to stdout goes to stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct First {
    /// An absolute path, or one in the copy.
    pub(crate) path: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
}

/// A folder to copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Copied {
    /// The folder.
    pub(crate) from: PathBuf,
    /// The most that all its files may hold, in bytes.
    pub(crate) bytes: u64,
}

/// A [`Program`] as a launcher hands it to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start<'a> {
    /// The program, then its arguments.
    #[serde(borrow)]
    pub(crate) command: Texts<'a>,
    /// The same of what runs before it.
    pub(crate) first: Option<Texts<'a>>,
    /// `NAME=value` each.
    pub(crate) environment: Texts<'a>,
    /// Where it runs: the one path, if there is one.
    pub(crate) folder: Texts<'a>,
    /// What is copied into its work folder.
    pub(crate) copy: Option<Copied>,
}

/// Texts in a row, each with the zero byte at its end that the kernel wants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Texts<'a>(#[serde(borrow)] Cow<'a, [u8]>);

impl Serialize for Texts<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl Program {
    /// The [`Request::Start`] for it with its whole environment, but for `HOME` and `TMPDIR`, which name its work folder
    /// unless they are set there.
    ///
    /// # Errors
    /// When a text holds a zero byte, and so cannot be passed on.
    pub(crate) fn start(&self, environment: &Environment<'_>) -> io::Result<Request<'static>> {
        let command = |path: &PathBuf, arguments: &[String]| {
            let mut texts = Texts::default();
            texts.push(&[path.as_os_str()])?;
            arguments.iter().try_for_each(|argument| texts.push(&[argument.as_ref()]))?;
            io::Result::Ok(texts)
        };
        let sizes = environment.iter().map(|(name, value)| name.len() + value.len() + 2);
        let mut variables = Texts(Vec::with_capacity(sizes.sum()).into());
        let unique: BTreeMap<&str, &OsStr> = environment.iter().map(|(name, value)| (&**name, &**value)).collect();
        unique.into_iter().try_for_each(|(name, value)| variables.push(&[name.as_ref(), "=".as_ref(), value]))?;
        let mut folder = Texts::default();
        self.folder.iter().try_for_each(|path| folder.push(&[path.as_os_str()]))?;
        Ok(Request::Start(Start {
            command: command(&self.path, &self.arguments)?,
            first: self.first.as_ref().map(|first| command(&first.path, &first.arguments)).transpose()?,
            environment: variables,
            folder,
            copy: self.copy.clone(),
        }))
    }
}

impl Texts<'_> {
    /// Adds a text that consists of `parts`.
    fn push(&mut self, parts: &[&OsStr]) -> io::Result<()> {
        let bytes = self.0.to_mut();
        for part in parts {
            if part.as_bytes().contains(&0) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "a zero byte stands in its arguments or variables",
                ));
            }
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes.push(0);
        Ok(())
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CStr> {
        self.0.split_inclusive(|byte| *byte == 0).filter_map(|text| CStr::from_bytes_with_nul(text).ok())
    }
}

/// What a launcher tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// It is confined, but for what the kernel cannot do; also when it has emptied its folder, and may be used again.
    Ready(Vec<String>),
    /// The program could not be started.
    NotStarted(String),
    /// The program has ended, and so has all that it started.
    Ended(Ended),
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// How.
    pub(crate) how: How,
    /// The processor time that it and its children took.
    pub(crate) cpu: Duration,
    /// The most memory that one of the programs that this launcher ran ever took, in bytes.
    pub(crate) peak: u64,
    /// Whether what it started was killed that could still write to its stdout.
    pub(crate) is_cut: bool,
    /// What becomes of the launcher.
    pub(crate) fate: Fate,
    /// Whether it was [`Program::first`] that ended so, and the program itself did not run.
    pub(crate) is_first: bool,
}

/// What becomes of a launcher whose program has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fate {
    /// It is as good as new.
    Goes,
    /// It has a folder to empty, and is as good as new once it is ready.
    Waits,
    /// It ends: a process of the program may be left.
    Ends,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Nobody knows.
    Unknown,
}

/// `message` as a frame.
///
/// # Errors
/// When it is larger than a frame may be.
pub(crate) fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut room = Vec::with_capacity(USUAL);
    room.extend([0; HEAD]);
    let mut frame = postcard::to_extend(message, room).map_err(io::Error::other)?;
    let length = frame.len() - HEAD;
    let told = u32::try_from(length).ok().filter(|_| length <= MAX_MESSAGE_BYTES).ok_or(io::ErrorKind::FileTooLarge)?;
    frame[..HEAD].copy_from_slice(&told.to_be_bytes());
    Ok(frame)
}

/// Where the body is of the frame that `bytes` begin with, once its length is known; it need not all be there.
///
/// # Errors
/// When it is longer than a frame may be.
pub(crate) fn body(bytes: &[u8]) -> io::Result<Option<Range<usize>>> {
    let Some((head, _)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(*head)).ok().filter(|length| *length <= MAX_MESSAGE_BYTES);
    let length = length.ok_or(io::ErrorKind::InvalidData)?;
    Ok(Some(HEAD..HEAD + length))
}

/// The message in `body`.
///
/// # Errors
/// When it is none.
pub(crate) fn message<'a, T: Deserialize<'a>>(body: &'a [u8]) -> io::Result<T> {
    postcard::from_bytes(body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Sends the first part of `frame` with `streams`; the number of bytes that were sent.
///
/// # Errors
/// Those of the socket.
pub(crate) fn send_with(socket: impl AsFd, frame: &[u8], streams: &[OwnedFd; STREAMS]) -> io::Result<usize> {
    let streams = streams.each_ref().map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&streams));
    Ok(sendmsg(socket, &[IoSlice::new(frame)], &mut ancillary, SendFlags::NOSIGNAL)?)
}

/// A launcher's end of the socket.
#[derive(Debug)]
pub(crate) struct Inbox {
    socket: UnixStream,
    /// What has come and was not taken yet is its first part.
    buffer: Vec<u8>,
    filled: usize,
    streams: Vec<OwnedFd>,
}

impl Inbox {
    /// What comes by `socket`.
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self { socket, buffer: vec![0; ROOM], filled: 0, streams: Vec::new() }
    }

    /// Waits for a [`message`]; `None` when the other side is gone. Nothing that was sent after streams is taken together with
    /// them: they are a barrier in the socket (unix(7)).
    ///
    /// # Errors
    /// Those of the socket, or when it is no frame.
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

    /// The streams that came, which are those of the last [`Request::Start`].
    pub(crate) fn streams(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.streams)
    }

    /// Takes what has come, until there are so many bytes; whether there may be more.
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
    use std::io::Read;

    use super::*;

    #[test]
    fn words_arrive_whole_and_streams_with_theirs() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut inbox = Inbox::new(theirs);
        let program = |argument: &str| Program {
            path: "/bin/x".into(),
            arguments: vec![argument.to_owned()],
            folder: Some("/tmp".into()),
            first: Some(First { path: "init".into(), arguments: Vec::new() }),
            copy: Some(Copied { from: "/from".into(), bytes: 7 }),
        };
        let variables: Environment<'_> =
            [("A", "1"), ("B", ""), ("A", "2=3")].map(|(name, value)| (name.into(), OsStr::new(value).into())).into();
        let stop = frame(&Request::Stop(Duration::from_millis(1500))).unwrap();
        for size in [0, 5, ROOM, 10 * ROOM] {
            let argument = "x".repeat(size);
            let start = frame(&program(&argument).start(&variables).unwrap()).unwrap();
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
            let Request::Start(start) = message(&body).unwrap() else { panic!("{body:?}") };
            let texts =
                |texts: &Texts<'_>| texts.iter().map(|text| text.to_str().unwrap().to_owned()).collect::<Vec<_>>();
            assert_eq!(texts(&start.command), ["/bin/x", &argument]);
            assert_eq!(
                (texts(&start.environment), texts(&start.folder)),
                (vec!["A=2=3".into(), "B=".into()], vec!["/tmp".into()])
            );
            assert_eq!(
                (start.first.as_ref().map(texts), start.copy),
                (Some(vec!["init".to_owned()]), program("").copy)
            );
            std::fs::File::from(streams.pop().unwrap()).write_all(b"stderr").unwrap();
            drop(streams);
            assert_eq!(io::read_to_string(&mut end).unwrap(), "stderr");
            assert!(is_stop(&mut inbox));
            sending.join().unwrap();
        }
        inbox.send(&Report::Ready(vec!["x".to_owned()])).unwrap();
        let mut report = vec![0; HEAD];
        ours.read_exact(&mut report).unwrap();
        let place = body(&report).unwrap().unwrap();
        report.resize(place.end, 0);
        ours.read_exact(&mut report[HEAD..]).unwrap();
        assert_eq!(message::<Report>(&report[place]).unwrap(), Report::Ready(vec!["x".to_owned()]));
        ours.write_all(&[0xff; HEAD]).unwrap();
        assert_eq!(inbox.next().unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(ours);
        assert!(Inbox::new(inbox.socket).next().unwrap().is_none());
    }

    #[test]
    fn a_zero_byte_is_refused() {
        let program = Program { path: "/bin/x".into(), arguments: Vec::new(), folder: None, first: None, copy: None };
        let environment = vec![("A".into(), OsStr::new("1\0B=2").into())];
        assert!(program.start(&environment).unwrap_err().to_string().contains("zero byte"));
    }
}

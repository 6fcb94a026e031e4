//! What the gateway and a launcher say to each other over their socket: frames of a length and JSON. A request that
//! starts a program carries its three standard streams.

use std::{
    ffi::OsString,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStringExt, net::UnixStream},
    },
    path::PathBuf,
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// stdin, stdout and stderr.
pub const STREAMS: usize = 3;
/// The largest frame, in bytes: more than the kernel takes as a program's arguments and environment.
const MOST: usize = 32 * 1024 * 1024;
/// The bytes that say how long a frame is.
const HEAD: usize = 4;

/// What the gateway wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// Start a program. Its streams come with it.
    Start(Program),
    /// End the program and all that it started: TERM, then KILL after the grace.
    Stop(Duration),
}

/// A program and what it is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// An absolute path: with it, a cleared environment still allows the fast spawn.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment but for `HOME` and `TMPDIR`, which name its work folder.
    pub environment: Vec<(String, OsText)>,
    /// Where it runs; its work folder unless set.
    pub folder: Option<PathBuf>,
    /// What runs before it, with the same environment and in the same folder; only when it ends well does the program run.
    pub first: Option<First>,
    /// A folder that is copied into its work folder. It runs in the copy.
    pub copy: Option<Copied>,
}

/// A program that runs before another. What it writes to stdout goes to stderr.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct First {
    /// An absolute path, or one in the copy.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// A folder to copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// The folder.
    pub from: PathBuf,
    /// The most that all its files may hold, in bytes.
    pub bytes: u64,
}

/// A text of the operating system's, which need not be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OsText {
    /// Most are.
    Utf8(String),
    /// Its bytes.
    Other(Vec<u8>),
}

impl From<OsString> for OsText {
    fn from(text: OsString) -> Self {
        text.into_string().map_or_else(|text| Self::Other(text.into_vec()), Self::Utf8)
    }
}

impl From<OsText> for OsString {
    fn from(text: OsText) -> Self {
        match text {
            OsText::Utf8(text) => text.into(),
            OsText::Other(bytes) => Self::from_vec(bytes),
        }
    }
}

/// What a launcher tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Report {
    /// It is confined, but for what the kernel cannot do; also when it has emptied its folder, and may be used again.
    Ready(Vec<String>),
    /// The program could not be started.
    NotStarted(String),
    /// The program has ended, and so has all that it started.
    Ended(Ended),
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How.
    pub how: How,
    /// The processor time that it and its children took.
    pub cpu: Duration,
    /// The most memory that one of the programs that this launcher ran ever took, in bytes.
    pub peak: u64,
    /// Whether what it started was killed that could still write to its stdout.
    pub is_cut: bool,
    /// What becomes of the launcher.
    pub fate: Fate,
    /// Whether it was [`Program::first`] that ended so, and the program itself did not run.
    pub is_first: bool,
}

/// What becomes of a launcher whose program has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// It is as good as new.
    Goes,
    /// It has a folder to empty, and is as good as new once it is ready.
    Waits,
    /// It ends: a process of the program may be left.
    Ends,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
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
pub fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; HEAD];
    serde_json::to_writer(&mut frame, message)?;
    let length = frame.len() - HEAD;
    let told = u32::try_from(length).ok().filter(|_| length <= MOST).ok_or(io::ErrorKind::FileTooLarge)?;
    frame[..HEAD].copy_from_slice(&told.to_be_bytes());
    Ok(frame)
}

/// How long the frame is that begins with `head`.
///
/// # Errors
/// When it is longer than a frame may be.
pub fn length(head: [u8; HEAD]) -> io::Result<usize> {
    usize::try_from(u32::from_be_bytes(head))
        .ok()
        .filter(|length| *length <= MOST)
        .ok_or(io::ErrorKind::InvalidData.into())
}

/// The message in `body`.
///
/// # Errors
/// When it is none.
pub fn message<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    Ok(serde_json::from_slice(body)?)
}

/// Sends the first part of `frame` with `streams`; the number of bytes that were sent.
///
/// # Errors
/// Those of the socket.
pub fn send_with(socket: impl AsFd, frame: &[u8], streams: &[OwnedFd; STREAMS]) -> io::Result<usize> {
    let streams = streams.each_ref().map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&streams));
    Ok(sendmsg(socket, &[IoSlice::new(frame)], &mut ancillary, SendFlags::NOSIGNAL)?)
}

/// Waits for a message, with the streams that came with it; `None` when the other side is gone.
///
/// # Errors
/// Those of the socket, or when it is no message.
pub fn receive<T: DeserializeOwned>(socket: &mut UnixStream) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut head = [0; HEAD];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(&mut *socket, &mut [IoSliceMut::new(&mut head)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
    if got == 0 {
        return Ok(None);
    }
    let mut streams = Vec::new();
    for received in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = received {
            streams.extend(received);
        }
    }
    socket.read_exact(&mut head[got..])?;
    let mut body = vec![0; length(head)?];
    socket.read_exact(&mut body)?;
    Ok(Some((message(&body)?, streams)))
}

/// Sends `message`.
///
/// # Errors
/// Those of the socket.
pub fn send(socket: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    socket.write_all(&frame(message)?)
}

//! The gateway's end of a socket to a launcher or to the supervisor.

use std::{io, os::fd::OwnedFd};

use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use super::wire;

/// The messages from the other side.
#[derive(Debug)]
pub(super) struct Reports {
    socket: OwnedReadHalf,
    /// Received bytes that are not a whole frame yet.
    taken: Vec<u8>,
}

/// The messages to the other side.
#[derive(Debug)]
pub(super) struct Requests(OwnedWriteHalf);

impl Reports {
    /// Messages from `socket`.
    pub(super) const fn new(socket: OwnedReadHalf) -> Self {
        Self { socket, taken: Vec::new() }
    }

    /// Waits for the next message. A cancelled call loses nothing.
    ///
    /// # Errors
    /// When the other side has ended.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        loop {
            if let Some(body) = wire::body(&self.taken)?.filter(|body| body.end <= self.taken.len()) {
                let report = wire::message(&self.taken[body.clone()])?;
                self.taken.drain(..body.end);
                return Ok(report);
            }
            if self.socket.read_buf(&mut self.taken).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl Requests {
    /// Messages to `socket`.
    pub(super) const fn new(socket: OwnedWriteHalf) -> Self {
        Self(socket)
    }

    /// Sends `message` with `files`.
    ///
    /// # Errors
    /// When the other side has ended.
    pub(super) async fn send(&mut self, message: &impl Serialize, files: &[OwnedFd]) -> io::Result<()> {
        self.send_frame(&wire::frame(message)?, files).await
    }

    /// Sends `frame` with `files`.
    ///
    /// # Errors
    /// When the other side has ended.
    pub(super) async fn send_frame(&mut self, frame: &[u8], files: &[OwnedFd]) -> io::Result<()> {
        let socket: &UnixStream = self.0.as_ref();
        let sent = loop {
            socket.writable().await?;
            match socket.try_io(Interest::WRITABLE, || wire::send_with(socket, frame, files)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => break result?,
            }
        };
        self.0.write_all(&frame[sent..]).await
    }

    /// Sends the short `frame` as a whole. A cancelled call has sent nothing.
    ///
    /// # Errors
    /// When the other side has ended.
    pub(super) async fn send_at_once(&self, frame: &[u8]) -> io::Result<()> {
        loop {
            self.0.writable().await?;
            match self.0.try_write(frame) {
                Ok(written) if written == frame.len() => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

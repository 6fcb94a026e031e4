//! Bodies of calls that hold an archive, which is read from the spool while it is sent.

use std::{io, sync::Arc};

use bytes::{Bytes, BytesMut};
use hyper::body::Frame;
use prometheus::IntCounter;
use prost::Message;
use tokio::{sync::mpsc, task::spawn_blocking};

use crate::{
    archive::{intake::Archive, write::repack},
    exchange::{PutPart, PutRequest, TreeName},
    grpc::{
        message::{AppStreamPart, AppStreamRequest, File, Metadata},
        reply::{self, ReplyBody},
    },
};

/// The size of a piece, in bytes.
const PIECE: usize = 64 * 1024;
/// How many pieces may wait for the connection.
const WAITING: usize = 8;
/// How well zstd compresses: as fast as it can, since archives are text.
const LEVEL: i32 = 1;

/// The tree `name` of `archive`, for `Put`. Counts what is sent in `sent`.
pub(super) fn tree(archive: Arc<Archive>, name: TreeName, sent: IntCounter) -> ReplyBody {
    let has_git = name.view.is_some_and(|view| view.has_git);
    sending(move |frames| {
        frames.send(&PutRequest { part: Some(PutPart::Tree(name)) })?;
        let piece = |chunk| PutRequest { part: Some(PutPart::Piece(chunk)) };
        let pieces = Pieces { frames, piece, room: BytesMut::with_capacity(PIECE), sent };
        let mut zstd = zstd::Encoder::new(pieces, LEVEL)?;
        repack(&archive, has_git, &mut zstd).map_err(io::Error::other)?;
        zstd.finish()?.finish()
    })
}

/// Argo CD's own messages: `metadata`, then `archive` as it came.
pub(super) fn plain(archive: Arc<Archive>, metadata: Metadata, sent: IntCounter) -> ReplyBody {
    sending(move |frames| {
        frames.send(&AppStreamRequest { part: Some(AppStreamPart::Metadata(metadata)) })?;
        let piece = |chunk| AppStreamRequest { part: Some(AppStreamPart::File(File { chunk })) };
        let mut pieces = Pieces { frames, piece, room: BytesMut::with_capacity(PIECE), sent };
        io::copy(&mut archive.compressed(), &mut pieces)?;
        pieces.finish()
    })
}

/// The body that `send` writes, on a thread that may block. A failure ends it without its end: the replica then refuses the call.
fn sending(send: impl FnOnce(Frames) -> io::Result<()> + Send + 'static) -> ReplyBody {
    let (frames, body) = mpsc::channel(WAITING);
    spawn_blocking(move || {
        if let Err(error) = send(Frames(frames))
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            tracing::error!(%error, "an archive was not sent to its end");
        }
    });
    reply::streamed(body)
}

/// Where frames go.
struct Frames(mpsc::Sender<Frame<Bytes>>);

impl Frames {
    fn send(&self, message: &impl Message) -> io::Result<()> {
        let sent = self.0.blocking_send(Frame::data(reply::frame(message)));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Cuts what is written into messages.
struct Pieces<F> {
    frames: Frames,
    piece: F,
    room: BytesMut,
    sent: IntCounter,
}

impl<M: Message, F: Fn(Bytes) -> M> Pieces<F> {
    fn pass_on(&mut self) -> io::Result<()> {
        let piece = self.room.split().freeze();
        self.sent.inc_by(piece.len() as u64);
        self.frames.send(&(self.piece)(piece))
    }

    fn finish(mut self) -> io::Result<()> {
        if self.room.is_empty() { Ok(()) } else { self.pass_on() }
    }
}

impl<M: Message, F: Fn(Bytes) -> M> io::Write for Pieces<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE - self.room.len());
        self.room.extend_from_slice(&bytes[..taken]);
        if self.room.len() == PIECE {
            self.pass_on()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

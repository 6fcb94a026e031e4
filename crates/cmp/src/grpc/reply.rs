//! Answers of calls, as HTTP/2 carries them.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::{Body, Frame};
use prost::Message;
use tokio::sync::mpsc;

use super::status::Status;

/// The body of an answer: one message and the trailers, or nothing.
pub(crate) type ReplyBody = UnsyncBoxBody<Bytes, Infallible>;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// The type of a body.
pub(crate) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// The size of a message's head: whether it is compressed, and its length.
pub(crate) const HEAD: usize = 5;

/// Frames of an answer that is made while it is sent.
struct Frames(mpsc::Receiver<Frame<Bytes>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
    }
}

/// The answer `message`.
pub(crate) fn answer(message: &impl Message) -> Response<ReplyBody> {
    let trailers = async { Some(Ok(trailers(None))) };
    reply(Full::new(frame(message)).with_trailers(trailers).boxed_unsync())
}

/// A body of frames that are made while it is sent.
pub(crate) fn streamed(frames: mpsc::Receiver<Frame<Bytes>>) -> ReplyBody {
    Frames(frames).boxed_unsync()
}

/// A body of one message.
pub(crate) fn whole(message: &impl Message) -> ReplyBody {
    Full::new(frame(message)).boxed_unsync()
}

/// The answer whose message another server has encoded.
pub(crate) fn answer_encoded(message: &Bytes) -> Response<ReplyBody> {
    let mut head = BytesMut::with_capacity(HEAD);
    head.put_u8(0);
    head.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    let (frames, body) = mpsc::channel(3);
    for frame in [Frame::data(head.freeze()), Frame::data(message.clone()), Frame::trailers(trailers(None))] {
        // There is room for three.
        let _ = frames.try_send(frame);
    }
    stream(body)
}

/// An answer of the messages and trailers that come from `frames`.
pub(crate) fn stream(frames: mpsc::Receiver<Frame<Bytes>>) -> Response<ReplyBody> {
    reply(Frames(frames).boxed_unsync())
}

/// A message with its head.
pub(crate) fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(HEAD + length);
    frame.put_u8(0);
    // Above 4 GiB the client sees a frame that does not fit; `maxOutput` is far below.
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // A `BytesMut` grows, so there is always room.
    let _ = message.encode(&mut frame);
    frame.freeze()
}

/// The end of a call that failed with `status`, or was good.
pub(crate) fn trailers(status: Option<&Status>) -> HeaderMap {
    let code = status.map_or(0, |status| status.code as u16);
    let mut fields = HeaderMap::from_iter([(STATUS, HeaderValue::from(code))]);
    if let Some(Ok(message)) = status.map(|status| HeaderValue::from_str(&status.encoded())) {
        fields.insert(MESSAGE, message);
    }
    fields
}

/// The answer of a call that failed.
pub(crate) fn failure(status: &Status) -> Response<ReplyBody> {
    let mut reply = reply(Full::default().boxed_unsync());
    reply.headers_mut().extend(trailers(Some(status)));
    reply
}

fn reply(body: ReplyBody) -> Response<ReplyBody> {
    let mut reply = Response::new(body);
    reply.headers_mut().insert(CONTENT_TYPE, GRPC);
    reply
}

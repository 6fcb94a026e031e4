//! Answers of calls, as HTTP/2 carries them.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use prost::Message;
use std::convert::Infallible;

use super::status::Status;

/// The body of an answer: one message and the trailers, or nothing.
pub(crate) type ReplyBody = UnsyncBoxBody<Bytes, Infallible>;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// The size of a message's head: whether it is compressed, and its length.
const HEAD: usize = 5;

/// The answer `message`.
pub(crate) fn answer(message: &impl Message) -> Response<ReplyBody> {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(HEAD + length);
    frame.put_u8(0);
    // Above 4 GiB the client sees a frame that does not fit; `maxOutput` is far below.
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // A `BytesMut` grows, so there is always room.
    let _ = message.encode(&mut frame);
    let trailers = async { Some(Ok(HeaderMap::from_iter([(STATUS, HeaderValue::from_static("0"))]))) };
    reply(Full::new(frame.freeze()).with_trailers(trailers).boxed_unsync())
}

/// The answer of a call that failed.
pub(crate) fn failure(status: &Status) -> Response<ReplyBody> {
    let mut reply = reply(Full::default().boxed_unsync());
    let fields = reply.headers_mut();
    fields.insert(STATUS, HeaderValue::from(status.code as u16));
    if let Ok(message) = HeaderValue::from_str(&status.encoded()) {
        fields.insert(MESSAGE, message);
    }
    reply
}

fn reply(body: ReplyBody) -> Response<ReplyBody> {
    let mut reply = Response::new(body);
    reply.headers_mut().insert(CONTENT_TYPE, GRPC);
    reply
}

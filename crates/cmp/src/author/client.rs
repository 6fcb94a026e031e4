//! Asks a plugin as Argo CD does, over a connection in memory or to another server.

use std::{io, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{
    io::{AsyncRead, AsyncWrite, duplex},
    net::{TcpStream, UnixStream},
    sync::watch,
    time::{Duration, timeout},
};

use crate::{
    grpc::{
        message::{AppStreamPart, AppStreamRequest, File, Metadata},
        status::{Code, Status},
    },
    served::Served,
    service::Service,
    transport::{Peer, serve},
};

/// How much the connection holds, in bytes.
const ROOM: usize = 64 * 1024;
/// The size of a piece of the archive, in bytes.
const PIECE: usize = 64 * 1024;

/// How long another server may take for a folder.
const PATIENCE: Duration = Duration::from_mins(2);
/// The size of a message's head, in bytes.
const HEAD: usize = 5;

/// Asks `method` of `plugin` with this archive.
///
/// # Errors
/// Those of the plugin.
pub(super) async fn ask<M: Message + Default>(
    plugin: &Arc<Served>,
    method: &str,
    metadata: Metadata,
    archive: &[u8],
) -> Result<M, Status> {
    let (ours, theirs) = duplex(ROOM);
    let service = Service::new(Arc::clone(plugin), watch::Sender::new(0));
    let serving =
        tokio::spawn(async move { serve(theirs, Peer::Local, |request| service.clone().answer(request)).await });
    let answered = exchange(TokioIo::new(ours), method, body(metadata, archive)).await;
    serving.abort();
    let mut message = answered?;
    M::decode(&mut message).map_err(|error| Status::unknown(error.to_string()))
}

/// Asks `method` of the server at `target`: a path of a unix socket, or an address without TLS, such as `127.0.0.1:8080`.
///
/// # Errors
/// When nothing listens there, or it has no answer in two minutes.
pub(super) async fn ask_at<M: Message + Default>(
    target: &str,
    method: &str,
    metadata: Metadata,
    archive: &[u8],
) -> io::Result<Result<M, Status>> {
    let body = body(metadata, archive);
    let asking = async {
        Ok::<_, io::Error>(if target.contains('/') {
            exchange(TokioIo::new(UnixStream::connect(target).await?), method, body).await
        } else {
            exchange(TokioIo::new(TcpStream::connect(target).await?), method, body).await
        })
    };
    let answered = timeout(PATIENCE, asking).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok(answered.and_then(|mut message| M::decode(&mut message).map_err(|error| Status::unknown(error.to_string()))))
}

async fn exchange<S>(stream: TokioIo<S>, method: &str, body: Bytes) -> Result<Bytes, Status>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: &dyn std::fmt::Display| Status::unknown(format!("the connection failed: {error}"));
    let connecting = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await;
    let (mut sender, connection) = connecting.map_err(|error| failed(&error))?;
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("http://plugin/plugin.ConfigManagementPluginService/{method}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers").body(Full::new(body));
    let response =
        sender.send_request(request.map_err(|error| failed(&error))?).await.map_err(|error| failed(&error))?;
    let headers = response.headers().clone();
    let collected = response.into_body().collect().await.map_err(|error| failed(&error))?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    connection.abort();
    let of = |name: &str| trailers.get(name).or_else(|| headers.get(name)).and_then(|value| value.to_str().ok());
    if of("grpc-status") == Some("0") {
        let bytes = collected.to_bytes();
        return Ok(bytes.slice(bytes.len().min(HEAD)..));
    }
    let message = of("grpc-message").unwrap_or("no status");
    Err(Status { code: Code::Unknown, message: percent_decoded(message) })
}

/// The messages of a call, one after the other.
fn body(metadata: Metadata, archive: &[u8]) -> Bytes {
    let mut body = BytesMut::new();
    let mut put = |part| {
        let message = AppStreamRequest { part: Some(part) };
        body.put_u8(0);
        body.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
        // A `BytesMut` grows, so there is always room.
        let _ = message.encode(&mut body);
    };
    put(AppStreamPart::Metadata(metadata));
    for piece in archive.chunks(PIECE) {
        put(AppStreamPart::File(File { chunk: Bytes::copy_from_slice(piece) }));
    }
    body.freeze()
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut left = text.as_bytes();
    while let Some((first, rest)) = left.split_first() {
        let digits = rest.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(byte);
            left = &rest[2..];
        } else {
            bytes.push(*first);
            left = rest;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

//! Asks a plugin as Argo CD does, over a connection in memory or to another server.

use std::{io, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use prost::Message;
use tokio::{
    io::duplex,
    net::{TcpStream, UnixStream},
    sync::watch,
    time::{Duration, timeout},
};

use crate::{
    grpc::{
        client::exchange,
        message::{AppStreamPart, AppStreamRequest, File, Metadata},
        status::Status,
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
    let service = Service::new(Arc::clone(plugin), watch::Sender::new(0), watch::channel(false).1);
    let serving =
        tokio::spawn(async move { serve(theirs, Peer::Local, |request| service.clone().answer(request)).await });
    let answered = exchange(ours, &uri(method), HeaderMap::new(), body(metadata, archive)).await;
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
    let (uri, body) = (uri(method), body(metadata, archive));
    let asking = async {
        Ok::<_, io::Error>(if target.contains('/') {
            exchange(UnixStream::connect(target).await?, &uri, HeaderMap::new(), body).await
        } else {
            exchange(TcpStream::connect(target).await?, &uri, HeaderMap::new(), body).await
        })
    };
    let answered = timeout(PATIENCE, asking).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok(answered.and_then(|mut message| M::decode(&mut message).map_err(|error| Status::unknown(error.to_string()))))
}

/// A plugin's method.
fn uri(method: &str) -> String {
    format!("http://plugin/plugin.ConfigManagementPluginService/{method}")
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

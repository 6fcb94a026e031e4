//! The TLS handshake.

use std::{io, sync::Arc};

use bytes::Bytes;
use rustls::ServerConfig;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{PeerCertificate, budget::Share, received::Received};
use tls::H2;

/// The type of a record in which a handshake begins (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;

/// A connection by TLS.
pub(crate) struct Secured {
    /// The decrypted bytes.
    pub(crate) stream: TlsStream<Received>,
    /// The client's certificate, if it sent one.
    pub(crate) certificate: Option<Arc<PeerCertificate>>,
    /// Whether HTTP/2 was agreed on.
    pub(crate) is_h2: bool,
}

/// Runs the TLS handshake over `stream`, whose bytes count against `share`. A client that speaks cleartext gets the answer `cleartext`.
///
/// # Errors
/// When the handshake fails.
pub(crate) async fn shake(
    mut stream: TcpStream,
    share: &Arc<Share>,
    server: Arc<ServerConfig>,
    cleartext: &Bytes,
) -> io::Result<Secured> {
    let mut first = [HANDSHAKE];
    stream.peek(&mut first).await?;
    if first != [HANDSHAKE] {
        stream.write_all(cleartext).await?;
        stream.shutdown().await?;
        // Closing a socket with unread bytes sends a reset, and the client would lose the answer.
        while stream.read(&mut [0; 4096]).await? > 0 {}
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the client did not speak TLS"));
    }
    let stream = Received::new(stream, Arc::clone(share));
    let stream = TlsAcceptor::from(server).accept(stream).await?;
    let (_, session) = stream.get_ref();
    let is_h2 = session.alpn_protocol() == Some(H2);
    let certificate = match session.peer_certificates().and_then(<[_]>::first) {
        None => None,
        Some(certificate) => {
            let read = PeerCertificate::read(certificate);
            Some(Arc::new(read.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?))
        }
    };
    Ok(Secured { stream, certificate, is_h2 })
}

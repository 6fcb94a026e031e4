//! Unix sockets: how they are made, and how they end without a client that waits for ever.
//!
//! Argo CD connects once, without a deadline, and holds the repository's lock meanwhile. A connection that is accepted and never
//! answered would stop that repository until Argo CD is started again. So a connection is served from its first byte on, and a
//! listener that ends serves a second more: a client may have found the socket just before it was removed.

use std::{
    fs::Permissions,
    io,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use http::{Request, Response};
use hyper::body::Incoming;
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with},
};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
};

use super::{
    authority::AuthorityFilter,
    connection::{Peer, pause_after, serve},
};
use crate::grpc::reply::ReplyBody;

/// Other users may connect: Argo CD's repo-server may run as another user than the plugin. Who may enter the folder decides.
const MODE: u32 = 0o666;

/// A socket in a folder.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    listener: UnixListener,
    /// The file that it made: a later process may have put its own in the place.
    file: Option<SocketFile>,
}

/// Tells a socket's file from one that was made later: file systems give a number again as soon as its file is removed.
type SocketFile = (u64, u64, Option<SystemTime>);

impl Socket {
    /// Makes a socket at `path`, in the place of one that is there. It gets that name when it is complete: from then on, another process may
    /// put its own in the place.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn bind(path: PathBuf) -> io::Result<Self> {
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        // Not longer than the name: the system limits that to 107 bytes.
        let made = path.with_extension("new");
        match std::fs::remove_file(&made) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&made).map_err(failed)?;
        let complete = || {
            std::fs::set_permissions(&made, Permissions::from_mode(MODE))?;
            let file = socket_file(&made);
            std::fs::rename(&made, &path)?;
            Ok(file)
        };
        let file = complete().map_err(|error| {
            let _ = std::fs::remove_file(&made);
            failed(error)
        })?;
        Ok(Self { path, listener, file })
    }

    /// As [`Socket::bind`], unless another process serves `path`.
    ///
    /// # Errors
    /// When it cannot be made, or something else is there.
    pub(crate) fn bind_unless_served(path: PathBuf) -> io::Result<Self> {
        let taken = |why: &str| io::Error::new(io::ErrorKind::AddrInUse, format!("{}: {why}", path.display()));
        match connect(&path) {
            // The latter: it has no room for more clients now.
            Ok(()) | Err(Errno::AGAIN) => return Err(taken("another process serves this socket")),
            // Nobody listens, or nothing is there.
            Err(Errno::CONNREFUSED | Errno::NOENT) => {}
            Err(error) => {
                let error = io::Error::from(error);
                return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())));
            }
        }
        if path.symlink_metadata().is_ok_and(|data| !data.file_type().is_socket()) {
            return Err(taken("something that is not a socket is there"));
        }
        Self::bind(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, if it is still this socket's. Connections that are open or come meanwhile are served on.
    pub(crate) fn unlink(&self) {
        if self.file.is_some() && socket_file(&self.path) == self.file {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Serves all connections, which are counted in `connections`. Ends only when it is dropped; connections go on then.
    pub(crate) async fn serve<F>(
        &self,
        connections: &watch::Sender<usize>,
        answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    ) where
        F: Future<Output = Response<ReplyBody>> + Send + 'static,
    {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    connections.send_modify(|count| *count += 1);
                    let (connections, answer) = (connections.clone(), answer.clone());
                    tokio::spawn(async move {
                        one(stream, answer).await;
                        connections.send_modify(|count| *count -= 1);
                    });
                }
                Err(error) => pause_after(&error).await,
            }
        }
    }
}

async fn one<F>(stream: UnixStream, answer: impl Fn(Request<Incoming>) -> F)
where
    F: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    if let Err(error) = serve(AuthorityFilter::new(stream), Peer::Local, answer).await {
        tracing::debug!(%error, "a connection has ended with an error");
    }
}

/// Connects without waiting: a process that is stopped would accept nothing.
fn connect(path: &Path) -> rustix::io::Result<()> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
}

fn socket_file(path: &Path) -> Option<SocketFile> {
    let data = path.symlink_metadata().ok()?;
    data.file_type().is_socket().then(|| (data.dev(), data.ino(), data.created().ok()))
}

/// The address of `listener`, whose port may not be the configured one.
pub(crate) fn shown_address(listener: &tokio::net::TcpListener, configured: std::net::SocketAddr) -> String {
    listener.local_addr().unwrap_or(configured).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A later process may take the place as soon as the name is there.
    #[tokio::test]
    async fn a_socket_that_is_replaced_at_once_leaves_the_other_alone() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..200 {
            let path = folder.path().join(format!("{number}.sock"));
            let place = path.clone();
            let other = std::thread::spawn(move || {
                while !place.exists() {
                    std::hint::spin_loop();
                }
                std::fs::remove_file(&place).unwrap();
                drop(std::os::unix::net::UnixListener::bind(&place).unwrap());
            });
            let socket = Socket::bind(path.clone()).unwrap();
            other.join().unwrap();
            socket.unlink();
            assert!(path.exists(), "{number}");
        }
    }
}

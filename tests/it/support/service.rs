//! A Kubernetes Service, from a caller's side: one address, and each new connection goes to the server behind it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// A running service. It ends with all its connections when this is dropped.
pub(crate) struct Service {
    /// Its address.
    pub address: SocketAddr,
    behind: Arc<Mutex<SocketAddr>>,
    task: JoinHandle<()>,
}

impl Service {
    /// A service before `behind`.
    pub(crate) async fn before(behind: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let behind = Arc::new(Mutex::new(behind));
        let current = Arc::clone(&behind);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut caller, _) = listener.accept().await.unwrap();
                let behind = *current.lock().unwrap();
                connections.spawn(async move {
                    // If nothing is behind it, the connection ends, as the caller will notice.
                    let mut server = TcpStream::connect(behind).await?;
                    server.set_nodelay(true)?;
                    caller.set_nodelay(true)?;
                    copy_bidirectional(&mut caller, &mut server).await
                });
            }
        });
        Self { address, behind, task }
    }

    /// New connections go to `behind` from now on. Open connections stay where they are.
    pub(crate) fn turn_to(&self, behind: SocketAddr) {
        *self.behind.lock().unwrap() = behind;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

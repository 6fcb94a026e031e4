//! A proxy before a real server. It notes each request, can wait, and passes everything on unchanged.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use super::upstream::{Request, read_request};

/// A running proxy. It ends when this is dropped.
pub(crate) struct Proxy {
    /// Its address.
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    pause: Arc<Mutex<Duration>>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy before `server`, a host with a port.
    pub(crate) async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, pause) = (Arc::<Mutex<Vec<Request>>>::default(), Arc::<Mutex<Duration>>::default());
        let (server, record, wait) = (server.to_owned(), Arc::clone(&requests), Arc::clone(&pause));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (server, record, wait) = (server.clone(), Arc::clone(&record), Arc::clone(&wait));
                connections.spawn(async move {
                    let _ = pass_on(stream, &server, &record, &wait).await;
                });
            }
        });
        Self { address, requests, pause, task }
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Waits this long before each request from now on.
    pub(crate) fn slow_down(&self, pause: Duration) {
        *self.pause.lock().unwrap() = pause;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass_on(
    mut stream: TcpStream,
    server: &str,
    record: &Mutex<Vec<Request>>,
    pause: &Mutex<Duration>,
) -> Option<()> {
    let request = read_request(&mut stream).await?;
    let kept = request.headers.iter().filter(|(name, _)| name != "connection");
    let headers: Vec<String> = kept.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let line = format!("{} {} HTTP/1.1\r\nconnection: close\r\n", request.method, request.target);
    let head = format!("{line}{}\r\n", headers.concat());
    let bytes = [head.as_bytes(), &request.body].concat();
    record.lock().unwrap().push(request);
    let pause = *pause.lock().unwrap();
    sleep(pause).await;
    let mut server = TcpStream::connect(server).await.ok()?;
    server.write_all(&bytes).await.ok()?;
    copy_bidirectional(&mut stream, &mut server).await.ok()?;
    Some(())
}

//! Good callers, who are to notice nothing of others.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep},
};

use super::PATH;
use crate::support::{
    TOKEN,
    visitor::Visitor,
    wire::{argo_request, read_reply},
};

/// The longest that one good call in a hundred may take meanwhile. The only speed that a test asserts: it is what the limits are for.
/// Where the same call of a gateway that nobody holds up takes a third of that, it is the machine that is busy.
pub const P99: Duration = Duration::from_millis(50);

/// A client as Argo CD's, which keeps its connection, on a thread of its own: what it measures is the gateway's time.
pub fn good(address: SocketAddr, tls: Option<Visitor>, is_over: &Arc<AtomicBool>) -> thread::JoinHandle<Vec<Duration>> {
    let is_over = Arc::clone(is_over);
    let calls = async move {
        match tls {
            None => call(&mut TcpStream::connect(address).await.unwrap(), &is_over).await,
            Some(visitor) => call(&mut visitor.connect(address).await.unwrap(), &is_over).await,
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    thread::spawn(move || runtime.block_on(calls))
}

/// How long each call took.
async fn call(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), is_over: &AtomicBool) -> Vec<Duration> {
    let request = argo_request(PATH, TOKEN, b"{}");
    let mut took = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        let asked = Instant::now();
        stream.write_all(&request).await.unwrap();
        assert_eq!(read_reply(stream).await.sets(), r#"[{"a":"b"}]"#);
        took.push(asked.elapsed());
        sleep(Duration::from_millis(5)).await;
    }
    took
}

/// What ninety-nine of a hundred calls did not exceed.
pub fn p99(how: &str, calls: thread::JoinHandle<Vec<Duration>>) -> Duration {
    let mut took = calls.join().unwrap();
    took.sort_unstable();
    let (p50, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!("{} good calls, {how}: {p50:?} (p50), {p99:?} (p99)", took.len());
    assert!(took.len() > 100, "{how}: only {} calls", took.len());
    p99
}

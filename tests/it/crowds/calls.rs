//! Good callers, who must not notice other connections.

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

/// A good call that waits for a slow connection to end takes seconds. So this limit for the 99th percentile tells waiting from
/// a busy machine. It is not a statement about speed: compare the printed times.
const WAITING: Duration = Duration::from_secs(1);

/// A client like Argo CD's, which keeps its connection. It has its own thread, so that it measures the gateway only.
pub(super) fn good(
    address: SocketAddr,
    tls: Option<Visitor>,
    is_over: &Arc<AtomicBool>,
) -> thread::JoinHandle<Vec<Duration>> {
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

/// The duration of each call.
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

/// Fails if `calls` waited for the other connections. `idle` calls to another gateway show how busy the machine is.
pub(super) fn assert_undisturbed(how: &str, calls: thread::JoinHandle<Vec<Duration>>, idle: Duration) {
    let (calls, limit) = (p99(how, calls), WAITING.max(10 * idle));
    assert!(calls < limit, "{how}: {calls:?} (p99), while calls to an idle gateway take {idle:?}");
}

/// The 99th percentile of the durations.
pub(super) fn p99(how: &str, calls: thread::JoinHandle<Vec<Duration>>) -> Duration {
    let mut took = calls.join().unwrap();
    took.sort_unstable();
    let (p50, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!("{} good calls, {how}: {p50:?} (p50), {p99:?} (p99)", took.len());
    assert!(took.len() > 100, "{how}: only {} calls", took.len());
    p99
}

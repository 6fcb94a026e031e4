//! Destinations that do not exist or do not answer: each wait has its own limit within the caller's deadline. Time is paused,
//! and jumps to the next limit as soon as nothing else happens.

use std::net::{SocketAddr, TcpStream};

use tokio::net::{TcpListener, TcpSocket};

use super::*;

/// An address that accepts no connection: the returned connections fill its backlog.
fn full() -> (TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let next = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let waiting = std::iter::from_fn(next).take(100).collect::<Vec<_>>();
    assert!(waiting.len() < 100, "its queue is never full");
    (listener, waiting)
}

#[tokio::test(start_paused = true)]
async fn a_connection_attempt_ends_after_5_seconds() {
    let (listener, _waiting) = full();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let (client, _) = new_client(ClientOptions::default());
    let began = Instant::now();
    let call = Call::get(url.clone(), 4096, began + Duration::from_mins(1));
    let message = fails(client.fetch(call).await, ErrorKind::Timeout, "timed out");
    assert!(message.contains(url.as_str()), "{message}");
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_answer_must_begin_within_15_seconds_and_end_by_the_deadline() {
    for (steps, expected, seconds) in [
        (vec![Step::Hang], "no answer began within 15 s", 15),
        (
            vec![Step::Send(b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n".to_vec()), Step::Hang],
            "no whole answer in time",
            60,
        ),
    ] {
        let upstream = Upstream::start(move |_| steps.clone()).await;
        let (client, _) = new_client(ClientOptions::default());
        let began = Instant::now();
        fails(client.fetch(get(&upstream, "/", 60.0)).await, ErrorKind::Timeout, expected);
        assert_eq!((began.elapsed().as_secs(), request_count(&upstream)), (seconds, 1), "{expected}");
    }
}

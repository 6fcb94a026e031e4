//! Destinations that do not exist or do not answer: each wait has a limit of its own within the caller's deadline. Time is
//! paused, and jumps to the next limit as soon as nothing else happens.

use std::net::{SocketAddr, TcpStream};

use tokio::net::{TcpListener, TcpSocket};

use super::*;

/// An address that accepts nobody: its queue is full of the returned connections.
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
async fn a_connection_is_waited_for_5_seconds() {
    let (listener, _waiting) = full();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let (line, _) = line(ClientOptions::default());
    let began = Instant::now();
    let call = Call::get(url.clone(), 4096, began + Duration::from_mins(1));
    let message = fails(line.fetch(call).await, ErrorKind::Timeout, "timed out");
    assert!(message.contains(url.as_str()), "{message}");
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_answer_begins_within_15_seconds_and_ends_by_the_deadline() {
    for (steps, says, seconds) in [
        (vec![Step::Hang], "no answer began within 15 s", 15),
        (
            vec![Step::Send(b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n".to_vec()), Step::Hang],
            "no whole answer in time",
            60,
        ),
    ] {
        let upstream = Upstream::start(move |_| steps.clone()).await;
        let (line, _) = line(ClientOptions::default());
        let began = Instant::now();
        fails(line.fetch(get(&upstream, "/", 60.0)).await, ErrorKind::Timeout, says);
        assert_eq!((began.elapsed().as_secs(), asked(&upstream)), (seconds, 1), "{says}");
    }
}

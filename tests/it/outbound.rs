//! Outgoing requests: which are retried, and how destinations are protected.

mod addresses;
mod counted;
mod limits;
mod proxied;
mod silence;
mod tls;
mod trouble;

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use domain::error::{BackendError, ErrorKind};
use http::{HeaderValue, Method, header};
use outbound::{Call, ClientOptions, HttpClient, Outbound, Reply, Tls};
use reqwest::Url;
use tokio::time::Instant;

use crate::support::{
    TestClock,
    upstream::{Request, Step, Upstream, json_response, response},
};

/// An HTTP client with `options`, and its clock.
fn new_client(options: ClientOptions) -> (Arc<HttpClient>, Arc<TestClock>) {
    let clock = TestClock::standing();
    let client = Outbound::new(Arc::clone(&clock) as _).client(options).unwrap();
    (client, clock)
}

/// A `GET` of `path` at `upstream` with a deadline in `seconds`.
fn get(upstream: &Upstream, path: &str, seconds: f64) -> Call {
    let url = Url::parse(&format!("http://{}{path}", upstream.address)).unwrap();
    Call::get(url, 4096, Instant::now() + Duration::from_secs_f64(seconds))
}

/// A `GET` with a credential.
fn get_as(upstream: &Upstream, token: &str) -> Call {
    let mut call = get(upstream, "/", 10.0);
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
    value.set_sensitive(true);
    call.headers.insert(header::AUTHORIZATION, value);
    call
}

/// An upstream that plays these steps one after the other, and repeats the last.
async fn in_turn(plays: Vec<Vec<Step>>) -> Upstream {
    let turns = std::sync::Mutex::new(plays.into_iter().peekable());
    Upstream::start(move |_| {
        let mut turns = turns.lock().unwrap();
        let next = turns.next().unwrap();
        if turns.peek().is_none() {
            *turns = vec![next.clone()].into_iter().peekable();
        }
        next
    })
    .await
}

fn response_with(status: u16, headers: &str) -> Vec<Step> {
    vec![Step::Send(response(status, headers, "why"))]
}

fn ok_response() -> Vec<Step> {
    vec![Step::Send(json_response("[]"))]
}

fn request_count(upstream: &Upstream) -> usize {
    upstream.requests().len()
}

/// Sends a request to `upstream`, and cancels it as soon as it has arrived.
async fn cancel_after_arrival(client: &Arc<HttpClient>, upstream: &Upstream) {
    let before = request_count(upstream);
    let (client, call) = (Arc::clone(client), get(upstream, "/", 30.0));
    let task = tokio::spawn(async move { client.fetch(call).await });
    while request_count(upstream) == before {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
}

/// The message of an error, which must have `kind` and contain `text`.
#[track_caller]
fn fails(result: Result<Reply, BackendError>, kind: ErrorKind, text: &str) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.message.contains(text), "`{error}` does not say `{text}`");
    error.message
}

#[tokio::test]
async fn a_transient_failure_is_retried_twice() {
    for method in [Method::GET, Method::HEAD, Method::POST] {
        for status in [408, 500, 502, 503, 504, 507] {
            let upstream =
                Upstream::start(move |request: &Request| request.answer(status, "Retry-After: 0", "why")).await;
            let send = async |may_repeat| {
                let (client, _) = new_client(ClientOptions::default());
                client.fetch(Call { method: method.clone(), may_repeat, ..get(&upstream, "/x", 10.0) }).await.unwrap()
            };
            let reply = send(true).await;
            assert_eq!((reply.status.as_u16(), reply.attempts, request_count(&upstream)), (status, 3, 3), "{method}");
            let message = reply.refusal().message;
            assert!(message.starts_with(&format!("it failed with {status}")), "{message}");
            assert_eq!(send(false).await.attempts, 1);
            assert_eq!(request_count(&upstream), 4, "{method} {status}, which may not be repeated");
        }
    }
    let upstream = in_turn(vec![response_with(503, ""), response_with(500, ""), ok_response()]).await;
    let body = Some(bytes::Bytes::from_static(b"question"));
    let call = Call { method: Method::POST, body, ..get(&upstream, "/x", 10.0) };
    let reply = new_client(ClientOptions::default()).0.fetch(call).await.unwrap();
    assert_eq!((reply.status.as_u16(), &*reply.body, reply.attempts), (200, &b"[]"[..], 3));
    assert!(upstream.requests().iter().all(|request| request.method == "POST" && request.body == b"question"));
}

#[tokio::test]
async fn other_answers_are_not_retried() {
    for status in [200, 202, 204, 206, 302, 304, 400, 401, 403, 404, 409, 410, 418, 425, 429] {
        let upstream = Upstream::start(move |_| response_with(status, "")).await;
        let reply = new_client(ClientOptions::default()).0.fetch(get(&upstream, "/", 10.0)).await.unwrap();
        assert_eq!((reply.status.as_u16(), reply.attempts, request_count(&upstream)), (status, 1, 1));
    }
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_vec();
    let failed_head = b"HTTP/1.1 503 X\r\nContent-Length: 9\r\n\r\n".to_vec();
    let (unavailable, timeout) = (ErrorKind::Unavailable, ErrorKind::Timeout);
    for (name, steps, kind) in [
        ("a reset", vec![Step::Reset], unavailable),
        ("no answer", vec![], unavailable),
        ("no HTTP", vec![Step::Send(b"SSH-2.0\r\n".to_vec())], unavailable),
        ("a reset in the body", vec![Step::Send(head.clone()), Step::Reset], unavailable),
        ("half a 503", vec![Step::Send(failed_head), Step::Reset], unavailable),
        ("silence", vec![Step::Hang], timeout),
        ("silence in the body", vec![Step::Send(head), Step::Hang], timeout),
        ("too much", vec![Step::Send(response(500, "", "x".repeat(5000)))], ErrorKind::InvalidOutput),
    ] {
        let upstream = Upstream::start(move |_| steps.clone()).await;
        let seconds = if kind == timeout { 0.5 } else { 20.0 };
        let message =
            fails(new_client(ClientOptions::default()).0.fetch(get(&upstream, "/x?secret", seconds)).await, kind, "");
        assert!(message.starts_with(&format!("GET http://{}/x: ", upstream.address)), "{message}");
        assert_eq!(request_count(&upstream), 1, "{name}");
    }
}

#[tokio::test]
async fn a_refused_connection_reports_the_number_of_attempts() {
    let mut upstream = Upstream::start_apart(|_| ok_response()).await;
    upstream.refuse().await;
    let (client, _) = new_client(ClientOptions::default());
    fails(client.fetch(get(&upstream, "/", 10.0)).await, ErrorKind::Unavailable, "refused (os error 111)");
    let once = Call { may_repeat: false, ..get(&upstream, "/", 10.0) };
    let message = fails(client.fetch(once).await, ErrorKind::Unavailable, "cannot connect: ");
    assert!(!message.contains("tried"), "{message}");
    upstream.listen().await;
    assert_eq!(client.fetch(get(&upstream, "/", 10.0)).await.unwrap().attempts, 1);
}

#[tokio::test]
async fn nothing_is_retried_without_enough_time() {
    // The answer took longer than the remaining time.
    let slow = || vec![Step::Drip(response(503, "", "why"), Duration::from_millis(12))];
    let upstream = Upstream::start(move |_| slow()).await;
    let reply = new_client(ClientOptions::default()).0.fetch(get(&upstream, "/", 1.4)).await.unwrap();
    assert_eq!((reply.status.as_u16(), request_count(&upstream)), (503, 1));
}

#[tokio::test]
async fn retry_after_is_obeyed_if_the_deadline_allows() {
    for is_date in [false, true] {
        let (client, clock) = new_client(ClientOptions::default());
        // A date has whole seconds, so it is up to a second earlier.
        let text = if is_date { http_date(&clock, 2) } else { "1".to_owned() };
        let headers: &str = format!("Retry-After: {text}").leak();
        let upstream = in_turn(vec![response_with(503, headers), ok_response()]).await;
        let began = Instant::now();
        assert_eq!(client.fetch(get(&upstream, "/", 20.0)).await.unwrap().attempts, 2);
        assert!((1.0..3.0).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
    }
}

/// The time in `seconds` by `clock`, in the format of an HTTP header.
fn http_date(clock: &TestClock, seconds: u64) -> String {
    use domain::clock::Clock as _;
    let at = std::time::UNIX_EPOCH + Duration::from_millis(clock.now().0) + Duration::from_secs(seconds);
    httpdate::fmt_http_date(at)
}

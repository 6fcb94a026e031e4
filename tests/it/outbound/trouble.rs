//! The breaker: a failing destination is not contacted for a while.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;

use super::*;

const UNAVAILABLE: ErrorKind = ErrorKind::Unavailable;

/// A call without retries.
fn call_without_retry(upstream: &Upstream) -> Call {
    Call { may_repeat: false, ..get(upstream, "/", 10.0) }
}

/// An upstream that fails until the flag is set.
async fn failing_upstream() -> (Upstream, Arc<AtomicBool>) {
    let works_again = Arc::new(AtomicBool::new(false));
    let works = Arc::clone(&works_again);
    let slow = || vec![Step::Drip(json_response("[]"), Duration::from_millis(2))];
    let play = move |_: &Request| if works.load(Ordering::SeqCst) { slow() } else { response_with(500, "") };
    (Upstream::start(play).await, works_again)
}

#[tokio::test]
async fn five_failures_in_a_row_open_the_breaker_and_one_call_probes() {
    let (client, clock) = new_client(ClientOptions { concurrency: 50, ..ClientOptions::default() });
    let (upstream, works_again) = failing_upstream().await;
    for _ in 0..5 {
        assert_eq!(client.fetch(call_without_retry(&upstream)).await.unwrap().status.as_u16(), 500);
    }
    let assert_open_for = async |seconds: u64| {
        // The pause ends exactly after `seconds`: 1 ms earlier no request is sent.
        clock.advance(Duration::from_millis(seconds * 1000 - 1));
        let message =
            fails(client.fetch(get(&upstream, "/", 10.0)).await, UNAVAILABLE, "no request sent: it failed since 2");
        clock.put_back(Duration::from_millis(seconds * 1000 - 1));
        let ends = "(last: it answered 500 Internal Server Error)";
        assert!(message.ends_with(ends) && !message.contains("why"), "{message}");
    };
    assert_open_for(1).await;
    assert_eq!(request_count(&upstream), 5);
    // The breaker's wait doubles each time, and each probe sends one request.
    for (probes, seconds) in [(6, 2), (7, 4), (8, 8), (9, 16), (10, 30), (11, 30)] {
        clock.advance(Duration::from_secs(seconds.max(2) / if seconds == 30 { 1 } else { 2 }));
        assert_eq!(client.fetch(get(&upstream, "/", 10.0)).await.unwrap().attempts, 1);
        assert_eq!(request_count(&upstream), probes);
        assert_open_for(seconds).await;
    }
    // A cancelled probe proves nothing, and another call may probe.
    works_again.store(true, Ordering::SeqCst);
    clock.advance(Duration::from_secs(30));
    cancel_after_arrival(&client, &upstream).await;
    let replies = join_all((0..30).map(|_| client.fetch(get(&upstream, "/", 10.0)))).await;
    let (ok_response, others): (Vec<_>, Vec<_>) = replies.into_iter().partition(Result::is_ok);
    assert_eq!((ok_response.len(), others.len(), request_count(&upstream)), (1, 29, 13));
    for other in others {
        fails(other, UNAVAILABLE, "no request sent: it failed since 2");
    }
    for reply in join_all((0..10).map(|_| client.fetch(get(&upstream, "/", 10.0)))).await {
        assert_eq!(reply.unwrap().status.as_u16(), 200);
    }
    assert_eq!(request_count(&upstream), 23);
}

#[tokio::test]
async fn timeouts_and_refused_connections_open_the_breaker_and_bad_answers_do_not() {
    let hanging = Upstream::start(|_| vec![Step::Hang]).await;
    let (client, _) = new_client(ClientOptions::default());
    for _ in 0..5 {
        fails(client.fetch(get(&hanging, "/", 0.3)).await, ErrorKind::Timeout, "no whole answer in time");
    }
    fails(client.fetch(get(&hanging, "/", 0.05)).await, UNAVAILABLE, "(last: no whole answer in time)");
    assert_eq!(request_count(&hanging), 5);

    let mut refusing = Upstream::start_apart(|_| ok_response()).await;
    refusing.refuse().await;
    for _ in 0..5 {
        fails(client.fetch(call_without_retry(&refusing)).await, UNAVAILABLE, "cannot connect");
    }
    fails(client.fetch(call_without_retry(&refusing)).await, UNAVAILABLE, "(last: cannot connect: ");

    for steps in [response_with(404, ""), response_with(401, ""), response_with(200, ""), vec![Step::Reset], vec![]] {
        let upstream = Upstream::start(move |_| steps.clone()).await;
        for _ in 0..8 {
            _ = client.fetch(call_without_retry(&upstream)).await;
        }
        assert_eq!(request_count(&upstream), 8);
    }
}

#[tokio::test]
async fn a_long_retry_after_opens_the_breaker() {
    for is_date in [false, true] {
        let (client, clock) = new_client(ClientOptions::default());
        let text = if is_date { http_date(&clock, 120) } else { "120".to_owned() };
        let headers: &str = format!("Retry-After: {text}").leak();
        let upstream = in_turn(vec![response_with(503, headers), ok_response()]).await;
        let reply = client.fetch(get(&upstream, "/", 10.0)).await.unwrap();
        assert_eq!((reply.status.as_u16(), reply.attempts), (503, 1));
        fails(
            client.fetch(get(&upstream, "/", 10.0)).await,
            UNAVAILABLE,
            "(last: it answered 503 Service Unavailable)",
        );
        clock.advance(Duration::from_secs(118));
        fails(client.fetch(get_as(&upstream, "other")).await, UNAVAILABLE, "no request sent: it failed since ");
        assert_eq!(request_count(&upstream), 1);
        clock.advance(Duration::from_secs(2));
        assert_eq!(client.fetch(get(&upstream, "/", 10.0)).await.unwrap().status.as_u16(), 200);
    }
}

#[tokio::test]
async fn a_clock_set_back_closes_the_breaker() {
    let (client, clock) = new_client(ClientOptions::default());
    let upstream = in_turn(vec![response_with(503, "Retry-After: 120"), ok_response()]).await;
    client.fetch(get(&upstream, "/", 10.0)).await.unwrap();
    clock.put_back(Duration::from_secs(1));
    assert_eq!(client.fetch(get(&upstream, "/", 10.0)).await.unwrap().status.as_u16(), 200);
}

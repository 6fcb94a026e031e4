//! A failing destination rests for a while.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;

use super::*;

const UNAVAILABLE: ErrorKind = ErrorKind::Unavailable;

/// A call that is never sent again.
fn once(upstream: &Upstream) -> Call {
    Call { may_repeat: false, ..get(upstream, "/", 10.0) }
}

/// An upstream that fails until it is told to work.
async fn sick() -> (Upstream, Arc<AtomicBool>) {
    let is_well = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_well);
    let slow = || vec![Step::Drip(json_response("[]"), Duration::from_millis(2))];
    let play = move |_: &Request| if told.load(Ordering::SeqCst) { slow() } else { says(500, "") };
    (Upstream::start(play).await, is_well)
}

#[tokio::test]
async fn five_failures_in_a_row_rest_it_and_one_call_finds_out() {
    let (line, clock) = line(ClientOptions { concurrency: 50, ..ClientOptions::default() });
    let (upstream, is_well) = sick().await;
    for _ in 0..5 {
        assert_eq!(line.fetch(once(&upstream)).await.unwrap().status.as_u16(), 500);
    }
    let resting = async |seconds: u64| {
        // The breaker opens by the second, so nothing is asked until then.
        clock.advance(Duration::from_millis(seconds * 1000 - 1));
        let message = fails(line.fetch(get(&upstream, "/", 10.0)).await, UNAVAILABLE, "not asked: it failed since 2");
        clock.put_back(Duration::from_millis(seconds * 1000 - 1));
        let ends = "(last: it answered 500 Internal Server Error)";
        assert!(message.ends_with(ends) && !message.contains("why"), "{message}");
    };
    resting(1).await;
    assert_eq!(asked(&upstream), 5);
    // The rest doubles each time, and the probe asks once.
    for (probes, seconds) in [(6, 2), (7, 4), (8, 8), (9, 16), (10, 30), (11, 30)] {
        clock.advance(Duration::from_secs(seconds.max(2) / if seconds == 30 { 1 } else { 2 }));
        assert_eq!(line.fetch(get(&upstream, "/", 10.0)).await.unwrap().attempts, 1);
        assert_eq!(asked(&upstream), probes);
        resting(seconds).await;
    }
    // A cancelled probe finds out nothing, and another call may probe.
    is_well.store(true, Ordering::SeqCst);
    clock.advance(Duration::from_secs(30));
    leave(&line, &upstream).await;
    let replies = join_all((0..30).map(|_| line.fetch(get(&upstream, "/", 10.0)))).await;
    let (well, others): (Vec<_>, Vec<_>) = replies.into_iter().partition(Result::is_ok);
    assert_eq!((well.len(), others.len(), asked(&upstream)), (1, 29, 13));
    for other in others {
        fails(other, UNAVAILABLE, "not asked: it failed since 2");
    }
    for reply in join_all((0..10).map(|_| line.fetch(get(&upstream, "/", 10.0)))).await {
        assert_eq!(reply.unwrap().status.as_u16(), 200);
    }
    assert_eq!(asked(&upstream), 23);
}

#[tokio::test]
async fn timeouts_and_refusals_count_and_bad_answers_do_not() {
    let hanging = Upstream::start(|_| vec![Step::Hang]).await;
    let (line, _) = line(ClientOptions::default());
    for _ in 0..5 {
        fails(line.fetch(get(&hanging, "/", 0.3)).await, ErrorKind::Timeout, "no whole answer in time");
    }
    fails(line.fetch(get(&hanging, "/", 0.05)).await, UNAVAILABLE, "(last: no whole answer in time)");
    assert_eq!(asked(&hanging), 5);

    let mut refusing = Upstream::start_apart(|_| well()).await;
    refusing.refuse().await;
    for _ in 0..5 {
        fails(line.fetch(once(&refusing)).await, UNAVAILABLE, "cannot connect");
    }
    fails(line.fetch(once(&refusing)).await, UNAVAILABLE, "(last: cannot connect: ");

    for steps in [says(404, ""), says(401, ""), says(200, ""), vec![Step::Reset], vec![]] {
        let upstream = Upstream::start(move |_| steps.clone()).await;
        for _ in 0..8 {
            _ = line.fetch(once(&upstream)).await;
        }
        assert_eq!(asked(&upstream), 8);
    }
}

#[tokio::test]
async fn retry_after_that_does_not_fit_rests_the_destination() {
    for is_date in [false, true] {
        let (line, clock) = line(ClientOptions::default());
        let text = if is_date { http_date(&clock, 120) } else { "120".to_owned() };
        let headers: &str = format!("Retry-After: {text}").leak();
        let upstream = in_turn(vec![says(503, headers), well()]).await;
        let reply = line.fetch(get(&upstream, "/", 10.0)).await.unwrap();
        assert_eq!((reply.status.as_u16(), reply.attempts), (503, 1));
        fails(line.fetch(get(&upstream, "/", 10.0)).await, UNAVAILABLE, "(last: it answered 503 Service Unavailable)");
        clock.advance(Duration::from_secs(118));
        fails(line.fetch(get_as(&upstream, "other")).await, UNAVAILABLE, "not asked: it failed since ");
        assert_eq!(asked(&upstream), 1);
        clock.advance(Duration::from_secs(2));
        assert_eq!(line.fetch(get(&upstream, "/", 10.0)).await.unwrap().status.as_u16(), 200);
    }
}

#[tokio::test]
async fn a_clock_that_is_put_back_ends_the_rest() {
    let (line, clock) = line(ClientOptions::default());
    let upstream = in_turn(vec![says(503, "Retry-After: 120"), well()]).await;
    line.fetch(get(&upstream, "/", 10.0)).await.unwrap();
    clock.put_back(Duration::from_secs(1));
    assert_eq!(line.fetch(get(&upstream, "/", 10.0)).await.unwrap().status.as_u16(), 200);
}

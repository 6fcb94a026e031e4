//! Limits of concurrency, rate and accounts, and conditional requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::sleep,
};

use super::*;

/// An upstream that answers after a while, and its largest number of connections at once.
async fn counting(pause: Duration) -> (Url, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let (now, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let largest = Arc::clone(&peak);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
            tokio::spawn(async move {
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
                sleep(pause).await;
                now.fetch_sub(1, Ordering::SeqCst);
                _ = stream.write_all(&json_response("[]")).await;
            });
        }
    });
    (url, largest)
}

fn call(url: &Url, seconds: f64) -> Call {
    Call::get(url.clone(), 4096, Instant::now() + Duration::from_secs_f64(seconds))
}

#[tokio::test]
async fn concurrent_requests_are_limited() {
    let (url, peak) = counting(Duration::from_millis(30)).await;
    let (client, _) = new_client(ClientOptions { concurrency: 3, ..ClientOptions::default() });
    for reply in join_all((0..24).map(|_| client.fetch(call(&url, 10.0)))).await {
        assert_eq!(reply.unwrap().status.as_u16(), 200);
    }
    assert_eq!(peak.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn waiting_for_a_slot_ends_at_the_deadline() {
    let upstream = Upstream::start(|_| vec![Step::Hang]).await;
    let (client, _) = new_client(ClientOptions { concurrency: 2, ..ClientOptions::default() });
    let busy: Vec<_> = (0..2)
        .map(|_| {
            let (client, call) = (Arc::clone(&client), get(&upstream, "/", 30.0));
            tokio::spawn(async move { client.fetch(call).await })
        })
        .collect();
    while request_count(&upstream) < 2 {
        sleep(Duration::from_millis(5)).await;
    }
    // Waiting requests do not count as failures of the destination, however many wait.
    for _ in 0..8 {
        let late = client.fetch(get(&upstream, "/", 0.03)).await;
        fails(late, ErrorKind::Timeout, "no free slot in time: 2 requests to it were under way until the deadline");
    }
    assert_eq!(request_count(&upstream), 2);
    // A cancelled caller frees its slot.
    busy.iter().for_each(tokio::task::JoinHandle::abort);
    for _ in 0..3 {
        cancel_after_arrival(&client, &upstream).await;
    }
    assert_eq!(request_count(&upstream), 5);
}

#[tokio::test]
async fn requests_per_second_are_limited() {
    let upstream = Upstream::start(|_| ok_response()).await;
    let (client, _) =
        new_client(ClientOptions { rate: NonZeroU32::new(10), concurrency: 20, ..ClientOptions::default() });
    let began = Instant::now();
    for reply in join_all((0..16).map(|_| client.fetch(get(&upstream, "/", 10.0)))).await {
        reply.unwrap();
    }
    assert!((0.55..3.0).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
    let late: Vec<BackendError> = join_all((0..9).map(|_| client.fetch(get(&upstream, "/", 0.05))))
        .await
        .into_iter()
        .filter_map(Result::err)
        .collect();
    let expected = "no free slot in time: more than 10 requests per second were waiting";
    assert!(late.iter().all(|error| error.kind == ErrorKind::Timeout), "{late:?}");
    assert!(late.iter().any(|error| error.message.ends_with(expected)), "{late:?}");
}

#[tokio::test]
async fn an_account_without_rate_limit_budget_waits() {
    let throttled = |seconds| ErrorKind::Throttled { retry_after: Some(Duration::from_secs(seconds)) };
    let anew_at = |clock: &TestClock| {
        use domain::clock::Clock as _;
        clock.now().0 / 1000 + 301
    };
    for status in [200, 403, 429] {
        let (client, clock) = new_client(ClientOptions::default());
        let headers =
            format!("X-RateLimit-Limit: 5000\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: {}", anew_at(&clock));
        let upstream = Upstream::start(move |request| {
            let is_first = request.header("authorization") == Some("Bearer one");
            if is_first { response_with(status, &headers) } else { response_with(404, "X-RateLimit-Remaining: 100") }
        })
        .await;
        let reply = client.fetch(get_as(&upstream, "one")).await.unwrap();
        if status != 200 {
            let refused = reply.refusal();
            let ErrorKind::Throttled { retry_after: Some(rest) } = refused.kind else { panic!("{refused:?}") };
            assert!((300..=301).contains(&rest.as_secs()), "{rest:?}");
        }
        let error = client.fetch(get_as(&upstream, "one")).await.unwrap_err();
        assert!(
            matches!(error.kind, ErrorKind::Throttled { .. }) && error.message.contains(": no request sent: "),
            "{error}"
        );
        assert!(!error.message.contains("one") && error.message.ends_with("; this account pauses"), "{error}");
        assert_eq!(request_count(&upstream), 1, "{status}");
        // Other accounts, and the same account at another destination, are not affected.
        for _ in 0..2 {
            client.fetch(get_as(&upstream, "two")).await.unwrap();
            client.fetch(get(&upstream, "/", 10.0)).await.unwrap();
        }
        assert_eq!(request_count(&upstream), 5);
        clock.advance(Duration::from_secs(302));
        client.fetch(get_as(&upstream, "one")).await.unwrap();
        assert_eq!(request_count(&upstream), 6);
    }
    // A denial without a time stays a denial, and GitHub's other limit names a time.
    let upstream = in_turn(vec![response_with(403, ""), response_with(403, "Retry-After: 30"), ok_response()]).await;
    let (client, clock) = new_client(ClientOptions::default());
    assert_eq!(client.fetch(get_as(&upstream, "one")).await.unwrap().refusal().kind, ErrorKind::Denied);
    assert_eq!(client.fetch(get_as(&upstream, "one")).await.unwrap().refusal().kind, throttled(30));
    fails(client.fetch(get_as(&upstream, "one")).await, throttled(30), "it demanded a pause with 403 Forbidden");
    clock.advance(Duration::from_secs(30));
    assert_eq!(client.fetch(get_as(&upstream, "one")).await.unwrap().status.as_u16(), 200);
}

#[tokio::test]
async fn the_remaining_budget_is_known_per_account() {
    let upstream = in_turn(vec![
        response_with(200, "RateLimit-Limit: 100;w=21600\r\nRateLimit-Remaining: 76;w=21600"),
        response_with(200, "RateLimit-Limit: 100;w=21600\r\nRateLimit-Remaining: 9;w=21600"),
    ])
    .await;
    let (client, clock) = new_client(ClientOptions::default());
    let url = get(&upstream, "/other", 1.0).url;
    for is_low in [false, true] {
        client.fetch(Call { account: Some("hub".into()), ..get(&upstream, "/", 10.0) }).await.unwrap();
        assert_eq!(client.is_low(&url, "hub"), is_low);
    }
    assert!(!client.is_low(&url, outbound::ANONYMOUS));
    clock.advance(Duration::from_hours(6));
    assert!(!client.is_low(&url, "hub"), "that was long ago");
}

/// Answers 304 to requests with `tag`.
fn tagged(tag: &'static str) -> impl Fn(&Request) -> Vec<Step> {
    move |request| {
        let headers = format!("Content-Type: application/json\r\nETag: {tag}\r\nX-Asked: {}", request.target);
        let body = format!("[{:?}]", request.header("authorization").unwrap_or_default());
        let is_known = request.header("if-none-match") == Some(tag);
        if is_known {
            vec![Step::Send(
                format!("HTTP/1.1 304 X\r\nConnection: close\r\nETag: {tag}\r\nX-Asked: again\r\n\r\n").into(),
            )]
        } else {
            request.answer(200, &headers, body)
        }
    }
}

#[tokio::test]
async fn an_unchanged_answer_costs_a_304() {
    for tag in ["\"a\"", "W/\"a\""] {
        let upstream = Upstream::start(tagged(tag)).await;
        let (client, _) = new_client(ClientOptions::default());
        let ask = async |token: &str, change: fn(&mut Call)| {
            let mut call = Call { revalidate: true, ..get_as(&upstream, token) };
            change(&mut call);
            let reply = client.fetch(call).await.unwrap();
            let sent = upstream.requests().last().unwrap().header("if-none-match").map(str::to_owned);
            let header = |name: &str| reply.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(header("content-type").as_deref(), Some("application/json"));
            (reply.status.as_u16(), String::from_utf8(reply.body.to_vec()).unwrap(), header("x-asked").unwrap(), sent)
        };
        let fresh = (200, "[\"Bearer one\"]".to_owned(), "/".to_owned(), None);
        let same = (200, "[\"Bearer one\"]".to_owned(), "again".to_owned(), Some(tag.to_owned()));
        assert_eq!(ask("one", |_| ()).await, fresh);
        assert_eq!(ask("one", |_| ()).await, same);
        assert_eq!(ask("one", |_| ()).await, same);
        // No caller gets another account's answer, or the answer to another request.
        assert_eq!(ask("two", |_| ()).await.3, None);
        assert_eq!(ask("one", |call| call.url.set_path("/x")).await.3, None);
        assert_eq!(
            ask("one", |call| drop(call.headers.insert("accept", HeaderValue::from_static("x/y")))).await.3,
            None
        );
        assert_eq!(ask("one", |call| call.revalidate = false).await, fresh);
        assert_eq!(ask("one", |call| call.method = Method::POST).await, fresh);
        // A named account keeps its answers when its credential changes.
        assert_eq!(ask("old", |call| call.account = Some("app".into())).await.3, None);
        let (_, body, _, sent) = ask("new", |call| call.account = Some("app".into())).await;
        assert_eq!((&*body, sent.as_deref()), ("[\"Bearer old\"]", Some(tag)));
    }
}

#[tokio::test]
async fn uncacheable_answers_are_not_kept() {
    for headers in ["", "ETag: \"a\"\r\nCache-Control: no-store", "ETag: \"a\"\r\nVary: *"] {
        let upstream = Upstream::start(move |_| response_with(200, headers)).await;
        let (client, _) = new_client(ClientOptions::default());
        for _ in 0..2 {
            client.fetch(Call { revalidate: true, ..get(&upstream, "/", 10.0) }).await.unwrap();
        }
        assert_eq!(upstream.requests()[1].header("if-none-match"), None, "{headers}");
    }
    // A 304 without a kept answer, and a 304 for another version.
    let upstream = in_turn(vec![
        response_with(304, "ETag: \"a\""),
        response_with(200, "ETag: \"a\""),
        response_with(304, "ETag: \"b\""),
    ])
    .await;
    let (client, _) = new_client(ClientOptions::default());
    let ask = async || client.fetch(Call { revalidate: true, ..get(&upstream, "/", 10.0) }).await;
    assert_eq!(ask().await.unwrap().refusal().kind, ErrorKind::InvalidOutput);
    assert_eq!(ask().await.unwrap().status.as_u16(), 200);
    fails(ask().await, ErrorKind::InvalidOutput, "for another version");
}

#[tokio::test]
async fn retries_are_limited_to_a_share_of_all_calls() {
    let (client, _) = new_client(ClientOptions { concurrency: 200, ..ClientOptions::default() });
    // Every second request fails, so that the breaker never opens.
    let count = AtomicUsize::new(0);
    let play = move |_: &Request| {
        if count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) { response_with(500, "") } else { ok_response() }
    };
    let upstream = Upstream::start(play).await;
    let began = Instant::now();
    for _ in 0..200 {
        client.fetch(get(&upstream, "/", 10.0)).await.unwrap();
    }
    // One in five, and ten more that are always allowed, in ten seconds, or only in five: tower's window may end early, since it counts
    // a second and a bit as two. Each retry moves the next call to a failure.
    let windows = 1 + usize::try_from(began.elapsed().as_secs()).unwrap() / 4;
    let again = request_count(&upstream) - 200;
    assert!((40..=41 + 10 * windows).contains(&again), "{again} in {windows} windows");
}

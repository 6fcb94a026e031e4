//! How many elements may be unknown, and when their look-ups end early.

use super::*;
use crate::support::upstream::Request;

/// A gateway whose list has `count` items, and where `answer` replies to the look-up of each.
async fn gateway(
    count: u32,
    each: Value,
    answer: impl Fn(&Request, u32) -> Vec<Step> + Send + Sync + 'static,
) -> (TestApp, Upstream) {
    let upstream = Upstream::start(move |request| match request.target.strip_prefix("/element/") {
        Some(number) => answer(request, number.parse().unwrap()),
        None => vec![Step::Send(json_response(
            (1..=count).map(|number| json!({"number": number})).collect::<Value>().to_string(),
        ))],
    })
    .await;
    (start(&upstream, each).await, upstream)
}

/// A gateway with the list and the elements of `upstream`.
async fn start(upstream: &Upstream, each: Value) -> TestApp {
    start_within(upstream, each, "2s").await
}

/// The same with another deadline.
async fn start_within(upstream: &Upstream, each: Value, deadline: &str) -> TestApp {
    let url = format!("http://{}", upstream.address);
    let mut element = each;
    element["key"] = json!(["number"]);
    element["http"] = json!({"url": format!("{url}/element/{{{{ item.number }}}}")});
    let route = json!({
        "name": "previews", "deadline": deadline,
        "cache": {"ttl": "10s", "staleWhileRevalidate": "0s", "staleIfError": "24h", "prefetch": false},
        "backend": {"pipeline": [{"http": {"url": format!("{url}/list")}}, {"each": element}]},
        "output": {"number": "{{ item.number }}"},
    });
    TestApp::start(&format!("{}routes: {}\n", TestApp::auth(), json!([route]))).await
}

fn present(number: u32) -> Vec<Step> {
    vec![Step::Send(json_response(json!([{"digest": number}]).to_string()))]
}

/// With a limit of two of ten, as a count and as a share: two new elements that fail are left out, and three make the answer unknown.
#[tokio::test(flavor = "multi_thread")]
async fn more_than_max_unknown_make_the_answer_unknown() {
    for limit in [json!(2), json!("20%")] {
        let failing = Arc::new(Mutex::new(0));
        let fails = Arc::clone(&failing);
        let (app, _upstream) = gateway(10, json!({"maxUnknown": limit}), move |_, number| {
            if number <= *fails.lock().unwrap() { vec![Step::Send(response(500, "", "no"))] } else { present(number) }
        })
        .await;
        assert_eq!(numbers(&app.ask("previews", json!({})).await).len(), 10);
        for (count, status) in [(2, "fwd="), (3, "detail=backend_failed")] {
            *failing.lock().unwrap() = count;
            app.clock.advance(Duration::from_mins(2));
            let reply = app.ask("previews", json!({})).await;
            assert_eq!(numbers(&reply).len(), 10, "{limit}: {count} as last known");
            let cache = reply.header("cache-status").unwrap();
            assert!(cache.contains(status), "{limit}: {count}: {cache}");
        }
        let answers = app.operate("/admin/answers", None).await.text();
        let limit = limit.to_string().replace('"', "");
        assert!(answers.contains(&format!("3 of 10 elements unknown, more than `maxUnknown: {limit}`")), "{answers}");
    }
}

/// If each element is refused, the look-ups end, and the others say why they were not made.
#[tokio::test(flavor = "multi_thread")]
async fn look_ups_end_when_the_source_refuses_all() {
    for status in [401, 403, 429] {
        let (app, upstream) = gateway(400, json!({}), move |_, _| vec![Step::Send(response(status, "", "no"))]).await;
        let reply = app.ask("previews", json!({})).await;
        assert!([429, 502, 503].contains(&reply.status), "{status}: {}", reply.text());
        let requests = upstream.requests().len();
        assert!((2..200).contains(&requests), "{status}: {requests} requests");
    }
}

/// One element that is answered shows that the source does not refuse as a whole: the look-ups go on while less than half fail.
#[tokio::test(flavor = "multi_thread")]
async fn look_ups_go_on_when_only_some_are_refused() {
    let (app, upstream) = gateway(400, json!({}), |_, number| {
        if number % 8 == 0 { vec![Step::Send(response(403, "", "no"))] } else { present(number) }
    })
    .await;
    let reply = app.ask("previews", json!({})).await;
    assert!(reply.text().contains("50 of 400 elements unknown"), "the first answer is to be whole: {}", reply.text());
    assert!(!reply.text().contains("not queried"), "{}", reply.text());
    assert_eq!(upstream.requests().len(), 401);
}

/// What is not done by the deadline goes on, and the next call has it without a second request.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_done_by_the_deadline_is_there_for_the_next_call() {
    // The list takes 3.2 s, and then the element as long. The deadline of each is 6 s: together they are late, and each has time left.
    let late = |reply: Vec<u8>| {
        let (first, rest) = reply.split_at(1);
        vec![Step::Drip(first.to_vec(), Duration::from_millis(3200)), Step::Send(rest.to_vec())]
    };
    let upstream = Upstream::start(move |request| match &*request.target {
        "/list" => late(json_response(json!([{"number": 1}]).to_string())),
        _ => late(json_response("[{}]")),
    })
    .await;
    let app = start_within(&upstream, json!({}), "6s").await;
    let reply = app.ask("previews", json!({})).await;
    assert_eq!(reply.status, 504, "{}", reply.text());
    assert!(reply.text().contains("1 of 1 element unknown"), "{}", reply.text());
    // Over the backoff of the whole. If the element is not done yet, the next call waits for the same look-up.
    app.clock.advance(Duration::from_secs(5));
    assert_eq!(numbers(&app.ask("previews", json!({})).await), ["1"]);
    let of_element = upstream.requests().iter().filter(|request| request.target == "/element/1").count();
    assert_eq!(of_element, 1);
}

/// The most elements that an answer may have. Each is stored by itself, and counts in `cache.memory`.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_elements_are_one_answer() {
    let items: Vec<Value> = (0..10_000).map(|number| json!({"number": number})).collect();
    let route = json!({
        "name": "previews", "deadline": "120s",
        "backend": {"pipeline": [
            {"fixed": {"parameters": items}},
            {"each": {"key": ["number"], "fixed": {"parameters": [{"image": "x".repeat(100)}]}}},
        ]},
        "output": {"number": "{{ item.number }}", "image": "{{ image }}"},
    });
    let app = TestApp::start(&format!("{}routes: {}\n", TestApp::auth(), json!([route]))).await;
    let reply = app.ask("previews", json!({})).await;
    let numbers = numbers(&reply);
    assert_eq!(numbers.len(), 10_000);
    assert!((0..10_000).zip(&numbers).all(|(number, named)| number.to_string() == *named));
    assert_eq!(reply.header("x-appset-gateway-elements"), Some("present=10000, absent=0, last-known=0, unknown=0"));
    let bytes = app.metric("appset_gateway_cache_size_bytes").await;
    let whole = reply.body.len() as u64;
    assert!(bytes > whole + 10_000 * 100, "{bytes} for an answer of {whole} and its elements");
}

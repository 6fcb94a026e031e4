//! The battery: each hostile expression and template ends by the deadline with a clear error, within a bound of memory, and nobody else
//! notices.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    time::{Instant, sleep},
};

use super::{evaluators, hostile, request, resident, resident_of_its_own, serve};
use crate::support::{
    binary::Gateway,
    upstream::{Upstream, json_response},
    wire::{exchange, read_reply},
};

/// The memory limit of the gateway with all its evaluators, in bytes.
const MEMORY: u64 = 256 * 1024 * 1024;
/// The time within which a call is answered.
const DEADLINE: Duration = Duration::from_secs(2);
/// Extra time for a busy machine.
const MARGIN: Duration = Duration::from_secs(2);
/// Items, a long text and a short list.
fn body() -> String {
    let items: Vec<Value> = (0..60_000).map(|n| json!({"n": format!("item-{n}"), "ok": true})).collect();
    let few: Vec<u32> = (0..200).collect();
    json!({"items": items, "text": "x".repeat(60_000), "few": few}).to_string()
}

/// Asks an ordinary route repeatedly on its own thread, expects an answer each time, and returns their number.
fn ask_ordinary_route(gateway: &Gateway, is_over: &Arc<AtomicBool>) -> thread::JoinHandle<u64> {
    let (address, is_over) = (gateway.address, Arc::clone(is_over));
    let calls = async move {
        let (mut stream, mut answered) = (TcpStream::connect(address).await.unwrap(), 0);
        while !is_over.load(Ordering::SeqCst) {
            // Each call is another question, so the expression is evaluated each time.
            let request = request("good", &json!({"n": answered.to_string()}));
            stream.write_all(&request).await.unwrap();
            let reply = read_reply(&mut stream).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            answered += 1;
            sleep(Duration::from_millis(10)).await;
        }
        answered
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    thread::spawn(move || runtime.block_on(calls))
}

/// Watches the memory of the gateway and its evaluators until `is_over`. Returns the peak.
fn watch_memory(gateway: u32, is_over: &Arc<AtomicBool>) -> thread::JoinHandle<u64> {
    let (is_over, peak) = (Arc::clone(is_over), AtomicU64::new(0));
    thread::spawn(move || {
        while !is_over.load(Ordering::SeqCst) {
            let all = resident(gateway) + evaluators(gateway).into_iter().map(resident_of_its_own).sum::<u64>();
            peak.fetch_max(all, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(2));
        }
        peak.into_inner()
    })
}

fn routes(upstream: &Upstream) -> Vec<Value> {
    let url = format!("http://{}/", upstream.address);
    let ask_ordinary_route = json!({"name": "good", "backend": {"pipeline": [
        {"fixed": {"parameters": [{"a": "x-y", "n": 1}]}},
        {"select": "items.filter(i, i.n == 1).map(i, {'name': i.a.replace('-', '_'), 'of': params.n})"},
    ]}, "output": {"name": "{{ name | upper }}-{{ of }}"}});
    let expression = |(index, source): (usize, &&str)| json!({"name": format!("e{index}"), "backend": {"http": {"url": url, "parameters": source}}, "output": {"a": "b"}});
    let template = |(index, source): (usize, &&str)| {
        let name = format!("t{index}");
        let fixed = json!({"fixed": {"parameters": [{"a": "b"}]}});
        match index % 3 {
            0 => json!({"name": name, "backend": fixed, "output": {"a": source}}),
            1 => json!({"name": name, "backend": {"http": {"url": url, "method": "POST", "body": {"a": source}}}}),
            _ => json!({"name": name, "backend": {"http": {"url": format!("{url}?a={source}")}}}),
        }
    };
    let expressions = hostile::EXPRESSIONS.iter().enumerate().map(expression);
    [ask_ordinary_route]
        .into_iter()
        .chain(expressions)
        .chain(hostile::TEMPLATES.iter().enumerate().map(template))
        .collect()
}

/// Asks the route `name`, and expects an error in time that names the cause.
async fn assert_fails(gateway: &Gateway, name: String, parameters: Value, source: &str) {
    let asked = Instant::now();
    let reply = exchange(gateway.address, &request(&name, &parameters)).await;
    let took = asked.elapsed();
    println!("{took:>10.1?} {} {source}: {}", reply.status, reply.text().chars().take(300).collect::<String>());
    assert!(took < DEADLINE + MARGIN, "{source}: {took:?}");
    let code = reply.code();
    let is_clear = matches!(&*code, "backend_timeout" | "backend_output_invalid" | "invalid_input");
    assert!(is_clear, "{source}: {}", reply.text());
    let is_named = reply.message().contains(&source.chars().take(8).collect::<String>());
    // A busy machine may need all of the time to read the document.
    let is_late = code == "backend_timeout" && took > DEADLINE / 2;
    assert!(is_named || is_late, "{source}: {}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_expressions_end_in_time_and_delay_no_other_route() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::always(json_response(body())).await;
    let gateway = serve(folder.path(), "2s", &routes(&upstream));
    let is_over = Arc::new(AtomicBool::new(false));
    let ask_ordinary_route = ask_ordinary_route(&gateway, &is_over);
    let memory = watch_memory(gateway.id(), &is_over);
    let list: Vec<String> = (0..2000).map(|n| n.to_string()).collect();
    let large = json!({"b": "a".repeat(60_000), "list": list});
    let hostile =
        hostile::EXPRESSIONS.iter().enumerate().map(|(index, source)| (format!("e{index}"), json!({}), source));
    let templates = hostile::TEMPLATES.iter().enumerate();
    let all = hostile.chain(templates.map(|(index, source)| (format!("t{index}"), large.clone(), source)));
    for (name, parameters, source) in all {
        assert_fails(&gateway, name, parameters, source).await;
    }
    // All at once, on more routes than evaluators.
    let at_once = (0..hostile::EXPRESSIONS.len()).map(|index| {
        let asked = request(&format!("e{index}"), &json!({"again": "1"}));
        let address = gateway.address;
        async move { exchange(address, &asked).await.status }
    });
    let at_once = futures_util::future::join_all(at_once).await;
    assert!(at_once.iter().all(|status| *status >= 400), "{at_once:?}");
    is_over.store(true, Ordering::SeqCst);
    assert!(ask_ordinary_route.join().unwrap() > 50);
    let memory = memory.join().unwrap();
    println!("memory {} MiB", memory >> 20);
    assert!(memory <= MEMORY, "{} MiB", memory >> 20);
}

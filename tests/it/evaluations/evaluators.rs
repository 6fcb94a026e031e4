//! Evaluators: they give the gateway's own results, their failures are reported, and no process is left behind.

use std::{path::Path, time::Duration};

use futures_util::future::join_all;
use lang::{
    evaluator::{Context, Evaluator, Evaluators, Variables},
    expression::Expression,
    scope::NameScope,
    template::{Template, ValueContext},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use proptest::{
    prelude::{Just, Strategy, any, prop_oneof},
    strategy::ValueTree as _,
    test_runner::TestRunner,
};
use serde_json::{Value, json};
use telemetry::metrics::Metrics;
use tokio::time::{Instant, sleep};

use super::{evaluators, request, serve};
use crate::support::{
    TestApp,
    upstream::{Upstream, json_response},
    wire::exchange,
};

fn evaluator() -> Evaluator {
    let program = Path::new(env!("CARGO_BIN_EXE_appset-gateway"));
    Evaluators::new(program, Metrics::new().unwrap().evaluations.clone()).of_route()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// Documents of any form.
fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Zä,/ -]{0,8}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map("[a-c]", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    let item = (value.clone(), value).prop_map(|(a, b)| json!({"a": a, "b": b, "n": "x-1"}));
    proptest::collection::vec(item, 0..5).prop_map(|items| json!({"items": items, "text": "a,b"}))
}

#[tokio::test]
async fn an_evaluator_and_the_gateway_give_the_same_result() {
    let (evaluator, mut runner) = (evaluator(), TestRunner::default());
    let expressions = [
        "body",
        "body.items.map(t, {'name': t.n, 'a': t.a})",
        "body.items.filter(t, t.a == t.b).map(t, t.b)",
        "body.items.filter(t, has(t.a.b)).map(t, {'x': t.a.b, 'y': size(t.n)})",
        "body.items.map(t, t.n.replace('-', '_') + body.text)",
        "body.text.split(',').map(c, c.upperAscii())",
        "body.items.map(t, t.a + 1)",
        "body.items.exists(t, t.a < t.b) ? 'yes' : params.none",
        "body.items.map(t, body.items.exists(u, u.a == t.b))",
    ];
    let expressions = expressions.map(|source| Expression::compile(source).unwrap());
    for _ in 0..40 {
        let document = documents().new_tree(&mut runner).unwrap().current();
        for expression in &expressions {
            let here = expression.evaluate_at_once(&[("body", &(&document).into()), ("params", &(&json!({})).into())]);
            let variables = Variables::default().value("body", document.clone()).value("params", json!({}));
            let there = evaluator.evaluate(expression, &variables, soon()).await.map_err(|error| error.to_string());
            // An error may show an object, whose keys have no order in CEL.
            let text = |value: Option<Value>| value.map(|value| value.to_string());
            assert_eq!(text(here.unwrap().ok()), text(there.ok()), "{expression:?} {document}");
        }
    }
}

#[tokio::test]
async fn an_evaluator_renders_costly_templates() {
    let params = json!({"a": "x/y", "n": 2.5, "list": ["a", "b"], "yes": true});
    let values = || minijinja::context! { params => minijinja::value::Value::from(minijinja::value::Serde(&params)) };
    let context = Context::new(values(), &evaluator(), soon());
    for (source, value_context) in [
        ("{% set x = params.a %}{{ x }}-{{ params.n }}", ValueContext::Url),
        ("{% for i in range(3) %}{{ i }},{% endfor %}{{ params.yes }}", ValueContext::Text),
        ("r/{% set x = params.a | tag %}{{ x }}", ValueContext::Reference),
        ("r/{% set x = params.a ~ ':' %}{{ x }}", ValueContext::Reference),
        ("{{ params.list | sort(reverse=true) | join('/') }}", ValueContext::Text),
        ("{% set x = 1 %}{{ params.none }}", ValueContext::Text),
        ("{{ params.list | groupby }}", ValueContext::Text),
    ] {
        let template = Template::parse(source, value_context, &NameScope::input()).unwrap();
        assert!(template.render_small(&values()).is_none(), "{source}");
        let there = context.render(&template).await.map_err(|error| error.to_string());
        assert_eq!(there, template.render(&values()).map_err(|refusal| refusal.message), "{source}");
    }
}

/// Ordinary work on a long list succeeds.
#[tokio::test]
async fn a_long_list_is_filtered_and_mapped() {
    let items = (0..60_000).map(|n| json!({"n": format!("item-{n}"), "cluster": "c", "active": true, "id": n}));
    let body = json!({"items": items.collect::<Vec<_>>()}).to_string();
    let source = "body.items.filter(t, t.active).map(t, {'name': t.n, 'server': t.cluster})";
    let (expression, variables) =
        (Expression::compile(source).unwrap(), Variables::default().json("body", body.into()));
    let result = evaluator().evaluate(&expression, &variables, Instant::now() + Duration::from_mins(1)).await;
    let result = result.map_err(|error| error.to_string()).unwrap();
    assert_eq!(result.as_array().unwrap().len(), 60_000);
}

/// Keeps an evaluator busy for a long time, without much memory.
const LONG: &str = "items.filter(i, items.all(j, items.all(k, items.all(l, k.n + j.n != l.n + i.n + 'x'))))";

fn busy(evaluator: &Evaluator, deadline: Duration) -> impl Future<Output = Result<Value, String>> + use<> {
    let items: Vec<Value> = (0..300).map(|n| json!({"n": format!("i{n}")})).collect();
    let (evaluator, expression) = (evaluator.clone(), Expression::compile(LONG).unwrap());
    let variables = Variables::default().value("items", Value::Array(items));
    async move {
        let value = evaluator.evaluate(&expression, &variables, Instant::now() + deadline).await;
        value.map_err(|error| error.to_string())
    }
}

#[tokio::test]
async fn a_deadline_ends_an_evaluation() {
    let error = busy(&evaluator(), Duration::from_millis(500)).await.unwrap_err();
    assert!(error.contains("took longer than the deadline") && error.contains("items.filter"), "{error}");
}

/// Three routes that would occupy both evaluators for ever, and a fourth route that is asked meanwhile.
#[tokio::test]
async fn a_busy_route_does_not_keep_evaluators_from_others() {
    let first = evaluator();
    let routes = [first.clone(), first.of_another_route(), first.of_another_route()];
    let hostile = join_all(routes.iter().map(|route| busy(route, Duration::from_secs(20))));
    let hostile = tokio::spawn(hostile);
    sleep(Duration::from_millis(300)).await;
    let expression = Expression::compile("1 + size(items)").unwrap();
    let variables = Variables::default().value("items", json!([1]));
    let result = first.of_another_route().evaluate(&expression, &variables, soon()).await;
    assert_eq!(result.map_err(|error| error.to_string()), Ok(json!(2)));
    // The same route waits for its own evaluation.
    let own = first.evaluate(&expression, &variables, Instant::now() + Duration::from_millis(100)).await;
    assert!(own.is_ok() || own.unwrap_err().to_string().contains("it had no free slot"));
    hostile.abort();
}

fn slow_route(upstream: &Upstream) -> Value {
    let url = format!("http://{}/", upstream.address);
    json!({"name": "slow", "backend": {"http": {"url": url, "parameters": LONG.replace("items", "body.items")}}})
}

async fn slow_upstream() -> Upstream {
    let items: Vec<Value> = (0..300).map(|n| json!({"n": format!("i{n}")})).collect();
    Upstream::always(json_response(json!({"items": items}).to_string())).await
}

/// The only evaluator of a gateway, once it has started.
async fn evaluator_of(gateway: u32) -> u32 {
    let until = soon();
    loop {
        if let [one] = evaluators(gateway)[..] {
            return one;
        }
        assert!(Instant::now() < until, "no evaluator");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_killed_evaluator_causes_an_error_and_is_replaced() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), slow_upstream().await);
    let gateway = serve(folder.path(), "3s", &[slow_route(&upstream)]);
    for round in 0..2 {
        let (address, asked) = (gateway.address, request("slow", &json!({"n": round.to_string()})));
        let asking = tokio::spawn(async move { exchange(address, &asked).await });
        let evaluator = evaluator_of(gateway.id()).await;
        sleep(Duration::from_millis(200)).await;
        kill(Pid::from_raw(evaluator.cast_signed()), Signal::SIGKILL).unwrap();
        let reply = asking.await.unwrap();
        assert_eq!(reply.status, 502, "{}", reply.text());
        assert!(reply.message().contains("its evaluator has ended (SIGKILL)"), "{}", reply.text());
    }
}

#[tokio::test]
async fn no_evaluator_outlives_a_killed_gateway() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), slow_upstream().await);
    let mut gateway = serve(folder.path(), "20s", &[slow_route(&upstream)]);
    let (address, asked) = (gateway.address, request("slow", &json!({})));
    let asking = tokio::spawn(async move { exchange(address, &asked).await });
    let evaluator = evaluator_of(gateway.id()).await;
    let environment = std::fs::read(format!("/proc/{evaluator}/environ")).unwrap_or_default();
    let environment = String::from_utf8_lossy(&environment);
    let variables: Vec<&str> = environment.split('\0').filter(|variable| !variable.is_empty()).collect();
    assert!(variables.iter().all(|variable| variable.starts_with("_RJEM_MALLOC_CONF=")), "{variables:?}");
    sleep(Duration::from_millis(200)).await;
    gateway.signal(Signal::SIGKILL);
    let _ = gateway.wait(Duration::from_secs(5));
    let until = soon();
    while std::fs::read_to_string(format!("/proc/{evaluator}/cmdline")).is_ok_and(|line| line.contains("evaluate")) {
        assert!(Instant::now() < until, "the evaluator continues");
        sleep(Duration::from_millis(10)).await;
    }
    asking.abort();
}

#[tokio::test]
async fn evaluations_are_counted_by_result() {
    let app = TestApp::with_routes(
        "  - { name: r, backend: { fixed: { parameters: [ { a: b } ] } }, output: { a: '{% set x = a %}{{ x }}' } }\n",
    )
    .await;
    assert_eq!(app.ask("r", json!({})).await.sets(), r#"[{"a":"b"}]"#);
    assert_eq!(app.metric("appset_gateway_evaluations_total{outcome=\"done\"}").await, 1);
}

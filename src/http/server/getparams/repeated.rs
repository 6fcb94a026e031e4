//! A call whose bytes came before is answered as if they had not: two gateways get the same random calls, clocks and reloads, and one of them
//! has no memory of repeats. Answers, log lines and metrics must be equal.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{body::Body, extract::Request};
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use tokio::{runtime::Runtime, time::Instant};
use tracing_subscriber::{fmt, layer::SubscriberExt as _};

use super::serve;
use crate::{app::App, config::Loaded};
use auth::hash_token;
use domain::{
    clock::{Clock, Timestamp},
    file::base_dir::BaseDir,
};
use launcher::own_program;

const PATHS: [Option<&str>; 5] = [None, None, Some("open"), Some("declared"), Some("gone")];
const TOKENS: [&str; 5] = ["all", "open-only", "set-x-only", "admin", "wrong"];
const BODIES: [&str; 14] = [
    r#"{"applicationSetName":"x","input":{"parameters":{}}}"#,
    r#"{"applicationSetName":"y","input":{"parameters":{}}}"#,
    r#"{"applicationSetName":"x","input":{"parameters":{"branch":"main"}}}"#,
    r#"{"applicationSetName":"x","input":{"parameters":{"branch":"main"}}} "#,
    r#"{"input":{"parameters":{"branch":"main"}},"applicationSetName":"x"}"#,
    r#"{"applicationSetName":"x","input":{"parameters":{"branch":"main","n":"7"}}}"#,
    r#"{"applicationSetName":"x","input":{"parameters":{"n":7,"branch":"main"}}}"#,
    r#"{"applicationSetName":"x","input":{"parameters":{"branch":"MAIN"}}}"#,
    r#"{"applicationSetName":"x","input":{"parameters":{"branch":"main","branch":"main"}}}"#,
    r#"{"applicationSetName":"x","applicationSetNamespace":"teams","input":{"parameters":{"branch":"main"}}}"#,
    r#"{"applicationSetName":"x","input":{"parameters":{"zone":null}}}"#,
    r#"{"applicationSetName":"x","input":{"parameters":{"zone":"\u00e9"}}}"#,
    r#"{"applicationSetName":"x","input":"#,
    "{}",
];

/// Configurations with other callers, routes, conditions, declarations and answers.
fn config(version: usize) -> String {
    let token = |index: usize, rest: &str| {
        let name = TOKENS[index];
        // A rotation: the token stays a caller's for two of three configurations.
        let hash = hash_token(&if version == 2 { format!("{name}-2") } else { name.to_owned() });
        format!("{{ name: {name}, sha256: \"{hash}\"{rest} }}")
    };
    let tokens =
        [token(0, ""), token(1, ", routes: [open]"), token(2, ", applicationSets: [x]"), token(3, ", role: admin")];
    let (default, first, gone) = [
        (
            "1",
            "{ parameters: { branch: \"*\" } }",
            "  - { name: gone, backend: { fixed: { parameters: [ { g: '1' } ] } } }\n",
        ),
        ("2", "{ applicationSet: \"x\" }", ""),
        ("1", "{}", "  - { name: gone, match: {}, backend: { fixed: { parameters: [ { g: '2' } ] } } }\n"),
    ][version];
    format!(
        "auth: {{ tokens: [ {} ] }}\nroutes:\n\
         \x20 - {{ name: declared, match: {first}, echo: [branch, n], input: [ {{ name: branch, required: true, pattern: \"[a-z]+\" }}, \
         {{ name: n, type: number, default: {default} }}, {{ name: zone }} ], backend: {{ fixed: {{ parameters: [ {{ v: '{version}' }} ] }} }} }}\n\
         \x20 - {{ name: open, match: {{}}, cache: {{ ttl: 10s }}, backend: {{ fixed: {{ parameters: [ {{ a: b }} ] }} }} }}\n{gone}",
        tokens.join(", ")
    )
}

#[derive(Debug, Clone)]
enum Step {
    Call { path: usize, token: usize, is_rotated: bool, body: usize },
    Reload(usize),
    Wait(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let call = (0..PATHS.len(), 0..TOKENS.len(), any::<bool>(), 0..BODIES.len());
    let call = call.prop_map(|(path, token, is_rotated, body)| Step::Call { path, token, is_rotated, body });
    // Most calls are some caller's ordinary ones, so that many are repeats.
    let ordinary = (0..PATHS.len(), 0..3_usize, 0..7_usize);
    let ordinary = ordinary.prop_map(|(path, token, body)| Step::Call { path, token, is_rotated: false, body });
    prop_oneof![8 => ordinary, 6 => call, 1 => (0..3_usize).prop_map(Step::Reload), 1 => (0..20_u64).prop_map(Step::Wait)]
}

/// A clock that only the test moves, in milliseconds.
struct Standing(AtomicU64);

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A gateway that is called without connections.
struct Gateway {
    app: Arc<App>,
    clock: Arc<Standing>,
    has_repeats: bool,
}

/// All that a call leaves behind, without ids and times.
type Seen = (u16, Vec<(String, String)>, String, String);

impl Gateway {
    fn new(has_repeats: bool) -> Self {
        let clock = Arc::new(Standing(AtomicU64::new(1_000_000)));
        let loaded = Loaded::parse("t.yaml", config(0), BaseDir::default()).unwrap();
        let (app, _) = App::build(loaded, Arc::clone(&clock) as Arc<dyn Clock>, own_program()).unwrap();
        Self { app: Arc::new(app), clock, has_repeats }
    }

    fn reload(&self, version: usize) {
        let loaded = Loaded::parse("t.yaml", config(version), BaseDir::default());
        self.app.reload(loaded).unwrap();
    }

    fn call(&self, runtime: &Runtime, path: Option<&str>, token: &str, body: &str) -> Seen {
        if !self.has_repeats {
            self.app.setup().repeats.forget();
        }
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = fmt::layer().without_time().with_ansi(false).with_writer(move || writer.clone());
        let request = Request::post("/").header("authorization", format!("Bearer {token}")).header("x-request-id", "r");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            runtime.block_on(async {
                let response = serve(Arc::clone(&self.app), path.map(str::to_owned), request).await;
                let (head, body) = response.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                // Runs go on when their callers are gone. The next call must not find them under way.
                while !self.app.engine.is_idle() {
                    tokio::task::yield_now().await;
                }
                (head, body)
            })
        });
        let (head, body) = response;
        let headers = head.headers.iter().filter(|(name, _)| *name != "server-timing");
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        let lines = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let fields = lines.split(' ').filter(|field| !field.starts_with("duration_us="));
        let line = fields.collect::<Vec<_>>().join(" ");
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        (head.status.as_u16(), headers, String::from_utf8(body.to_vec()).unwrap(), line)
    }

    /// All metrics but times and the process's own size.
    fn metrics(&self) -> Vec<String> {
        let text = String::from_utf8(self.app.metrics.encode().unwrap()).unwrap();
        let is_time = |line: &&str| {
            line.contains("_seconds_bucket") || line.contains("_seconds_sum") || line.starts_with("process_")
        };
        text.lines().filter(|line| !is_time(line)).map(str::to_owned).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn a_repeated_call_leaves_what_a_new_one_leaves(steps in prop::collection::vec(any_step(), 100)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (fast, slow) = (Gateway::new(true), Gateway::new(false));
        for step in &steps {
            match *step {
                Step::Reload(version) => [&fast, &slow].iter().for_each(|gateway| gateway.reload(version)),
                Step::Wait(seconds) => {
                    for gateway in [&fast, &slow] {
                        gateway.clock.0.fetch_add(seconds * 1000, Ordering::Relaxed);
                    }
                }
                Step::Call { path, token, is_rotated, body } => {
                    let token = TOKENS[token].to_owned() + if is_rotated { "-2" } else { "" };
                    let call = |gateway: &Gateway| gateway.call(&runtime, PATHS[path], &token, BODIES[body]);
                    prop_assert_eq!(call(&fast), call(&slow), "{:?}", step);
                }
            }
        }
        prop_assert_eq!(fast.metrics(), slow.metrics());
    }
}

#[test]
fn the_third_call_is_a_repeat_and_a_reload_forgets_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let gateway = Gateway::new(true);
    let is_kept = |named: Option<&str>, body: &str| {
        gateway.app.setup().repeats.get(named, body.as_bytes(), Instant::now()).is_some()
    };
    let kept = |body: &str| is_kept(Some("open"), body);
    let call = |body: &str| gateway.call(&runtime, Some("open"), "all", body).0;
    assert_eq!((call(BODIES[0]), kept(BODIES[0])), (200, false), "a miss");
    assert_eq!((call(BODIES[0]), kept(BODIES[0])), (200, true), "a hit");
    assert!(!kept(BODIES[1]) && !is_kept(None, BODIES[0]));
    gateway.reload(1);
    assert!(!kept(BODIES[0]));
    // A run that renews an answer counts as a hit does.
    assert_eq!((call(BODIES[2]), kept(BODIES[2])), (200, false));
    gateway.clock.0.fetch_add(60 * 60 * 1000, Ordering::Relaxed);
    assert_eq!((call(BODIES[2]), kept(BODIES[2])), (200, true));
    // A refused call is none.
    assert_eq!((call(BODIES[8]), kept(BODIES[8])), (400, false));
    // Nor is one with a large body.
    let large = format!("{{\"input\":{{\"parameters\":{{\"a\":\"{}\"}}}}}}", "x".repeat(3000));
    assert_eq!((call(&large), call(&large), kept(&large)), (200, 200, false));
}

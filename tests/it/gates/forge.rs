//! Helpers for the tests of gates: building a gate, asking it, and the failures of forges.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use backend::{
    BuildContext, Building,
    digests::{
        commit::Commit,
        gate::{
            CiState, CiVerdict, Gate, GateQuery,
            memory::{Remembered, System},
        },
    },
};
use domain::{
    clock::{Clock, SystemClock},
    error::{BackendError, ErrorKind},
    file::base_dir::BaseDir,
    generator::Query,
    problem::{Path, Problems},
    section::Section,
};
use lang::{
    evaluator::{Context, Evaluator},
    scope::NameScope,
};
use launcher::Launchers;
use oci::{Registries, RegistriesMeans};
use outbound::Outbound;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::upstream::{Play, Request, Step, Upstream, response};

/// The commit of the tests.
pub(super) const SHA: &str = "ec1a3b9d5f27a6c80b4e19d2f7c3a5e8b6d40f12";
/// Another commit.
pub(super) const OTHER: &str = "0000000000000000000000000000000000000001";
/// The content of the file `token`.
pub(super) const TOKEN: &str = "glpat-c4n4ry-0123456789";

/// Everything that gates are built from.
pub(super) struct ForgeContext {
    pub folder: tempfile::TempDir,
    base: BaseDir,
    clock: Arc<dyn Clock>,
    outbound: Arc<Outbound>,
    launchers: Arc<Launchers>,
    registries: Registries,
    evaluator: Evaluator,
    scope: NameScope,
}

impl ForgeContext {
    /// Makes a folder with a token.
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let (base, clock): (_, Arc<dyn Clock>) = (BaseDir::new(folder.path()), Arc::new(SystemClock));
        let outbound = Arc::new(Outbound::new(Arc::clone(&clock)));
        let launchers = Arc::new(Launchers::new(std::path::PathBuf::new(), 1));
        let means = RegistriesMeans { outbound: &outbound, launchers: &launchers, clock: &clock };
        let mut problems = Problems::default();
        let mut section = Section::new(&base, Path::root(), &mut problems);
        let registries = Registries::build(&BTreeMap::new(), means, &mut section);
        Self {
            folder,
            base,
            clock,
            outbound,
            launchers,
            registries,
            evaluator: Evaluator::none(),
            scope: NameScope::input(),
        }
    }

    fn context(&self) -> BuildContext<'_> {
        BuildContext {
            raw: &Value::Null,
            base: &self.base,
            clock: &self.clock,
            outbound: &self.outbound,
            launchers: &self.launchers,
            evaluator: &self.evaluator,
            registries: &self.registries,
            scope: &self.scope,
            is_route: true,
            package: None,
            isolated: None,
        }
    }

    /// The gate that `build` makes of `config`, which has no problem.
    pub(super) fn gate<C: DeserializeOwned, S: System>(
        &self,
        config: &Value,
        build: impl Fn(&C, &mut Building<'_>) -> Option<S>,
    ) -> Remembered<S> {
        let mut problems = Problems::default();
        let system = build(&parse(config), &mut Building::new(self.context(), Path::root(), &mut problems));
        assert_eq!(problems.into_vec(), []);
        Remembered::new(system.unwrap(), &self.clock)
    }

    /// Whether the gate that `build` makes of `config` reads the ApplicationSet's name.
    pub(super) fn reads_application_set<C: DeserializeOwned, S: System>(
        &self,
        config: &Value,
        build: impl Fn(&C, &mut Building<'_>) -> Option<S>,
    ) -> bool {
        let mut problems = Problems::default();
        let mut building = Building::new(self.context(), Path::root(), &mut problems);
        assert!(build(&parse(config), &mut building).is_some());
        building.reads_application_set()
    }

    /// The problems that `build` reports for `config`, with their paths.
    pub(super) fn problems<C: DeserializeOwned, S>(
        &self,
        config: &Value,
        build: impl Fn(&C, &mut Building<'_>) -> Option<S>,
    ) -> Vec<String> {
        let mut problems = Problems::default();
        build(&parse(config), &mut Building::new(self.context(), Path::root(), &mut problems));
        problems.into_vec().into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
    }
}

fn parse<C: DeserializeOwned>(config: &Value) -> C {
    serde_json::from_value(config.clone()).unwrap()
}

/// `base` with the keys of `more`.
pub(super) fn with(base: &Value, more: &Value) -> Value {
    let mut merged = base.clone();
    merged.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    merged
}

/// Asks `gate` with `parameters`.
pub(super) async fn ask_with(gate: &dyn Gate, parameters: &Value) -> Result<CiVerdict, BackendError> {
    ask_as(gate, parameters, false).await
}

async fn ask_as(gate: &dyn Gate, parameters: &Value, may_reuse: bool) -> Result<CiVerdict, BackendError> {
    let parameters = Arc::new(parameters.as_object().unwrap().clone());
    let deadline = Instant::now() + Duration::from_secs(5);
    let query = Query::new("set".into(), Arc::clone(&parameters), deadline);
    gate.check(GateQuery {
        context: &Context::of_input(&query, &Evaluator::none()),
        parameters: &parameters,
        item: None,
        deadline,
        may_reuse,
    })
    .await
}

/// Asks `gate` about [`SHA`].
pub(super) async fn ask(gate: &dyn Gate) -> Result<CiVerdict, BackendError> {
    ask_with(gate, &json!({"sha": SHA, "number": "7"})).await
}

/// The verdict of `gate` on [`SHA`], and its evidence.
pub(super) async fn ruled(gate: &dyn Gate) -> (CiState, Vec<String>) {
    let verdict = ask(gate).await.unwrap();
    assert_eq!(verdict.commit.as_ref().map(Commit::as_str), Some(SHA));
    assert!(!verdict.is_earlier);
    (verdict.state, verdict.evidence.iter().map(ToString::to_string).collect())
}

/// Asserts that `gate` gives an error of `kind` that contains `says`. Returns its message.
pub(super) async fn unknown(gate: &dyn Gate, kind: ErrorKind, says: &str) -> String {
    let error = ask(gate).await.unwrap_err();
    assert_eq!((error.kind, error.message.contains(says)), (kind, true), "{says}: {error}");
    assert!(!error.message.contains("c4n4ry"), "{error}");
    assert!(!error.message.contains(char::is_control), "{error}");
    error.message
}

/// The requests to `upstream`, as method and target.
pub(super) fn asked(upstream: &Upstream) -> Vec<String> {
    upstream.requests().iter().map(|request| format!("{} {}", request.method, request.target)).collect()
}

/// A request's headers without those of the transport, sorted.
pub(super) fn headers(request: &Request) -> Vec<(&str, &str)> {
    let mut headers: Vec<_> = request.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    headers.retain(|(name, _)| !matches!(*name, "host" | "user-agent"));
    headers.sort_unstable();
    headers
}

/// An upstream that answers every request with `body` as JSON.
pub(super) async fn answering(body: Value) -> Upstream {
    Upstream::start(move |request| json(request, "", &body)).await
}

/// An answer with `body` as JSON, and `headers` as lines without their ends.
pub(super) fn json(request: &Request, headers: &str, body: &Value) -> Vec<Step> {
    let separator = if headers.is_empty() { "" } else { "\r\n" };
    request.answer(200, &format!("Content-Type: application/json{separator}{headers}"), body.to_string())
}

/// Every failure of a forge is an error of its class, which holds no secret: the gate that `build` makes for an API
/// never takes one for a verdict.
pub(super) async fn check_failures<G: Gate>(context: &ForgeContext, build: impl Fn(&ForgeContext, &str) -> G) {
    let echo = |status: u16| -> Box<Play> {
        Box::new(move |request: &Request| {
            let sent: Vec<String> = request.headers.iter().map(|(_, value)| value.clone()).collect();
            request.answer(
                status,
                "Content-Type: application/json",
                format!(r#"{{"message": "you sent {}"}}"#, sent.join(" ")),
            )
        })
    };
    let send = |bytes: Vec<u8>| -> Box<Play> { Box::new(move |_: &Request| vec![Step::Send(bytes.clone())]) };
    let html = "<!DOCTYPE html><html><head><title>Sign in</title></head></html>";
    for (play, kind, says) in [
        (echo(401), ErrorKind::Denied, "401"),
        (echo(403), ErrorKind::Denied, "403"),
        (echo(404), ErrorKind::InvalidOutput, "it does not exist, or the token may not see it"),
        (echo(400), ErrorKind::InvalidOutput, "unexpected status 400"),
        (echo(500), ErrorKind::Unavailable, "500"),
        (echo(200), ErrorKind::InvalidOutput, "not the document that was expected"),
        (send(response(204, "", "")), ErrorKind::InvalidOutput, "204"),
        (send(response(302, "Location: /users/sign_in", "")), ErrorKind::InvalidOutput, "302"),
        (send(response(200, "Content-Type: text/html", html)), ErrorKind::InvalidOutput, "Sign in"),
        (send(response(200, "", "")), ErrorKind::InvalidOutput, "not the document"),
        (send(response(200, "", "null")), ErrorKind::InvalidOutput, "not the document"),
        (send(b"HTTP/1.1 200 X\r\nContent-Length: 99\r\n\r\n[{\"id\"".to_vec()), ErrorKind::Unavailable, "broke off"),
        (Box::new(|_: &Request| vec![Step::Reset]), ErrorKind::Unavailable, ""),
    ] {
        let upstream = Upstream::start(play).await;
        let host = upstream.address.ip().to_string();
        let gate = build(context, &format!("http://{}/api", upstream.address));
        let message = unknown(&gate, kind, says).await;
        assert!(message.contains(&host) && message.contains("/api/"), "{message}");
    }
    let throttled = Upstream::start(|request| request.answer(429, "Retry-After: 77", "")).await;
    let error = ask(&build(context, &format!("http://{}/api", throttled.address))).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Throttled { .. }), "{error}");
}

/// Only a full commit is asked about.
pub(super) async fn check_commits<G: Gate>(context: &ForgeContext, build: impl Fn(&ForgeContext, &str) -> G) {
    let upstream = answering(json!([])).await;
    let gate = build(context, &format!("http://{}/api", upstream.address));
    for (parameters, says) in [
        (json!({"sha": ""}), "sha: the commit is empty"),
        (json!({"sha": &SHA[..8]}), "is a shortened commit"),
        (json!({"sha": "main"}), "`main` is not a commit"),
        (json!({}), "`params.sha` is not there"),
    ] {
        let error = ask_with(&gate, &parameters).await.unwrap_err();
        assert_eq!((error.kind, error.message.contains(says)), (ErrorKind::InvalidInput, true), "{error}");
    }
    assert_eq!(asked(&upstream), Vec::<String>::new());
}

/// A `gate` that says of [`SHA`] that it passed is asked once, as long as what differs is no part of the question; each of
/// the `others` is a question of its own.
pub(super) async fn check_memory(gate: &dyn Gate, upstream: &Upstream, others: &[Value]) {
    let plain = json!({"sha": SHA, "number": "7", "ref": "feature/x"});
    assert_eq!(ask_as(gate, &plain, true).await.unwrap().state, CiState::Passed);
    let first = upstream.requests().len();
    for more in
        [json!({}), json!({"branch": "x"}), json!({"title": "y", "labels": ["z"]}), json!({"sha": SHA.to_uppercase()})]
    {
        assert_eq!(ask_as(gate, &with(&plain, &more), true).await.unwrap().state, CiState::Passed);
        assert_eq!(upstream.requests().len(), first, "{more}");
    }
    let mut asked = first;
    for other in others {
        // The verdict does not matter here.
        let _ = ask_as(gate, &with(&plain, other), true).await;
        assert!(upstream.requests().len() > asked, "{other}");
        asked = upstream.requests().len();
    }
}

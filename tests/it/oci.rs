//! The registry client, called directly: with a real registry, and with a fake for the behaviour of other registries.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use domain::{
    clock::{Clock, Timestamp},
    error::{BackendError, ErrorKind},
    file::base_dir::BaseDir,
    problem::{self, Problems, Severity},
    section::Section,
};
use launcher::Launchers;
use oci::{Digest, Lookup, Missing, Patience, Reference, Registries, RegistriesMeans, RegistryConfig};
use outbound::Outbound;
use serde_json::{Value, json};
use tokio::time::{Instant, advance, pause, resume};

use crate::support::upstream::{Request, Upstream};

mod answers;
mod contents;
mod credentials;
mod helpers;
mod identities;
mod lists;
mod mirrors;
mod redirects;
mod remembered;
mod tokens;
mod trouble;

const OCI: &str = "Content-Type: application/vnd.oci.image.manifest.v1+json";
const JSON: &str = "Content-Type: application/json";
const MANIFEST: &str = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json"}"#;

/// A clock that stands still until a test moves it.
#[derive(Default)]
struct ManualClock(AtomicU64);

impl ManualClock {
    fn advance(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// The registries of a configuration whose files are in `folder`, and their clock.
fn build(folder: &Path, config: &Value) -> (Registries, Arc<ManualClock>) {
    let config: BTreeMap<String, RegistryConfig> = serde_json::from_value(config.clone()).unwrap();
    let clock = Arc::new(ManualClock::default());
    let (outbound, mut problems) = (Arc::new(Outbound::new(clock.clone())), Problems::default());
    let base = BaseDir::new(folder);
    let path = problem::Path::root().key("registries");
    let launchers = Arc::new(Launchers::new(env!("CARGO_BIN_EXE_appset-gateway").into(), 1));
    let means = RegistriesMeans { outbound: &outbound, launchers: &launchers, clock: &(clock.clone() as _) };
    let registries = Registries::build(&config, means, &mut Section::new(&base, path, &mut problems));
    let problems = problems.into_vec();
    assert!(problems.iter().all(|problem| problem.severity == Severity::Warning), "{problems:?}");
    (registries, clock)
}

/// Registries without files.
fn registries(config: &Value) -> Registries {
    build(Path::new("/nonexistent"), config).0
}

/// A configuration of `host` over http.
fn plain(host: &impl ToString) -> Value {
    json!({host.to_string(): {"plainHttp": true}})
}

/// Advances time for everything in this process.
async fn advance_seconds(seconds: u64) {
    pause();
    advance(Duration::from_secs(seconds)).await;
    resume();
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

async fn look_up(registries: &Registries, reference: &str) -> Result<Lookup, BackendError> {
    let patience = Patience { deadline: deadline(), max_age: Duration::ZERO, joins: true };
    registries.look_up(&Reference::parse(reference).unwrap(), patience).await
}

/// The digest of a tag that must exist.
#[track_caller]
fn expect_digest(found: Result<Lookup, BackendError>) -> Digest {
    match found {
        Ok(Lookup::There(target)) => target.digest,
        other => panic!("not there: {other:?}"),
    }
}

#[track_caller]
fn missing(found: Result<Lookup, BackendError>) -> Missing {
    match found {
        Ok(Lookup::Missing(missing)) => missing,
        other => panic!("not missing: {other:?}"),
    }
}

/// The message of an error, which must have `kind` and contain `says`.
#[track_caller]
fn refused<T: std::fmt::Debug>(found: Result<T, BackendError>, kind: ErrorKind, says: &str) -> String {
    let error = found.expect_err(says);
    assert!(error.kind == kind && error.message.contains(says), "not {kind:?} with `{says}`: {error:?}");
    error.message
}

fn manifest_digest() -> Digest {
    Digest::of(MANIFEST.as_bytes())
}

/// The answer of a registry that has the manifest.
fn found(request: &Request) -> Vec<crate::support::upstream::Step> {
    request.answer(200, &format!("{OCI}\r\nDocker-Content-Digest: {}", manifest_digest()), MANIFEST)
}

/// The methods and paths of the requests to `upstream`.
fn asked(upstream: &Upstream) -> Vec<String> {
    upstream.requests().iter().map(|request| format!("{} {}", request.method, request.target)).collect()
}

/// A folder with a `docker.json` of these `auths`.
fn docker_config(auths: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("docker.json"), json!({"auths": auths}).to_string()).unwrap();
    folder
}

fn user(name: &str, password: &str) -> Value {
    json!({"username": name, "password": password})
}

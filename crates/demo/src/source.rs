//! The sources: a list of tenants, the clusters of a fleet, pull requests with their CI, and the registry to which CI pushes. They have a
//! truth, and faults between the truth and those who ask.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::web::{Response, Site};

/// The ApplicationSets of the story, which are also the names of the gateway's routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Set {
    /// An Application for each tenant.
    Tenants,
    /// An Application for each cluster of a fleet.
    Clusters,
    /// A preview for each pull request whose image is there.
    Previews,
}

impl Set {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tenants, Self::Clusters, Self::Previews];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tenants => "tenants",
            Self::Clusters => "clusters",
            Self::Previews => "previews",
        }
    }
}

/// What is wrong with the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The API of tenants answers 503, as a proxy without a backend does.
    TenantsDown,
    /// The API of tenants answers 200 and `[]`.
    TenantsEmpty,
    /// The fleet's API answers 200 and the first half of the memberships.
    HalfFleet,
    /// The registry answers 503.
    RegistryDown,
}

/// A pull request: its number and its commit.
type Pull = (u64, String);

#[derive(Debug)]
struct World {
    tenants: Vec<String>,
    clusters: Vec<String>,
    pulls: Vec<Pull>,
    /// The commits that CI has built and pushed.
    built: BTreeSet<String>,
    fault: Option<Fault>,
}

/// The sources. Cloning gives another handle.
#[derive(Debug, Clone)]
pub struct Source(Arc<Mutex<World>>);

const TENANTS: [&str; 23] = [
    "acme",
    "aperture",
    "bluth",
    "chotchkies",
    "cyberdyne",
    "dunder",
    "globex",
    "gringotts",
    "hooli",
    "initech",
    "massive",
    "monarch",
    "oceanic",
    "oscorp",
    "piedpiper",
    "soylent",
    "stark",
    "sterling",
    "tyrell",
    "umbrella",
    "vandelay",
    "wayne",
    "wonka",
];
const REGIONS: [&str; 4] = ["asia-east1", "europe-west3", "us-central1", "us-east4"];

impl Source {
    /// The sources on a good day.
    pub fn new() -> Self {
        let pulls: Vec<Pull> = [12, 15, 19, 23].into_iter().map(|number| (number, commit(number, 1))).collect();
        let clusters = REGIONS.iter().flat_map(|region| (1..=3).map(move |index| format!("{region}-{index}")));
        Self(Arc::new(Mutex::new(World {
            tenants: TENANTS.map(str::to_owned).into(),
            clusters: clusters.collect(),
            built: pulls.iter().map(|(_, commit)| commit.clone()).collect(),
            pulls,
            fault: None,
        })))
    }

    /// From now on `fault` is between the truth and those who ask; `None`: nothing is.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.0.lock().fault = fault;
    }

    /// Pushes a new commit to the last pull request. CI has not finished it.
    pub fn push_commit(&self) {
        if let Some((number, head)) = self.0.lock().pulls.last_mut() {
            *head = commit(*number, 2);
        }
    }

    /// CI has finished all commits.
    pub fn finish_ci(&self) {
        let mut world = self.0.lock();
        let heads: Vec<String> = world.pulls.iter().map(|(_, head)| head.clone()).collect();
        world.built.extend(heads);
    }

    /// Takes the last cluster out of the fleet.
    pub fn remove_cluster(&self) {
        self.0.lock().clusters.pop();
    }

    /// The names of the Applications that should exist: each open pull request had a build once.
    pub fn truth(&self, set: Set) -> BTreeSet<String> {
        let world = self.0.lock();
        match set {
            Set::Tenants => world.tenants.iter().cloned().collect(),
            Set::Clusters => world.clusters.iter().cloned().collect(),
            Set::Previews => world.pulls.iter().map(|(number, _)| number.to_string()).collect(),
        }
    }
}

impl Default for Source {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    fn respond(&self, path: &str) -> Response {
        let is = |fault| self.fault == Some(fault);
        let named = |name: &String| json!({ "name": name });
        if is(Fault::TenantsDown) && path == "/tenants" || is(Fault::RegistryDown) && path.starts_with("/v2/") {
            let body = "<html><body><h1>503 Service Temporarily Unavailable</h1></body></html>\n";
            return Response { status: 503, media_type: "text/html", headers: Vec::new(), body: body.into() };
        }
        if let Some(sha) = path.strip_prefix("/ci/") {
            let state = if self.built.contains(sha) { "success" } else { "running" };
            return Response::json(200, &json!({ "state": state }));
        }
        if let Some(reference) = path.strip_prefix("/v2/shop/manifests/") {
            return self.manifest(reference);
        }
        let body = match path {
            "/tenants" if is(Fault::TenantsEmpty) => json!([]),
            "/tenants" => self.tenants.iter().map(named).collect::<Value>(),
            "/memberships" => {
                let shown = if is(Fault::HalfFleet) { self.clusters.len() / 2 } else { self.clusters.len() };
                json!({ "memberships": self.clusters.iter().take(shown).map(named).collect::<Vec<_>>() })
            }
            "/pulls" => {
                let pulls = self.pulls.iter().map(|(number, sha)| json!({ "number": number, "head_sha": sha }));
                pulls.collect::<Value>()
            }
            "/v2/" => json!({}),
            _ => return Response::json(404, &json!({ "message": "there is no such page" })),
        };
        Response::json(200, &body)
    }

    /// The manifest of the image of a commit, by tag or digest.
    fn manifest(&self, reference: &str) -> Response {
        let found = self.built.iter().map(|commit| (commit, image(commit))).find_map(|(commit, body)| {
            let digest = format!("sha256:{}", hash(&body));
            (commit == reference || digest == reference).then_some((body, digest))
        });
        let Some((body, digest)) = found else {
            return Response::json(
                404,
                &json!({ "errors": [{ "code": "MANIFEST_UNKNOWN", "message": "manifest unknown" }] }),
            );
        };
        Response {
            status: 200,
            media_type: "application/vnd.oci.image.manifest.v1+json",
            headers: vec![("Docker-Content-Digest", digest)],
            body: body.into(),
        }
    }
}

impl Site for Source {
    async fn answer(&self, path: &str) -> Response {
        self.0.lock().respond(path)
    }
}

/// The id of a commit of a pull request.
fn commit(number: u64, index: u64) -> String {
    hash(&format!("pull request {number}, commit {index}"))[..40].to_owned()
}

/// The manifest of the image that CI made of `commit`.
fn image(commit: &str) -> String {
    let descriptor = |kind: &str| {
        let digest = format!("sha256:{}", hash(&format!("{kind} of {commit}")));
        json!({ "mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest, "size": 1024 })
    };
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("config.v1+json"),
        "layers": [descriptor("layer.v1.tar+gzip")],
    })
    .to_string()
}

fn hash(text: &str) -> String {
    base16ct::lower::encode_string(&Sha256::digest(text.as_bytes()))
}

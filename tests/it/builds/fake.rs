//! A registry and GitHub behind one address: images by tag, runs by commit, and a list of all requests.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use appset_gateway::clients::oci::Digest;
use serde_json::{Value, json};

use crate::support::upstream::{Play, Request, Step, Upstream};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const UNKNOWN: &str = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;

/// A commit of 40 equal digits.
pub fn sha(digit: char) -> String {
    digit.to_string().repeat(40)
}

/// An image whose label names a commit.
#[derive(Debug, Clone)]
pub struct Image {
    /// The commit.
    pub revision: String,
}

impl Image {
    /// The image of the commit of 40 equal digits.
    pub fn of(digit: char) -> Self {
        Self { revision: sha(digit) }
    }

    /// The image of a commit that ends with a number.
    pub fn numbered(number: usize) -> Self {
        Self { revision: format!("{number:040x}") }
    }

    fn config(&self) -> String {
        json!({"created": "2026-07-20T01:00:00Z", "os": "linux", "architecture": "amd64",
            "config": {"Labels": {"org.opencontainers.image.revision": self.revision}}})
        .to_string()
    }

    fn manifest(&self) -> String {
        let config = self.config();
        json!({"schemaVersion": 2, "mediaType": MANIFEST, "layers": [],
            "config": {"mediaType": CONFIG, "digest": Digest::of(config.as_bytes()).as_str(), "size": config.len()}})
        .to_string()
    }

    /// The digest of the manifest.
    pub fn digest(&self) -> Digest {
        Digest::of(self.manifest().as_bytes())
    }
}

#[derive(Default)]
struct State {
    tags: HashMap<String, Digest>,
    /// Contents by digest.
    contents: HashMap<String, String>,
    runs: Vec<Value>,
    history: Vec<char>,
    fault: Option<(Endpoint, Arc<Play>)>,
}

/// The kind of a request, by its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// The forge.
    Gate,
    /// A tag's digest.
    Tag,
    /// A manifest by digest.
    Manifest,
    /// The configuration of an image.
    Config,
}

impl Endpoint {
    pub const ALL: [Self; 4] = [Self::Gate, Self::Tag, Self::Manifest, Self::Config];

    fn of(target: &str) -> Self {
        match target {
            target if target.starts_with("/repos/") => Self::Gate,
            target if target.contains("/blobs/") => Self::Config,
            target if target.contains("/manifests/sha256:") => Self::Manifest,
            _ => Self::Tag,
        }
    }
}

/// The server.
pub struct Fake {
    upstream: Upstream,
    state: Arc<Mutex<State>>,
    taken: Mutex<usize>,
}

impl Fake {
    /// Starts without images and runs.
    pub async fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let upstream = Upstream::start(move |request| shared.lock().unwrap().answer(request)).await;
        Self { upstream, state, taken: Mutex::new(0) }
    }

    /// The host, as an image reference names it.
    pub fn host(&self) -> String {
        self.upstream.address.to_string()
    }

    /// The base URL of the API.
    pub fn url(&self) -> String {
        format!("http://{}", self.upstream.address)
    }

    /// Puts `image` under `tag`, in every repository.
    pub fn push(&self, tag: &str, image: &Image) {
        let mut state = self.state.lock().unwrap();
        state.keep(image.config());
        let digest = state.keep(image.manifest());
        state.tags.insert(tag.to_owned(), digest);
    }

    /// Puts an index of images for platforms under `tag`; the digests of the index and of each image.
    pub fn push_index(&self, tag: &str, images: &[(&str, char)]) -> Vec<Digest> {
        let mut state = self.state.lock().unwrap();
        let mut entries = Vec::new();
        let mut digests: Vec<Digest> = images
            .iter()
            .map(|(platform, commit)| {
                let (os, architecture) = platform.split_once('/').unwrap();
                let config = state.keep(Image::of(*commit).config());
                let digest = state.keep(
                    json!({"schemaVersion": 2, "mediaType": MANIFEST, "layers": [], "annotations": {"for": platform},
                        "config": {"mediaType": CONFIG, "digest": config.as_str(), "size": 1}})
                    .to_string(),
                );
                entries.push(json!({"mediaType": MANIFEST, "digest": digest.as_str(), "size": 1,
                    "platform": {"os": os, "architecture": architecture}}));
                digest
            })
            .collect();
        let index = state.keep(json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string());
        state.tags.insert(tag.to_owned(), index.clone());
        digests.insert(0, index);
        digests
    }

    /// The commits of the repository, newest first.
    pub fn history(&self, commits: &str) {
        let mut state = self.state.lock().unwrap();
        state.history = commits.chars().collect();
    }

    /// The one run of the workflow for a commit, in another state.
    pub fn run(&self, commit: char, status: &str, conclusion: Option<&str>) {
        let mut state = self.state.lock().unwrap();
        let known = state.runs.iter().position(|run| run["head_sha"] == sha(commit).as_str());
        let id = known.unwrap_or(state.runs.len()) + 1;
        let run = json!({
            "id": id, "name": "Build", "path": ".github/workflows/build.yml", "event": "push", "head_sha": sha(commit),
            "status": status, "conclusion": conclusion, "run_attempt": 1,
            "html_url": format!("https://github.com/org/app/actions/runs/{id}"), "updated_at": "2026-07-20T01:01:13Z",
        });
        match known {
            Some(index) => state.runs[index] = run,
            None => state.runs.push(run),
        }
    }

    /// From now on `play` answers at one place.
    pub fn fail(&self, endpoint: Endpoint, play: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static) {
        self.state.lock().unwrap().fault = Some((endpoint, Arc::new(play)));
    }

    /// All is well again.
    pub fn heal(&self) {
        self.state.lock().unwrap().fault = None;
    }

    /// All that was asked.
    pub fn asked(&self) -> Vec<String> {
        self.upstream.requests().iter().map(|request| format!("{} {}", request.method, request.target)).collect()
    }

    /// What was asked since the last time.
    pub fn take(&self) -> Vec<String> {
        let (asked, mut taken) = (self.asked(), self.taken.lock().unwrap());
        let new = asked[*taken..].to_vec();
        *taken = asked.len();
        new
    }
}

impl State {
    fn keep(&mut self, content: String) -> Digest {
        let digest = Digest::of(content.as_bytes());
        self.contents.insert(digest.as_str().to_owned(), content);
        digest
    }

    fn answer(&self, request: &Request) -> Vec<Step> {
        let target = &*request.target;
        if let Some((endpoint, play)) = &self.fault
            && *endpoint == Endpoint::of(target)
        {
            return play(request);
        }
        if let Some((_, commit)) = target.split_once("/actions/runs?head_sha=") {
            let is_of = |run: &&Value| commit.starts_with(run["head_sha"].as_str().unwrap());
            let runs: Vec<&Value> = self.runs.iter().filter(is_of).collect();
            let list = json!({"total_count": runs.len(), "workflow_runs": runs}).to_string();
            return request.answer(200, "Content-Type: application/json", list);
        }
        if let Some((_, from)) = target.split_once("/commits?sha=") {
            let since = self.history.iter().skip_while(|commit| !from.starts_with(&sha(**commit)));
            let since: Vec<char> = since.copied().collect();
            let commit = |(index, digit): (usize, &char)| {
                let parents: Vec<Value> =
                    since.get(index + 1).map(|parent| json!({"sha": sha(*parent)})).into_iter().collect();
                json!({"sha": sha(*digit), "parents": parents})
            };
            let page_size: usize = from.split_once("per_page=").unwrap().1.parse().unwrap();
            let list: Vec<Value> = since.iter().enumerate().map(commit).take(page_size).collect();
            return request.answer(200, "Content-Type: application/json", json!(list).to_string());
        }
        let reference = target.rsplit('/').next().unwrap();
        let digest = self.tags.get(reference).map_or(reference, Digest::as_str);
        match self.contents.get(digest) {
            Some(content) => {
                let kind = if content.contains("\"manifests\"") { INDEX } else { MANIFEST };
                request.answer(200, &format!("Content-Type: {kind}\r\nDocker-Content-Digest: {digest}"), content)
            }
            None => request.answer(404, "Content-Type: application/json", UNKNOWN),
        }
    }
}

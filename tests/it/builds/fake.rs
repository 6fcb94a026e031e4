//! A registry and GitHub behind one address: images by tag, runs by commit, and a list of all requests.

mod state;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use oci::Digest;
use serde_json::{Value, json};

use crate::support::upstream::{Play, Request, Step, Upstream};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const UNKNOWN: &str = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;

/// A commit of 40 equal digits.
pub(crate) fn sha(digit: char) -> String {
    digit.to_string().repeat(40)
}

/// An image whose label names a commit.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    /// The commit.
    pub revision: String,
}

impl Image {
    /// The image of the commit of 40 equal digits.
    pub(crate) fn of(digit: char) -> Self {
        Self { revision: sha(digit) }
    }

    /// The image of a commit that ends with a number.
    pub(crate) fn numbered(number: usize) -> Self {
        Self { revision: format!("{number:040x}") }
    }

    /// Its configuration, with the label.
    pub(crate) fn config(&self) -> String {
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
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(self.manifest().as_bytes())
    }
}

#[derive(Default)]
struct State {
    tags: HashMap<String, Digest>,
    /// Contents by digest.
    contents: HashMap<String, String>,
    /// The documents beside each digest.
    referrers: HashMap<Digest, Vec<Digest>>,
    /// Whether there is a referrers API, and the size of its pages. Without it there are fallback tags.
    page: Option<usize>,
    /// What the fallback tags still list, since the time before there was an API.
    before_api: HashMap<Digest, Vec<Digest>>,
    /// The only repository that has documents beside its images.
    documented: Option<String>,
    /// Contents that are there and cannot be given: the status by digest.
    damaged: HashMap<String, u16>,
    runs: Vec<Value>,
    history: Vec<char>,
    fault: Option<(Endpoint, Arc<Play>)>,
}

/// The kind of a request, by its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// The forge.
    Gate,
    /// A tag's digest.
    Tag,
    /// A manifest by digest.
    Manifest,
    /// The configuration of an image, or a layer.
    Config,
    /// The list of documents beside an image, by API or tag.
    Referrers,
    /// The list of tags.
    List,
}

impl Endpoint {
    pub(crate) const ALL: [Self; 4] = [Self::Gate, Self::Tag, Self::Manifest, Self::Config];

    fn of(target: &str) -> Self {
        match target {
            target if target.starts_with("/repos/") => Self::Gate,
            target if target.contains("/tags/list") => Self::List,
            target if target.contains("/blobs/") => Self::Config,
            target if target.contains("/manifests/sha256:") => Self::Manifest,
            target if target.contains("/referrers/") || target.contains("/manifests/sha256-") => Self::Referrers,
            _ => Self::Tag,
        }
    }
}

/// The server.
pub(crate) struct Fake {
    upstream: Upstream,
    state: Arc<Mutex<State>>,
    taken: Mutex<usize>,
}

impl Fake {
    /// Starts without images and runs.
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let upstream = Upstream::start(move |request| shared.lock().unwrap().answer(request)).await;
        Self { upstream, state, taken: Mutex::new(0) }
    }

    /// The host, as an image reference names it.
    pub(crate) fn host(&self) -> String {
        self.upstream.address.to_string()
    }

    /// The base URL of the API.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.upstream.address)
    }

    /// Puts `image` under `tag`, in every repository.
    pub(crate) fn push(&self, tag: &str, image: &Image) {
        let mut state = self.state.lock().unwrap();
        state.keep(image.config());
        let digest = state.keep(image.manifest());
        state.tags.insert(tag.to_owned(), digest);
    }

    /// Puts an index of images for platforms under `tag`; the digests of the index and of each image.
    pub(crate) fn push_index(&self, tag: &str, images: &[(&str, char)]) -> Vec<Digest> {
        self.push_annotated_index(tag, images, &json!({}))
    }

    /// The same, with annotations of the index.
    pub(crate) fn push_annotated_index(&self, tag: &str, images: &[(&str, char)], annotations: &Value) -> Vec<Digest> {
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
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries, "annotations": annotations});
        let index = state.keep(index.to_string());
        state.tags.insert(tag.to_owned(), index.clone());
        digests.insert(0, index);
        digests
    }

    /// Keeps an image whose configuration is `config`; the digest of its manifest.
    pub(crate) fn keep_image(&self, config: &Value) -> Digest {
        let mut state = self.state.lock().unwrap();
        let config = state.keep(config.to_string());
        state.keep(
            json!({"schemaVersion": 2, "mediaType": MANIFEST, "layers": [],
                "config": {"mediaType": CONFIG, "digest": config.as_str(), "size": 1}})
            .to_string(),
        )
    }

    /// Keeps an index of these entries: digests, and what is said of each; the digest of the index.
    pub(crate) fn keep_index(&self, entries: &[(&Digest, Value)]) -> Digest {
        let entry = |(digest, more): &(&Digest, Value)| {
            let mut entry = json!({"mediaType": MANIFEST, "digest": digest.as_str(), "size": 1});
            entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            entry
        };
        let entries: Vec<Value> = entries.iter().map(entry).collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries});
        self.state.lock().unwrap().keep(index.to_string())
    }

    /// Puts what is kept as `digest` under `tag`.
    pub(crate) fn tag(&self, tag: &str, digest: &Digest) {
        self.state.lock().unwrap().tags.insert(tag.to_owned(), digest.clone());
    }

    /// From now on there is a referrers API with pages of `size`.
    pub(crate) fn has_referrers_api(&self, size: usize) {
        self.state.lock().unwrap().page = Some(size);
    }

    /// The registry gets a referrers API. Its fallback tags stay as they are.
    pub(crate) fn gets_referrers_api(&self, size: usize) {
        let mut state = self.state.lock().unwrap();
        (state.page, state.before_api) = (Some(size), state.referrers.clone());
    }

    /// Only images of `repository` have documents beside them.
    pub(crate) fn document_only(&self, repository: &str) {
        self.state.lock().unwrap().documented = Some(repository.to_owned());
    }

    /// From now on the registry answers `status` to requests for the content of `digest`.
    pub(crate) fn damage(&self, digest: &Digest, status: u16) {
        self.state.lock().unwrap().damaged.insert(digest.as_str().to_owned(), status);
    }

    /// Puts `document`, a layer of the type `kind`, beside the image `subject`; the digest of its manifest.
    pub(crate) fn attach(&self, subject: &Digest, kind: &str, document: &str) -> Digest {
        self.attach_layers(subject, kind, &[document.to_owned()], document.len())
    }

    /// Puts one document with several layers beside the image `subject`. Its manifest says that each layer has `size` bytes.
    pub(crate) fn attach_layers(&self, subject: &Digest, kind: &str, layers: &[String], size: usize) -> Digest {
        let mut state = self.state.lock().unwrap();
        let number = state.referrers.values().map(Vec::len).sum::<usize>().to_string();
        let entry = |digest: Digest| json!({"mediaType": kind, "digest": digest.as_str(), "size": size});
        let several = layers.len() > 1;
        let layers: Vec<Value> = layers.iter().map(|layer| entry(state.keep(layer.clone()))).collect();
        let mut manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": kind, "layers": layers,
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": Digest::of(b"{}").as_str(), "size": 2},
            "subject": {"mediaType": MANIFEST, "digest": subject.as_str(), "size": 1}});
        if several {
            // Documents with the same layers are documents of their own.
            manifest["annotations"] = json!({"number": number});
        }
        drop(state);
        self.attach_manifest(subject, &manifest.to_string())
    }

    /// Puts a document with this manifest beside the image `subject`; its digest.
    pub(crate) fn attach_manifest(&self, subject: &Digest, manifest: &str) -> Digest {
        let mut state = self.state.lock().unwrap();
        let digest = state.keep(manifest.to_owned());
        state.referrers.entry(subject.clone()).or_default().push(digest.clone());
        digest
    }

    /// Puts signatures of cosign before version 3 beside `subject`: payloads, and their signatures in base64.
    pub(crate) fn attach_legacy(&self, subject: &Digest, signed: &[(String, String)]) {
        let mut state = self.state.lock().unwrap();
        let mut layers = Vec::new();
        for (payload, signature) in signed {
            let layer = state.keep(payload.clone());
            layers.push(
                json!({"mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "digest": layer.as_str(),
                "size": payload.len(), "annotations": {"dev.cosignproject.cosign/signature": signature}}),
            );
        }
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "layers": layers,
            "config": {"mediaType": CONFIG, "digest": Digest::of(b"{}").as_str(), "size": 2}});
        let digest = state.keep(manifest.to_string());
        state.tags.insert(format!("sha256-{}.sig", hex(subject)), digest);
    }

    /// Takes everything away that is beside `subject`.
    pub(crate) fn detach(&self, subject: &Digest) {
        let mut state = self.state.lock().unwrap();
        state.referrers.remove(subject);
        state.tags.remove(&format!("sha256-{}.sig", hex(subject)));
    }

    /// Loses the content of `digest`, which stays listed.
    pub(crate) fn lose(&self, digest: &Digest) {
        self.state.lock().unwrap().contents.remove(digest.as_str());
    }

    /// The commits of the repository, newest first.
    pub(crate) fn history(&self, commits: &str) {
        let mut state = self.state.lock().unwrap();
        state.history = commits.chars().collect();
    }

    /// The one run of the workflow for a commit, in another state.
    pub(crate) fn run(&self, commit: char, status: &str, conclusion: Option<&str>) {
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
    pub(crate) fn fail(&self, endpoint: Endpoint, play: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static) {
        self.state.lock().unwrap().fault = Some((endpoint, Arc::new(play)));
    }

    /// All is well again.
    pub(crate) fn heal(&self) {
        self.state.lock().unwrap().fault = None;
    }

    /// All that was asked.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.upstream.requests().iter().map(|request| format!("{} {}", request.method, request.target)).collect()
    }

    /// What was asked since the last time.
    pub(crate) fn take(&self) -> Vec<String> {
        let (asked, mut taken) = (self.asked(), self.taken.lock().unwrap());
        let new = asked[*taken..].to_vec();
        *taken = asked.len();
        new
    }
}

fn hex(digest: &Digest) -> &str {
    digest.as_str().strip_prefix("sha256:").unwrap()
}

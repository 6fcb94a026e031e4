//! What an event is about: images, commits, or questions that a mapping names.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    time::Duration,
};

use http::{HeaderMap, HeaderName, header};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{Mapping, unmapped};
use crate::{
    clients::oci::{Digest, Reference},
    domain::generator::{Evidence, Question, Selector},
    lang::evaluator::Variables,
};

/// What one event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    /// An image, or all tags of its repository.
    Image {
        /// The registry and the repository, in lower case.
        repository: String,
        /// The tag.
        tag: Option<String>,
        /// The digest that was pushed.
        digest: Option<Digest>,
    },
    /// A commit, by its full SHA in lower case.
    Commit(String),
    /// What `http` backends read at a URL, and below it. It has no query.
    Url(String),
    /// The questions that this selects.
    Questions(Selector),
}

impl Subject {
    /// The image `reference`; without a host it is on Docker Hub. Registries and repositories have lower case; senders do not always keep to that.
    pub(super) fn image(reference: &str) -> Option<Self> {
        let (name, tag) = split(reference);
        let digest = reference.split_once('@').and_then(|(_, digest)| Digest::parse(digest).ok());
        let host =
            name.split_once('/').map(|(host, _)| host).filter(|host| host.contains(['.', ':']) || *host == "localhost");
        let registry = if host.is_some() { "" } else { "docker.io/" };
        let reference = Reference::parse(&format!("{registry}{}:x", name.to_ascii_lowercase())).ok()?;
        Some(Self::Image {
            repository: format!("{}/{}", reference.registry, reference.repository),
            tag: tag.map(str::to_owned),
            digest,
        })
    }

    /// The push of `digest`.
    pub(super) fn with_digest(self, digest: Option<&str>) -> Self {
        let pushed = digest.and_then(|digest| Digest::parse(digest).ok());
        match self {
            Self::Image { repository, tag, digest } => Self::Image { repository, tag, digest: pushed.or(digest) },
            other => other,
        }
    }

    /// Whether it is one tag of an image.
    pub(super) const fn has_tag(&self) -> bool {
        matches!(self, Self::Image { tag: Some(_), .. })
    }

    /// What is read at `url`. Its query is left out.
    pub(super) fn url(url: &str) -> Option<Self> {
        let url = url::Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        let host = url.host_str()?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Some(Self::Url(format!("{}://{host}{port}{}", url.scheme(), url.path().trim_end_matches('/'))))
    }

    /// The commit `sha`, if it is a full one and not the zeros that stand for a deleted branch.
    pub(super) fn commit(sha: &str) -> Option<Self> {
        let is_whole = is_sha(sha) && sha.bytes().any(|byte| byte != b'0');
        is_whole.then(|| Self::Commit(sha.to_ascii_lowercase()))
    }
}

/// As operators see it.
impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Image { repository, tag, .. } => {
                let tag = tag.as_ref().map(|tag| format!(":{tag}")).unwrap_or_default();
                json!({"image": format!("{repository}{tag}")})
            }
            Self::Commit(sha) => json!({"commit": sha}),
            Self::Url(url) => json!({"url": url}),
            Self::Questions(selector) => json!({"route": selector.route, "parameters": selector.parameters}),
        }
        .serialize(serializer)
    }
}

/// The name and the tag of an image reference. Its digest is left out: it does not say under which tag the image is found.
pub(super) fn split(reference: &str) -> (&str, Option<&str>) {
    let name = reference.split('@').next().unwrap_or(reference);
    match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (name, None),
    }
}

/// `name` with its registry in lower case, as subjects have it. Hosts have no case; repositories have lower case only.
pub(super) fn lower_host(name: &str) -> Cow<'_, str> {
    match name.split_once('/') {
        Some((host, path)) if host.bytes().any(|byte| byte.is_ascii_uppercase()) => {
            format!("{}/{path}", host.to_ascii_lowercase()).into()
        }
        _ => name.into(),
    }
}

/// Whether `text` is a full commit id, SHA-1 or SHA-256.
fn is_sha(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The most subjects of one event.
const MAX_SUBJECTS: usize = 1000;

/// How long a mapping may take.
const MAPPED_WITHIN: Duration = Duration::from_secs(5);

impl Mapping {
    /// The subjects that it makes of an event.
    pub(super) async fn subjects(&self, headers: &HeaderMap, body: &Value) -> Result<Vec<Subject>, String> {
        let is_open = |name: &HeaderName| name != header::AUTHORIZATION && name != header::COOKIE;
        let named = headers.iter().filter(|(name, _)| is_open(name));
        let headers: Map<String, Value> = named
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), Value::from(value.to_str().ok()?))))
            .collect();
        let variables = Variables::default().value("headers", Value::Object(headers)).value("body", body.clone());
        let result = if let Some(result) = variables.evaluate_small(&self.expression) {
            result
        } else {
            let deadline = Instant::now() + MAPPED_WITHIN;
            self.evaluator.evaluate(&self.expression, &variables, deadline).await.map_err(|error| error.to_string())
        };
        let result = result.map_err(|error| unmapped::why(&self.expression, &error))?;
        subjects_of(result)
    }
}

/// The subjects in the result of a mapping.
fn subjects_of(result: Value) -> Result<Vec<Subject>, String> {
    let items = match result {
        Value::Array(items) if items.len() <= MAX_SUBJECTS => items,
        Value::Array(_) => return Err(format!("the hook's `subjects` gives more than {MAX_SUBJECTS} items")),
        _ => return Err("the hook's `subjects` must give a list".to_owned()),
    };
    let mut subjects = Vec::new();
    for item in &items {
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        let before = subjects.len();
        subjects.extend(text("image").and_then(Subject::image));
        subjects.extend(text("commit").and_then(Subject::commit));
        subjects.extend(text("url").and_then(Subject::url));
        let parameters = item.get("parameters").and_then(Value::as_object);
        if text("route").is_some() || parameters.is_some() {
            let (route, parameters) = (text("route").map(str::to_owned), parameters.cloned().unwrap_or_default());
            subjects.push(Subject::Questions(Selector { route, parameters, ..Selector::default() }));
        }
        if subjects.len() == before {
            return Err(
                "an item of the hook's `subjects` has no valid `image`, `commit`, `url`, `route` or `parameters`"
                    .to_owned(),
            );
        }
    }
    Ok(subjects)
}

/// Subjects of many events, for finding the questions that they concern.
#[derive(Debug, Default)]
pub(crate) struct Subjects {
    /// The tags, by repository; `None`: all tags.
    images: HashMap<String, HashSet<Option<String>>>,
    commits: HashSet<String>,
    urls: HashSet<String>,
    selectors: Vec<Selector>,
}

impl Subjects {
    /// Adds a subject.
    pub(crate) fn add(&mut self, subject: Subject) {
        match subject {
            Subject::Image { repository, tag, .. } => drop(self.images.entry(repository).or_default().insert(tag)),
            Subject::Commit(sha) => drop(self.commits.insert(sha)),
            Subject::Url(url) => drop(self.urls.insert(url)),
            Subject::Questions(selector) if !self.selectors.contains(&selector) => self.selectors.push(selector),
            Subject::Questions(_) => {}
        }
    }

    /// Whether one of them concerns a question with these `parameters` (JSON), about which `evidence` was found. `open` gives the question.
    pub(crate) fn concern(&self, parameters: &str, evidence: &[Evidence], open: impl FnOnce() -> Question) -> bool {
        let is_named = |text: &str| words(text).any(|word| self.names(word));
        if is_named(parameters) || evidence.iter().any(|each| is_named(&each.asked) || self.reads(&each.asked)) {
            return true;
        }
        if self.selectors.is_empty() {
            return false;
        }
        let question = open();
        self.selectors.iter().any(|selector| selector.selects(&question))
    }

    /// Whether `asked` is a request for one of the URLs, or for something below it.
    fn reads(&self, asked: &str) -> bool {
        if self.urls.is_empty() {
            return false;
        }
        let Some(url) = asked.split_ascii_whitespace().find(|word| word.contains("://")) else { return false };
        let url = url.trim_end_matches([',', ':', '/']);
        let ends = url.match_indices('/').map(|(at, _)| at).chain([url.len()]);
        ends.into_iter().any(|end| self.urls.contains(&url[..end]))
    }

    /// How many subjects there are.
    pub(crate) fn len(&self) -> usize {
        let tags: usize = self.images.values().map(HashSet::len).sum();
        tags + self.commits.len() + self.urls.len() + self.selectors.len()
    }

    /// Adds all subjects of `other`.
    pub(crate) fn extend(&mut self, other: &Self) {
        for (repository, tags) in &other.images {
            self.images.entry(repository.clone()).or_default().extend(tags.iter().cloned());
        }
        self.commits.extend(other.commits.iter().cloned());
        self.urls.extend(other.urls.iter().cloned());
        let is_new = |selector: &&Selector| !self.selectors.contains(selector);
        let new: Vec<Selector> = other.selectors.iter().filter(is_new).cloned().collect();
        self.selectors.extend(new);
    }

    /// Whether `word` is or has a commit or an image of an event.
    fn names(&self, word: &str) -> bool {
        if !self.commits.is_empty() {
            let mut parts = word.split(|c: char| !c.is_ascii_alphanumeric());
            if parts.any(|part| is_sha(part) && self.commits.contains(&part.to_ascii_lowercase())) {
                return true;
            }
        }
        if self.images.is_empty() || !word.contains('/') {
            return false;
        }
        let (name, tag) = split(word);
        let Some(tags) = self.images.get(&*lower_host(name)) else { return false };
        tag.is_none_or(|tag| tags.contains(&None) || tags.iter().flatten().any(|pushed| pushed == tag))
    }
}

/// The words of a text that may be an image reference, an URL or a commit.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '@')))
        .map(|word| word.trim_end_matches(['.', ':']))
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concerns(subject: &str, text: &str) -> bool {
        let mut subjects = Subjects::default();
        subjects.add(Subject::commit(subject).or_else(|| Subject::image(subject)).unwrap());
        subjects.concern("{}", &[Evidence::present(text, "")], || unreachable!("there is no selector"))
    }

    #[test]
    fn an_image_concerns_who_asked_for_it() {
        for (pushed, asked, is_meant) in [
            ("ghcr.io/org/app:main", "the manifest of ghcr.io/org/app:main", true),
            ("GHCR.io/Org/App:main", "the manifest of ghcr.io/org/app:main", true),
            ("ghcr.io/org/app:Main", "the manifest of ghcr.io/org/app:main", false),
            ("ghcr.io/org/app:main@sha256:11", "the manifest of ghcr.io/org/app:main", true),
            ("ghcr.io/org/app", "the manifest of ghcr.io/org/app:main", true),
            ("ghcr.io/org/app@sha256:11", "the manifest of ghcr.io/org/app:main", true),
            ("ghcr.io/org/app:main", "the tags of ghcr.io/org/app", true),
            ("ghcr.io/org/app:other", "the manifest of ghcr.io/org/app:main", false),
            ("ghcr.io/org/ap:main", "the manifest of ghcr.io/org/app:main", false),
            ("org/app:main", "the manifest of ghcr.io/org/app:main", false),
            ("nginx:1", "the manifest of docker.io/library/nginx:1", true),
            ("ghcr.io/org/app:main", "the manifest of GHCR.io/org/app:main", true),
            ("GHCR.io/org/app:main", "the tags of Ghcr.IO/org/app", true),
            ("ghcr.io/org/app:main", "the manifest of GHCR.io/org/app:Main", false),
            ("localhost:5000/org/app:main", "the manifest of localhost:5000/org/app:main", true),
        ] {
            assert_eq!(concerns(pushed, asked), is_meant, "{pushed}, {asked}");
        }
    }

    #[test]
    fn a_url_concerns_who_reads_it_or_something_below_it() {
        for (changed, asked, is_meant) in [
            ("https://inventory.example.com/v1/tenants?x=1", "GET https://inventory.example.com/v1/tenants", true),
            ("https://inventory.example.com/v1/tenants", "GET https://inventory.example.com/v1/tenants, 3 pages", true),
            ("https://inventory.example.com/v1", "POST https://inventory.example.com/v1/tenants/7", true),
            ("https://inventory.example.com", "GET https://inventory.example.com/v1/tenants", true),
            ("https://inventory.example.com/v1/ten", "GET https://inventory.example.com/v1/tenants", false),
            ("http://inventory.example.com/v1/tenants", "GET https://inventory.example.com/v1/tenants", false),
        ] {
            let mut subjects = Subjects::default();
            subjects.add(Subject::url(changed).unwrap());
            let evidence = [Evidence::present(asked, "200")];
            assert_eq!(subjects.concern("{}", &evidence, || unreachable!()), is_meant, "{changed}, {asked}");
        }
        assert_eq!(Subject::url("ftp://h/x"), None);
        assert_eq!(Subject::url("x"), None);
    }

    #[test]
    fn a_commit_concerns_who_names_it() {
        let sha = "0123456789abcdef0123456789abcdef01234567";
        assert!(concerns(sha, &format!("GET https://api.github.com/repos/o/r/commits/{sha}/check-runs")));
        assert!(concerns(&sha.to_uppercase(), &format!("the manifest of ghcr.io/org/app:{sha}")));
        assert!(!concerns(sha, &format!("GET https://api.github.com/repos/o/r/commits/{sha}0/check-runs")));
        let mut subjects = Subjects::default();
        subjects.add(Subject::Commit(sha.to_owned()));
        assert!(subjects.concern(&format!(r#"{{"head_sha":"{sha}"}}"#), &[], || unreachable!()));
        for none in [&"0".repeat(40), &sha[..39], "main", ""] {
            assert_eq!(Subject::commit(none), None, "{none}");
        }
    }
}

//! The subject of an event: images, commits, or questions that a mapping names.

use std::{borrow::Cow, time::Duration};

use http::{HeaderMap, HeaderName, header};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{Mapping, error::EventError, unmapped};
use domain::generator::Selector;
use lang::evaluator::Variables;
use oci::{Digest, Reference};

/// The subject of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
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
    /// Documents that `http` backends read at a URL, and below it. It has no query.
    Url(String),
    /// The questions that this selects.
    Questions(Selector),
}

impl Subject {
    /// The image `reference`; without a host it is on Docker Hub. Registries and repositories have lower case; senders do not always keep to that.
    pub fn image(reference: &str) -> Option<Self> {
        let (name, tag) = split(reference);
        let digest = reference.split_once('@').and_then(|(_, digest)| Digest::parse(digest).ok());
        let host =
            name.split_once('/').map(|(host, _)| host).filter(|host| host.contains(['.', ':']) || *host == "localhost");
        let registry = if host.is_some() { "" } else { "docker.io/" };
        let written = format!("{registry}{}:{}", name.to_ascii_lowercase(), tag.unwrap_or("x"));
        let reference = Reference::parse(&written).ok().filter(|_| written.len() <= MAX_BYTES)?;
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

    /// The same, as an event without a digest names it.
    #[must_use]
    pub fn without_digest(self) -> Self {
        match self {
            Self::Image { repository, tag, .. } => Self::Image { repository, tag, digest: None },
            other => other,
        }
    }

    /// Whether it is one tag of an image.
    pub(super) const fn has_tag(&self) -> bool {
        matches!(self, Self::Image { tag: Some(_), .. })
    }

    /// The documents at `url`. Its query is left out.
    pub(super) fn url(url: &str) -> Option<Self> {
        let url = url::Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        if url.as_str().len() > MAX_BYTES {
            return None;
        }
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
pub(super) fn is_sha(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The largest subject, in bytes. Thousands of them may wait.
const MAX_BYTES: usize = 2048;
/// The most subjects of one event.
const MAX_SUBJECTS: usize = 1000;

/// How long a mapping may take.
const MAPPED_WITHIN: Duration = Duration::from_secs(5);

impl Mapping {
    /// The subjects that it makes of an event.
    pub(super) async fn subjects(&self, headers: &HeaderMap, body: &Value) -> Result<Vec<Subject>, EventError> {
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
        let result = result.map_err(|error| EventError::Unmapped(unmapped::why(&self.expression, &error)))?;
        subjects_of(result)
    }
}

/// The subjects in the result of a mapping.
fn subjects_of(result: Value) -> Result<Vec<Subject>, EventError> {
    let items = match result {
        Value::Array(items) if items.len() <= MAX_SUBJECTS => items,
        Value::Array(_) => return Err(EventError::TooMany(MAX_SUBJECTS)),
        _ => return Err(EventError::NoList),
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
            if item.to_string().len() > MAX_BYTES {
                return Err(EventError::TooLarge(MAX_BYTES));
            }
            subjects.push(Subject::Questions(Selector { route, parameters, ..Selector::default() }));
        }
        if subjects.len() == before {
            return Err(EventError::NoSubject);
        }
    }
    Ok(subjects)
}

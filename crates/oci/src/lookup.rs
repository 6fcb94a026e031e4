//! The lookup of a tag: a digest, *missing*, or *unknown*. These are three separate results (invariant I2).

use http::{HeaderValue, Method, header};
use serde_json::Value;

use super::{
    Digest, Reference,
    manifest::{self, Manifest},
    registry::{Confirm404, Registry, RegistryRequest},
};
use domain::{
    document::{self, excerpt},
    error::{BackendError, ErrorKind},
};
use outbound::Reply;

const DIGEST: &str = "docker-content-digest";

/// The result for a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// A manifest.
    There(Target),
    /// There is provably no manifest.
    Missing(Missing),
}

/// The manifest of a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its digest.
    pub digest: Digest,
    /// Its media type, by the registry.
    pub media_type: String,
}

/// The missing part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The tag. Its repository may be missing too: some registries, such as the distribution project's, use the same words for
    /// both.
    Tag,
    /// The whole repository, for instance if its name is misspelt.
    Repository,
    /// The tag, by a 403 that the configuration takes for a missing tag.
    Denied,
}

impl Missing {
    /// The evidence in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tag => "404, the registry has no such tag or no such repository",
            Self::Repository => "404, the registry has no such repository; is its name right?",
            Self::Denied => "403, which `deniedMeansMissing` takes for a missing tag",
        }
    }
}

impl Registry {
    /// Sends a `HEAD`, and with a `GET` if that does not suffice: `Docker-Content-Digest` is only a SHOULD in the
    /// distribution specification 1.1, and the 404 to a `HEAD` has no body that shows who sent it. Also returns the manifest if
    /// it was fetched.
    ///
    /// # Errors
    /// When the registry returns no clear answer by `deadline`.
    pub(super) async fn look_up(
        &self,
        reference: &Reference,
        deadline: tokio::time::Instant,
    ) -> Result<Lookup, BackendError> {
        let path = format!("manifests/{}", reference.selector());
        let request = RegistryRequest {
            method: Method::HEAD,
            repository: &reference.repository,
            path: &path,
            query: None,
            url: None,
        };
        let head = self.fetch(&request, deadline).await?;
        match head.status.as_u16() {
            200 => {
                if let Some(value) = head.headers.get(DIGEST) {
                    let target = Target { digest: parse_digest(value)?, media_type: content_type(&head) };
                    check_pin(reference, &target)?;
                    return Ok(Lookup::There(target));
                }
            }
            404 if self.rules.confirm_404 == Confirm404::Head
                && head.headers.contains_key("docker-distribution-api-version") =>
            {
                return Ok(Lookup::Missing(Missing::Tag));
            }
            // 405 and 501: the registry does not support `HEAD`.
            404 | 405 | 501 => {}
            403 if self.rules.denied_means_missing && head.retry_after.is_none() => {}
            _ => return Err(head.refusal()),
        }
        if self.is_low(&reference.repository).await {
            let why = "little is left of what it allows, so that only its `HEAD`s are accepted until it allows more";
            return Err(BackendError::new(ErrorKind::Throttled { retry_after: None }, why));
        }
        let reply = self.fetch(&RegistryRequest { method: Method::GET, ..request }, deadline).await?;
        match reply.status.as_u16() {
            200 => {
                let (target, _) = verified_manifest(&reply)?;
                check_pin(reference, &target)?;
                Ok(Lookup::There(target))
            }
            404 => missing(&reply).map(Lookup::Missing),
            403 if self.rules.denied_means_missing && reply.retry_after.is_none() && !errors(&reply).is_empty() => {
                Ok(Lookup::Missing(Missing::Denied))
            }
            _ => Err(reply.refusal()),
        }
    }
}

/// Refuses a digest other than the one that pins `reference`.
fn check_pin(reference: &Reference, target: &Target) -> Result<(), BackendError> {
    match &reference.digest {
        Some(pinned) if *pinned != target.digest => {
            let why = format!("it answered {} to a request for {pinned}", target.digest);
            Err(BackendError::invalid_output(why))
        }
        _ => Ok(()),
    }
}

/// The part that is missing after a 404, by the error body of the distribution specification 1.1, "Error Codes". `NOT_FOUND` is Harbor's
/// code. A mere 404 proves nothing: proxies send it too.
///
/// # Errors
/// When the body says anything else, or nothing.
pub fn missing(reply: &Reply) -> Result<Missing, BackendError> {
    let errors = errors(reply);
    let is = |error: &Value, codes: &[&str]| error["code"].as_str().is_some_and(|code| codes.contains(&code));
    if errors.is_empty() || !errors.iter().all(|error| is(error, &["MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND"])) {
        return Err(BackendError::invalid_output(
            "404 Not Found, but not in the words of a registry that has no such repository or tag, so it proves nothing; \
             is a proxy in front of it?",
        ));
    }
    let has_no_name = errors.iter().any(|error| is(error, &["NAME_UNKNOWN"]));
    Ok(if has_no_name { Missing::Repository } else { Missing::Tag })
}

/// The errors in the body of a refusal. None if it has another form, such as a proxy's page.
fn errors(reply: &Reply) -> Vec<Value> {
    match document::parse(&reply.body).ok().as_mut().and_then(|body| body.get_mut("errors")).map(Value::take) {
        Some(Value::Array(errors)) => errors,
        _ => Vec::new(),
    }
}

/// A whole manifest. A sign-in page or a cut body is refused.
pub(super) fn verified_manifest(reply: &Reply) -> Result<(Target, Manifest), BackendError> {
    let wrong = |why: String| BackendError::invalid_output(format!("it answered {}, but {why}", reply.status));
    let media_type = content_type(reply);
    if !manifest::is_manifest(&media_type) {
        let shown = excerpt(media_type.as_bytes(), 80);
        return Err(wrong(format!("`{shown}` is not a manifest's content type: {}", reply.excerpt(120))));
    }
    let parsed = Manifest::parse(&reply.body).map_err(|error| wrong(error.into()))?;
    let digest = Digest::of(&reply.body);
    match reply.headers.get(DIGEST).map(parse_digest).transpose()? {
        Some(claimed) if claimed != digest => {
            Err(wrong(format!("the body's digest is {digest}, not the {claimed} of its header")))
        }
        _ => Ok((Target { digest, media_type }, parsed)),
    }
}

/// The media type of a body, as its header says.
pub(super) fn content_type(reply: &Reply) -> String {
    let value = reply.headers.get(header::CONTENT_TYPE).map_or_else(Default::default, HeaderValue::as_bytes);
    String::from_utf8_lossy(value).split(';').next().unwrap_or_default().trim().to_owned()
}

fn parse_digest(value: &HeaderValue) -> Result<Digest, BackendError> {
    if let Some(digest) = value.to_str().ok().and_then(|text| Digest::parse(text).ok()) {
        return Ok(digest);
    }
    let text = excerpt(value.as_bytes(), 200);
    Digest::parse(&text).map_err(|error| BackendError::invalid_output(format!("Docker-Content-Digest: {error}")))
}

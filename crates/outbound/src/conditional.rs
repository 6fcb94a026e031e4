//! Conditional requests. Answers are kept with their `ETag` or `Last-Modified`, so that a server can answer 304. A 304 is
//! short, and often does not count against a rate limit.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use headers::{CacheControl, Date, HeaderMapExt as _, LastModified};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use sha2::{Digest as _, Sha256};

use super::{Call, Reply};
use domain::{bounded_cache::Recent, error::BackendError};

/// The largest size of all kept answers together, in bytes.
const MAX_CACHE_BYTES: usize = 32 * 1024 * 1024;
/// The size of an entry without its headers and body, in bytes.
const OVERHEAD: usize = 512;
/// An answer without an `ETag` is kept only if it was made at least this long after its `Last-Modified`.
const SETTLED: Duration = Duration::from_secs(2);
/// The largest `ETag`, in bytes. Answers with a longer one are not kept.
const MAX_TAG_BYTES: usize = 1024;

/// The kept answers.
#[derive(Debug)]
pub(crate) struct ConditionalCache(Recent<RequestKey, Arc<Answer>>);

/// A hash of the URL, the account and all headers, except credentials that the account stands for.
type RequestKey = [u8; 32];

#[derive(Debug)]
struct Answer {
    validator: Validator,
    headers: HeaderMap,
    body: Bytes,
}

/// Distinguishes the versions of an answer.
#[derive(Debug, Clone)]
enum Validator {
    /// `ETag`
    Tag(HeaderValue),
    /// `Last-Modified`
    Date(HeaderValue),
}

/// A conditional request, and the answer that is kept for it.
#[derive(Debug)]
pub(crate) struct ConditionalRequest {
    key: RequestKey,
    answer: Option<Arc<Answer>>,
}

impl Default for ConditionalCache {
    fn default() -> Self {
        let weigh = |_: &RequestKey, answer: &Arc<Answer>| {
            let headers: usize = answer.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
            answer.body.len() + headers + OVERHEAD
        };
        Self(Recent::weighed(MAX_CACHE_BYTES, weigh))
    }
}

impl ConditionalCache {
    /// Makes `call` conditional if an answer is kept for it and `account`.
    pub(crate) fn prepare(&self, call: &mut Call, account: &str) -> Option<ConditionalRequest> {
        let has_own = [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::RANGE]
            .iter()
            .any(|name| call.headers.contains_key(name));
        if !call.revalidate || call.method != Method::GET || has_own {
            return None;
        }
        let key = request_key(call, account);
        let answer = self.0.get(&key).filter(|answer| answer.body.len() <= call.max_bytes);
        match answer.as_ref().map(|answer| &answer.validator) {
            Some(Validator::Tag(tag)) => _ = call.headers.insert(header::IF_NONE_MATCH, tag.clone()),
            Some(Validator::Date(date)) => _ = call.headers.insert(header::IF_MODIFIED_SINCE, date.clone()),
            None => {}
        }
        Some(ConditionalRequest { key, answer })
    }

    /// Keeps `reply`. A 304 is replaced by the kept answer.
    ///
    /// # Errors
    /// When a 304 is about another version than the kept answer.
    pub(crate) fn complete(&self, request: &ConditionalRequest, mut reply: Reply) -> Result<Reply, BackendError> {
        if let (StatusCode::NOT_MODIFIED, Some(answer)) = (reply.status, &request.answer) {
            let is_other = match &answer.validator {
                Validator::Tag(known) => {
                    reply.headers.get(header::ETAG).is_some_and(|tag| opaque(tag) != opaque(known))
                }
                // A server may answer 304 even if the file is now older, for instance after a restore from a backup.
                Validator::Date(known) => reply.headers.get(header::LAST_MODIFIED).is_some_and(|date| date != known),
            };
            if is_other {
                self.0.remove(&request.key);
                return Err(BackendError::invalid_output(
                    "304 Not Modified, but for another version than the requested one",
                ));
            }
            // RFC 9111, section 3.2: newer headers replace older ones, except those that describe the body. A header such as
            // `Link` may have several lines, and all of them count.
            let mut headers = answer.headers.clone();
            let is_of_body =
                |name: &HeaderName| name.as_str().starts_with("content-") || name == header::TRANSFER_ENCODING;
            for name in reply.headers.keys().filter(|name| !is_of_body(name)) {
                headers.remove(name);
                for value in reply.headers.get_all(name) {
                    headers.append(name, value.clone());
                }
            }
            reply.status = StatusCode::OK;
            reply.headers = headers;
            reply.body = answer.body.clone();
        } else if reply.status == StatusCode::OK {
            match validator(&reply.headers).filter(|_| may_be_kept(&reply.headers)) {
                Some(validator) => {
                    let (headers, body) = (reply.headers.clone(), reply.body.clone());
                    self.0.insert(request.key, Arc::new(Answer { validator, headers, body }));
                }
                None if request.answer.is_some() => _ = self.0.remove(&request.key),
                None => {}
            }
        }
        Ok(reply)
    }
}

fn request_key(call: &Call, account: &str) -> RequestKey {
    let mut hash = Sha256::new();
    // A new token of the same account gets the same answers. Other secrets may change the answer.
    let headers = call.headers.iter().filter(|(name, _)| *name != header::AUTHORIZATION);
    let headers = headers.flat_map(|(name, value)| [name.as_str().as_bytes(), value.as_bytes()]);
    for part in [call.url.as_str().as_bytes(), account.as_bytes()].into_iter().chain(headers) {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// The `ETag` of an answer, else its `Last-Modified`. Times have a resolution of one second. So an answer that was made in the
/// second of its last change may have changed again in that second (RFC 9110, section 8.8.2.2).
fn validator(headers: &HeaderMap) -> Option<Validator> {
    if let Some(tag) = headers.get(header::ETAG) {
        return (tag.len() <= MAX_TAG_BYTES).then(|| Validator::Tag(tag.clone()));
    }
    let (changed, made) = (headers.typed_get::<LastModified>()?, headers.typed_get::<Date>()?);
    let age = SystemTime::from(made).duration_since(changed.into()).ok()?;
    (age >= SETTLED).then(|| headers.get(header::LAST_MODIFIED).cloned().map(Validator::Date))?
}

fn may_be_kept(headers: &HeaderMap) -> bool {
    let forbids = headers.typed_get::<CacheControl>().is_some_and(|control| control.no_store());
    let varies = headers.get_all(header::VARY).iter().any(|vary| vary.as_bytes().contains(&b'*'));
    !forbids && !varies
}

/// A tag without the mark `W/` of weak tags. A 304 may have added or dropped that mark (RFC 9110, section 8.8.3.2).
fn opaque(tag: &HeaderValue) -> &[u8] {
    tag.as_bytes().strip_prefix(b"W/").unwrap_or_else(|| tag.as_bytes())
}

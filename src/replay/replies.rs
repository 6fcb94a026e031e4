//! The replies of a case, in place of its sources.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header::CONTENT_TYPE};
use parking_lot::Mutex;
use serde_json::Value;
use url::Url;

use super::{case::ReplyConfig, secrets::redact_text};
use domain::{
    error::{BackendError, ErrorKind},
    generator::ParameterSet,
    replay::{HttpFault, HttpReply, Sources},
    secret::{REDACTED, REDACTED_IN_URL, Secrets},
};

/// The replies of a case.
#[derive(Debug, Default)]
pub(crate) struct Replies(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The replies, those of later steps first.
    known: Vec<Known>,
    /// Requests without a reply.
    missing: Vec<String>,
    /// All requests that were made.
    requests: Vec<String>,
}

#[derive(Debug)]
struct Known {
    /// The number of its step.
    step: usize,
    /// The request or the script, as a case names it.
    name: String,
    reply: Arc<ReplyConfig>,
    is_used: bool,
}

impl Replies {
    /// Adds the replies of a step, before those of earlier steps.
    pub(crate) fn add(&self, replies: &[ReplyConfig]) {
        let mut state = self.0.lock();
        let step = state.known.first().map_or(0, |known| known.step + 1);
        let added = replies.iter().filter_map(|reply| {
            let name = reply.request.as_deref().map(normal).or_else(|| reply.script.clone())?;
            Some(Known { step, name, reply: Arc::new(reply.clone()), is_used: false })
        });
        let added: Vec<Known> = added.collect();
        state.known.splice(0..0, added);
    }

    /// The requests without a reply since the last time, each with the nearest request that has one.
    pub(crate) fn take_missing(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().missing)
    }

    /// The replies that no request used, each with the nearest request that was made.
    pub(crate) fn unused(&self) -> Vec<String> {
        let state = self.0.lock();
        let unused = state.known.iter().filter(|known| !known.is_used).map(|known| {
            let name = &known.name;
            let nearest = nearest(name, state.requests.iter().map(String::as_str));
            let nearest =
                nearest.map_or_else(|| "there was no request".to_owned(), |near| format!("the nearest is `{near}`"));
            format!("no request used the reply to `{name}`; {nearest}")
        });
        unused.collect()
    }

    /// The first reply to `request`, a request or a script. Replies with the same name in one step are used one after the other.
    fn find(&self, request: &str, is_meant: impl Fn(&ReplyConfig) -> bool) -> Option<Arc<ReplyConfig>> {
        let mut state = self.0.lock();
        if !state.requests.iter().any(|known| known == request) {
            state.requests.push(request.to_owned());
        }
        let first = state.known.iter().position(|known| is_meant(&known.reply) && fits(&known.name, request))?;
        let (step, name) = (state.known[first].step, state.known[first].name.clone());
        let mut alike = state.known.iter_mut().filter(|known| known.step == step && known.name == name);
        let last = alike.next_back()?;
        let known = alike.find(|known| !known.is_used).unwrap_or(last);
        known.is_used = true;
        Some(Arc::clone(&known.reply))
    }

    fn miss(&self, request: &str) -> String {
        let mut state = self.0.lock();
        let known = state.known.iter().filter(|known| known.reply.request.is_some()).map(|known| &*known.name);
        let nearest = nearest(request, known).map(|near| format!("; the nearest is `{near}`")).unwrap_or_default();
        let message = format!("the case has no reply to `{request}`{nearest}");
        if !state.missing.contains(&message) {
            state.missing.push(message.clone());
        }
        message
    }
}

impl Sources for Replies {
    fn is_offline(&self) -> bool {
        true
    }

    fn reply(&self, method: &Method, url: &Url) -> Option<Result<HttpReply, HttpFault>> {
        let request = request_text(method, url).replace(REDACTED_IN_URL, REDACTED);
        let Some(reply) = self.find(&request, |reply| reply.request.is_some()) else {
            return Some(Err(HttpFault::Missing(self.miss(&request))));
        };
        Some(match reply.fails.as_deref() {
            None => Ok(http_reply(&reply)),
            Some("connect") => Err(HttpFault::Connect),
            Some("timeout") => Err(HttpFault::Timeout),
            Some(_) => Err(HttpFault::Broken),
        })
    }

    fn note_reply(&self, _: &Method, _: &Url, _: Result<HttpReply, HttpFault>, _: &Secrets) {}

    fn list(&self, command: &str) -> Option<Result<Vec<ParameterSet>, BackendError>> {
        let command = &redact_text(command, "", &Secrets::default());
        let reply = self.find(command, |reply| reply.script.is_some())?;
        Some(match &reply.fails {
            Some(why) => Err(BackendError::new(reply.kind.map_or(ErrorKind::Unavailable, Into::into), why)),
            None => Ok(reply.items.iter().flatten().cloned().map(ParameterSet).collect()),
        })
    }

    fn note_list(&self, _: &str, _: Result<&[ParameterSet], &BackendError>) {}
}

/// A request as files of cases name it.
pub(crate) fn request_text(method: &Method, url: &Url) -> String {
    redact_text(&format!("{method} {url}"), "", &Secrets::default())
}

/// The header of a reply.
///
/// # Errors
/// When no HTTP reply can have it.
pub(crate) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed = HeaderName::try_from(name).map_err(|_| "it is not the name of a header".to_owned())?;
    let value = HeaderValue::try_from(value).map_err(|_| "it holds characters that no header can carry".to_owned())?;
    Ok((parsed, value))
}

/// A request of a file in the form in which requests are made.
fn normal(request: &str) -> String {
    let Some((method, url)) = request.split_once(' ') else { return request.to_owned() };
    let method = method.to_ascii_uppercase();
    let normal = match Url::parse(url) {
        Ok(parsed) if !url.contains('*') => format!("{method} {parsed}"),
        _ => format!("{method} {url}"),
    };
    normal.replace(REDACTED_IN_URL, REDACTED)
}

fn http_reply(reply: &ReplyConfig) -> HttpReply {
    let mut headers = HeaderMap::new();
    let (body, is_json) = match &reply.body {
        None => (Bytes::new(), false),
        // Nobody wants JSON of an unknown type.
        Some(Value::String(text)) => (Bytes::from(text.clone()), text.starts_with(['{', '['])),
        Some(value) => (Bytes::from(value.to_string()), true),
    };
    if is_json {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    // Those of a file were checked when it was read.
    for (name, value) in reply.headers.iter().filter_map(|(name, value)| header(name, value).ok()) {
        headers.insert(name, value);
    }
    let status = reply.status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::OK);
    HttpReply { status, headers, body }
}

/// Whether `text` fits `pattern`, in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(begin) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut text) = text.strip_suffix(end) else { return false };
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    true
}

fn nearest<'a>(request: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known.min_by_key(|name| strsim::levenshtein(name, request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, expected) in [
            ("GET https://a/b", "GET https://a/b", true),
            ("GET https://a/b", "GET https://a/bc", false),
            ("* https://a/*", "GET https://a/b?c=d", true),
            ("GET https://a/*/c", "GET https://a/b/c", true),
            ("GET https://a/*/c", "GET https://a/b/d", false),
            ("*a*b*", "xaxbx", true),
            ("*a*b*", "xbxax", false),
            ("GET *b*b", "GET b", false),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }
}

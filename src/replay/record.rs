//! Writes a case: asks the live sources once, and notes their replies, without secrets.

use std::{collections::BTreeSet, fmt::Write as _, sync::LazyLock};

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use regex::Regex;
use serde_json::{Map, Value, json};
use url::Url;

use super::{
    ask::Answered,
    replies::request_text,
    secrets::{redact, redact_answer, redact_text},
    update::{expected_lines, json_line},
};
use domain::{
    clock::Timestamp,
    document,
    error::BackendError,
    generator::{ParameterSet, Parameters},
    replay::{HttpFault, HttpReply, Sources},
    secret::Secrets,
};

/// The headers that the gateway reads by itself. Others are recorded only if an expression of the configuration reads them.
const HEADERS: [&str; 25] = [
    "age",
    "cache-control",
    "content-type",
    "docker-content-digest",
    "docker-distribution-api-version",
    "etag",
    "last-modified",
    "link",
    "location",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "retry-after",
    "vary",
    "www-authenticate",
    "x-github-request-id",
    "x-next-page",
    "x-page",
    "x-per-page",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-total",
    "x-total-count",
    "x-total-pages",
];

/// Records the replies of sources.
#[derive(Debug)]
pub(crate) struct Recorder {
    noted: Mutex<Vec<Noted>>,
    /// The headers that expressions read, in lower case.
    read: BTreeSet<String>,
}

#[derive(Debug)]
enum Noted {
    Reply { request: String, reply: Result<HttpReply, HttpFault>, secrets: Secrets },
    List(String, Result<Vec<ParameterSet>, BackendError>),
}

impl Sources for Recorder {
    fn is_offline(&self) -> bool {
        false
    }

    fn reply(&self, _method: &Method, _url: &Url) -> Option<Result<HttpReply, HttpFault>> {
        None
    }

    fn note_reply(&self, method: &Method, url: &Url, reply: Result<HttpReply, HttpFault>, secrets: &Secrets) {
        let request = secrets.redact(&request_text(method, url));
        self.noted.lock().push(Noted::Reply { request, reply, secrets: secrets.clone() });
    }

    fn list(&self, _command: &str) -> Option<Result<Vec<ParameterSet>, BackendError>> {
        None
    }

    fn note_list(&self, command: &str, list: Result<&[ParameterSet], &BackendError>) {
        let list = list.map(<[_]>::to_vec).map_err(Clone::clone);
        self.noted.lock().push(Noted::List(command.to_owned(), list));
    }
}

/// The question of a recorded case.
#[derive(Debug)]
pub(crate) struct Recorded<'a> {
    /// The name of the case.
    pub(crate) name: &'a str,
    /// The route, if one was named.
    pub(crate) route: Option<&'a str>,
    /// The ApplicationSet.
    pub(crate) application_set: &'a str,
    /// `input.parameters`.
    pub(crate) parameters: &'a Parameters,
    /// When it was sent.
    pub(crate) now: Timestamp,
    /// The answer.
    pub(crate) answer: &'a Answered,
}

impl Recorder {
    /// A recorder for `routes`, the values of a configuration.
    pub(crate) fn new<'a>(routes: impl Iterator<Item = &'a Value>) -> Self {
        let mut read = BTreeSet::new();
        routes.for_each(|values| headers_in(values, &mut read));
        Self { noted: Mutex::default(), read }
    }

    /// The case as an item of `cases` in YAML. `secrets` are taken out, and those of all requests.
    ///
    /// # Errors
    /// When a reply cannot be written, since it is not text.
    pub(crate) fn write(&self, of: &Recorded<'_>, secrets: &Secrets) -> anyhow::Result<String> {
        let noted = self.noted.lock();
        let of_requests = noted.iter().filter_map(|noted| match noted {
            Noted::Reply { secrets, .. } => Some(secrets),
            Noted::List(..) => None,
        });
        let mut all = secrets.clone();
        of_requests.for_each(|more| all.extend(more.clone()));
        let secrets = &all;
        let mut text = format!("  - name: {}\n", json_line(&json!(redact_text(of.name, "", secrets))));
        if let Some(route) = of.route {
            let _ = writeln!(text, "    route: {}", json_line(&json!(route)));
        }
        if !of.application_set.is_empty() {
            let _ = writeln!(
                text,
                "    applicationSet: {}",
                json_line(&json!(redact_text(of.application_set, "", secrets)))
            );
        }
        if !of.parameters.is_empty() {
            let parameters = redact(Value::Object(of.parameters.clone()), "", secrets);
            let _ = writeln!(text, "    parameters: {}", json_line(&parameters));
        }
        let _ = writeln!(text, "    now: {}", of.now.to_date());
        if !noted.is_empty() {
            text.push_str("    replies:\n");
        }
        for noted in noted.iter() {
            match noted {
                Noted::Reply { request, reply, .. } => {
                    let _ = writeln!(text, "      - request: {}", json_line(&json!(redact_text(request, "", secrets))));
                    match reply {
                        Ok(reply) => write_reply(
                            &mut text,
                            request,
                            self.recorded_headers(&reply.headers, secrets),
                            reply,
                            secrets,
                        )?,
                        Err(fault) => text.push_str(fault_line(fault)),
                    }
                }
                Noted::List(command, list) => write_list(&mut text, command, list, secrets),
            }
        }
        for line in expected_lines(&redact_answer(of.answer.clone(), secrets), None) {
            let _ = writeln!(text, "    {line}");
        }
        Ok(text)
    }

    fn recorded_headers(&self, headers: &HeaderMap, secrets: &Secrets) -> Map<String, Value> {
        let names = headers.keys().map(http::HeaderName::as_str);
        let names = names.filter(|name| HEADERS.contains(name) || self.read.contains(*name));
        let recorded = names.filter_map(|name| {
            let values: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
            (!values.is_empty()).then(|| (name.to_owned(), redact_text(&values.join(", "), name, secrets).into()))
        });
        recorded.collect()
    }
}

const fn fault_line(fault: &HttpFault) -> &'static str {
    match fault {
        HttpFault::Connect | HttpFault::Missing(_) => "        fails: connect\n",
        HttpFault::Timeout => "        fails: timeout\n",
        HttpFault::Broken => "        fails: broken\n",
    }
}

fn write_reply(
    text: &mut String,
    request: &str,
    mut headers: Map<String, Value>,
    reply: &HttpReply,
    secrets: &Secrets,
) -> anyhow::Result<()> {
    if reply.status != http::StatusCode::OK {
        let _ = writeln!(text, "        status: {}", reply.status.as_u16());
    }
    let body = String::from_utf8(reply.body.to_vec())
        .map_err(|_| anyhow::anyhow!("the reply to `{request}` is not text, so it cannot be recorded"))?;
    // Digests are computed from the very bytes, so a body is written as a value only if that gives the same bytes.
    let written = document::read_back(body.as_bytes()).ok().map(|value| value.to_string());
    let is_exact = written.as_ref() == Some(&body) && !body.starts_with('"');
    if is_exact && headers.get("content-type") == Some(&json!("application/json")) {
        headers.remove("content-type");
    }
    if !headers.is_empty() {
        let _ = writeln!(text, "        headers: {}", json_line(&Value::Object(headers)));
    }
    let clean = redact_text(&body, "", secrets);
    let value = if is_exact { document::read_back(clean.as_bytes()).ok() } else { None };
    let body = value.unwrap_or_else(|| Value::from(clean));
    if body != json!("") {
        let _ = writeln!(text, "        body: {}", json_line(&body));
    }
    Ok(())
}

fn write_list(text: &mut String, command: &str, list: &Result<Vec<ParameterSet>, BackendError>, secrets: &Secrets) {
    let _ = writeln!(text, "      - script: {}", json_line(&json!(redact_text(command, "", secrets))));
    match list {
        Err(error) => {
            let _ = writeln!(text, "        fails: {}", json_line(&json!(redact_text(&error.message, "", secrets))));
            let _ = writeln!(text, "        kind: {}", error.kind.as_str());
        }
        Ok(items) if items.is_empty() => text.push_str("        items: []\n"),
        Ok(items) => {
            text.push_str("        items:\n");
            for item in items {
                let item = redact(Value::Object(item.0.clone()), "", secrets);
                let _ = writeln!(text, "          - {}", json_line(&item));
            }
        }
    }
}

/// Adds the headers that expressions in `values` read: `headers['x-cursor']`, `headers.etag` and `'x-cursor' in headers`.
fn headers_in(values: &Value, read: &mut BTreeSet<String>) {
    static READ: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r#"headers\s*(?:\[\s*['"]([\w-]+)['"]|\.([A-Za-z]\w*))|['"]([\w-]+)['"]\s+in\s+headers"#).ok()
    });
    match values {
        Value::String(text) => {
            for found in READ.iter().flat_map(|pattern| pattern.captures_iter(text)) {
                read.extend(found.iter().skip(1).flatten().map(|name| name.as_str().to_ascii_lowercase()));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| headers_in(item, read)),
        Value::Object(fields) => fields.values().for_each(|value| headers_in(value, read)),
        _ => {}
    }
}

//! Writes a case: asks the live sources once, and notes what they replied, without secrets.

use std::fmt::Write as _;

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use url::Url;

use super::{
    ask::Answered,
    replies::request_text,
    secrets::{redact, redact_text},
    update::{expected_lines, json_line},
};
use crate::domain::{
    clock::Timestamp,
    error::BackendError,
    generator::{ParameterSet, Parameters},
    replay::{HttpFault, HttpReply, Sources},
    secret::Secrets,
};

/// The headers that the gateway reads. Of the others, only those that begin with `x-` are recorded.
const HEADERS: [&str; 12] = [
    "age",
    "cache-control",
    "content-type",
    "docker-content-digest",
    "docker-distribution-api-version",
    "etag",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "vary",
    "www-authenticate",
];

/// Notes what sources reply.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Vec<Noted>>);

#[derive(Debug)]
enum Noted {
    Reply { asked: String, reply: Result<HttpReply, HttpFault>, secrets: Secrets },
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
        let asked = secrets.redact(&request_text(method, url));
        self.0.lock().push(Noted::Reply { asked, reply, secrets: secrets.clone() });
    }

    fn list(&self, _command: &str) -> Option<Result<Vec<ParameterSet>, BackendError>> {
        None
    }

    fn note_list(&self, command: &str, list: Result<&[ParameterSet], &BackendError>) {
        let list = list.map(<[_]>::to_vec).map_err(Clone::clone);
        self.0.lock().push(Noted::List(command.to_owned(), list));
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
    /// When it was asked.
    pub(crate) now: Timestamp,
    /// The answer.
    pub(crate) answer: &'a Answered,
}

impl Recorder {
    /// The case as an item of `cases` in YAML. `secrets` are taken out, and those of all requests.
    ///
    /// # Errors
    /// When a reply cannot be written, since it is not text.
    pub(crate) fn write(&self, of: &Recorded<'_>, secrets: &Secrets) -> anyhow::Result<String> {
        let noted = self.0.lock();
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
            let _ = writeln!(text, "    applicationSet: {}", json_line(&json!(of.application_set)));
        }
        if !of.parameters.is_empty() {
            let mut parameters = Value::Object(of.parameters.clone());
            redact(&mut parameters, "", secrets);
            let _ = writeln!(text, "    parameters: {}", json_line(&parameters));
        }
        let _ = writeln!(text, "    now: {}", of.now.to_date());
        if !noted.is_empty() {
            text.push_str("    replies:\n");
        }
        for noted in noted.iter() {
            match noted {
                Noted::Reply { asked, reply, .. } => {
                    let _ = writeln!(text, "      - request: {}", json_line(&json!(redact_text(asked, "", secrets))));
                    match reply {
                        Ok(reply) => write_reply(&mut text, asked, reply, secrets)?,
                        Err(fault) => text.push_str(fault_line(fault)),
                    }
                }
                Noted::List(command, list) => write_list(&mut text, command, list, secrets),
            }
        }
        for line in expected_lines(&redacted(of.answer, secrets), None) {
            let _ = writeln!(text, "    {line}");
        }
        Ok(text)
    }
}

/// The answer without `secrets`.
fn redacted(answer: &Answered, secrets: &Secrets) -> Answered {
    let mut answer = answer.clone();
    if let Answered::Sets { sets, .. } = &mut answer {
        sets.iter_mut().flatten().for_each(|(name, value)| redact(value, name, secrets));
    }
    answer
}

const fn fault_line(fault: &HttpFault) -> &'static str {
    match fault {
        HttpFault::Connect | HttpFault::Missing(_) => "        fails: connect\n",
        HttpFault::Timeout => "        fails: timeout\n",
        HttpFault::Broken => "        fails: broken\n",
    }
}

fn write_reply(text: &mut String, asked: &str, reply: &HttpReply, secrets: &Secrets) -> anyhow::Result<()> {
    if reply.status != http::StatusCode::OK {
        let _ = writeln!(text, "        status: {}", reply.status.as_u16());
    }
    let body = String::from_utf8(reply.body.to_vec())
        .map_err(|_| anyhow::anyhow!("the reply to `{asked}` is not text, so it cannot be recorded"))?;
    // Digests are computed from the very bytes, so a body is written as a value only if that gives the same bytes.
    let parsed = serde_json::from_str::<Value>(&body).ok();
    let is_exact = parsed.as_ref().map(Value::to_string).as_ref() == Some(&body) && !body.starts_with('"');
    let mut headers = recorded_headers(&reply.headers, secrets);
    if is_exact && headers.get("content-type") == Some(&json!("application/json")) {
        headers.remove("content-type");
    }
    if !headers.is_empty() {
        let _ = writeln!(text, "        headers: {}", json_line(&Value::Object(headers)));
    }
    let body = match parsed {
        Some(mut value) => {
            let before = value.clone();
            redact(&mut value, "", secrets);
            match (is_exact, value == before) {
                (true, _) => value,
                (false, true) => body.into(),
                (false, false) => value.to_string().into(),
            }
        }
        None => redact_text(&body, "", secrets).into(),
    };
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
                let mut item = Value::Object(item.0.clone());
                redact(&mut item, "", secrets);
                let _ = writeln!(text, "          - {}", json_line(&item));
            }
        }
    }
}

fn recorded_headers(headers: &HeaderMap, secrets: &Secrets) -> Map<String, Value> {
    let names = headers.keys().map(http::HeaderName::as_str);
    let names = names.filter(|name| HEADERS.contains(name) || name.starts_with("x-"));
    let recorded = names.filter_map(|name| {
        let values: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
        (!values.is_empty()).then(|| (name.to_owned(), redact_text(&values.join(", "), name, secrets).into()))
    });
    recorded.collect()
}

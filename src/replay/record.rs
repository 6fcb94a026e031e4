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
    generator::{ParameterSet, Parameters},
    replay::{HttpFault, HttpReply, Sources},
    secret::Secrets,
};

/// The headers that the gateway reads. No other is recorded.
const HEADERS: [&str; 11] = [
    "content-type",
    "docker-content-digest",
    "docker-distribution-api-version",
    "etag",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "www-authenticate",
    "x-next-page",
    "x-total-pages",
];

/// Notes what sources reply.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Vec<Noted>>);

#[derive(Debug)]
enum Noted {
    Reply(String, HttpReply),
    List(String, Result<Vec<ParameterSet>, String>),
}

impl Sources for Recorder {
    fn is_offline(&self) -> bool {
        false
    }

    fn reply(&self, _method: &Method, _url: &Url) -> Option<Result<HttpReply, HttpFault>> {
        None
    }

    fn note_reply(&self, method: &Method, url: &Url, reply: HttpReply) {
        let asked = request_text(method, url);
        let mut noted = self.0.lock();
        // Of several replies to one request the last one counts: those before were failures that were tried again.
        noted.retain(|known| !matches!(known, Noted::Reply(known, _) if *known == asked));
        noted.push(Noted::Reply(asked, reply));
    }

    fn list(&self, _command: &str) -> Option<Result<Vec<ParameterSet>, String>> {
        None
    }

    fn note_list(&self, command: &str, list: Result<&[ParameterSet], &str>) {
        let list = list.map(<[_]>::to_vec).map_err(str::to_owned);
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
    /// The case as an item of `cases` in YAML. `secrets` are taken out.
    ///
    /// # Errors
    /// When a reply cannot be written, since it is not text.
    pub(crate) fn write(&self, of: &Recorded<'_>, secrets: &Secrets) -> anyhow::Result<String> {
        let mut text = format!("  - name: {}\n", json_line(&json!(of.name)));
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
        let noted = self.0.lock();
        if !noted.is_empty() {
            text.push_str("    replies:\n");
        }
        for noted in noted.iter() {
            match noted {
                Noted::Reply(asked, reply) => write_reply(&mut text, asked, reply, secrets)?,
                Noted::List(command, list) => write_list(&mut text, command, list, secrets),
            }
        }
        for line in expected_lines(of.answer, None) {
            let _ = writeln!(text, "    {line}");
        }
        Ok(text)
    }
}

fn write_reply(text: &mut String, asked: &str, reply: &HttpReply, secrets: &Secrets) -> anyhow::Result<()> {
    let _ = writeln!(text, "      - request: {}", json_line(&json!(secrets.redact(asked))));
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

fn write_list(text: &mut String, command: &str, list: &Result<Vec<ParameterSet>, String>, secrets: &Secrets) {
    let _ = writeln!(text, "      - script: {}", json_line(&json!(command)));
    match list {
        Err(why) => {
            let _ = writeln!(text, "        fails: {}", json_line(&json!(secrets.redact(why))));
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
    let recorded = HEADERS.iter().filter_map(|name| {
        let value = headers.get(*name)?.to_str().ok()?;
        Some(((*name).to_owned(), redact_text(value, name, secrets).into()))
    });
    recorded.collect()
}

//! `http`: a JSON API. The request is made of templates, the answer becomes a list through one CEL
//! expression. Anything but a 2xx with JSON that maps to a list of objects is *unknown*.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use headers::{Age, CacheControl, HeaderMapExt};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use minijinja::Value as TemplateValue;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{Backend, Surroundings, parameter_sets};
use crate::{
    base_dir::BaseDir,
    document,
    error::{BackendError, ErrorKind},
    expression::Expression,
    generator::{Outcome, ParameterSet, Query},
    outbound::{Call, Line, Reply, Terms},
    problem::{Path, Problems},
    secret::TextOrSecret,
    template::{INPUT_SCOPE, Place, Template, input_context},
    units::{ByteSize, HumanDuration},
};

/// Documents larger than this are mapped off the async threads, in bytes.
const LARGE: usize = 32 * 1024;

/// The longest life that is taken from an answer.
const LONGEST_LIFE: Duration = Duration::from_hours(24);

/// A request and how to read its answer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "HttpBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The method. A call may be repeated at any time, so it must change nothing.
    #[serde(default)]
    pub method: Method,
    /// The URL, a template over `params` and `applicationSet`. Scheme and host stand in it as they
    /// are; values are percent-encoded.
    pub url: String,
    /// Headers. A value is a template, or a secret reference.
    #[serde(default)]
    pub headers: BTreeMap<String, TextOrSecret>,
    /// The body, sent as JSON. Strings in it are templates.
    #[serde(default)]
    pub body: Option<Value>,
    /// A CEL expression over `body`, `status`, `headers` and `params` that gives the list of objects.
    #[serde(default = "default_parameters")]
    pub parameters: String,
    /// Let the answer's `Cache-Control` say for how long it is fresh, in place of the route's `cache.ttl`.
    #[serde(default)]
    pub honor_cache_control: bool,
    /// A PEM file with certificates of private CAs, relative to the configuration file. They are trusted besides the
    /// system's, and read at the start.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// How long the whole exchange may take, waits and further attempts included.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// The largest answer that is accepted.
    #[serde(default = "default_max_body")]
    pub max_body: ByteSize,
}

/// How to ask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// Read.
    #[default]
    Get,
    /// Query with a body.
    Post,
}

fn default_parameters() -> String {
    "body".to_owned()
}

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

const fn default_max_body() -> ByteSize {
    ByteSize::mib(8)
}

/// A request, parsed and ready to be filled in.
#[derive(Debug)]
pub struct Http {
    line: Arc<Line>,
    base: BaseDir,
    method: Method,
    url: Template,
    headers: Vec<(HeaderName, HeaderSource)>,
    body: Option<Tree>,
    parameters: Arc<Expression>,
    honor_cache_control: bool,
    timeout: HumanDuration,
    max_body: usize,
}

#[derive(Debug)]
enum HeaderSource {
    Template(Template),
    Secret(crate::secret::SecretRef),
}

/// A JSON value whose strings are templates.
#[derive(Debug)]
enum Tree {
    Literal(Value),
    Text(Template),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl Http {
    /// Parses all templates and the expression.
    pub fn build(config: &Config, around: Surroundings<'_>, path: &Path, problems: &mut Problems) -> Option<Self> {
        let url = build_url(&config.url, &path.key("url"), problems);
        let headers = build_headers(&config.headers, around.base, &path.key("headers"), problems);
        let body = config.body.as_ref().map(|body| Tree::build(body, &path.key("body"), problems));
        if config.body.is_some() && config.method == Method::Get {
            problems.error_with_help(&path.key("body"), "a GET has no body", "write `method: POST`");
        }
        problems.check_not_zero(&path.key("timeout"), config.timeout.0);
        let parameters = problems.note(&path.key("parameters"), Expression::compile(&config.parameters));
        let at = if config.ca.is_some() { path.key("ca") } else { path.clone() };
        if config.ca.is_some() && config.url.starts_with("http://") {
            problems.warning(&at, "the CA is of no use: the URL is http://, without TLS", "write `https://`");
        }
        let ca = config.ca.as_ref().map(|file| around.base.resolve(file));
        let line = problems.note(&at, around.outbound.line(Terms { ca, ..Terms::default() }));
        Some(Self {
            line: line?,
            base: around.base.clone(),
            method: config.method,
            url: url?,
            headers,
            body: body.flatten(),
            parameters: Arc::new(parameters?),
            honor_cache_control: config.honor_cache_control,
            timeout: config.timeout,
            max_body: config.max_body.as_usize(),
        })
    }

    fn call(&self, query: &Query) -> Result<Call, BackendError> {
        let context = input_context(query);
        let invalid = BackendError::invalid_input;
        let url = self.url.render(&context).map_err(|error| invalid(format!("url: {error}")))?;
        check_segments(&url).map_err(|error| invalid(format!("url: {error}")))?;
        let url = Url::parse(&url).map_err(|error| invalid(format!("url: {error}")))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        for (name, source) in &self.headers {
            headers.insert(name, self.header(name, source, &context)?);
        }
        let body = match &self.body {
            Some(tree) => {
                headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
                let value = tree.render(&context).map_err(|error| invalid(format!("body: {error}")))?;
                Some(Bytes::from(value.to_string()))
            }
            None => None,
        };
        let method = match self.method {
            Method::Get => http::Method::GET,
            Method::Post => http::Method::POST,
        };
        let deadline = query.deadline.min(Instant::now() + self.timeout.0);
        Ok(Call { method, headers, body, ..Call::get(url, self.max_body, deadline) })
    }

    fn header(
        &self,
        name: &HeaderName,
        source: &HeaderSource,
        context: &TemplateValue,
    ) -> Result<HeaderValue, BackendError> {
        match source {
            HeaderSource::Template(template) => {
                let text = template
                    .render(context)
                    .map_err(|error| BackendError::invalid_input(format!("{name}: {error}")))?;
                HeaderValue::from_str(&text).map_err(|_| {
                    BackendError::invalid_input(format!("the header {name} cannot hold this parameter's value"))
                })
            }
            HeaderSource::Secret(reference) => {
                let secret = reference.read(&self.base).map_err(BackendError::unavailable)?;
                let mut value = HeaderValue::from_str(secret.expose()).map_err(|_| {
                    BackendError::new(
                        ErrorKind::Denied,
                        format!("{reference} holds characters that no header can carry"),
                    )
                })?;
                value.set_sensitive(true);
                Ok(value)
            }
        }
    }
}

#[async_trait]
impl Backend for Http {
    async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError> {
        let call = self.call(query)?;
        let asked = call.to_string();
        let reply = self.line.fetch(call).await?;
        let (empty, secrets) = (format!("{}, an explicit empty list", reply.status), reply.secrets.clone());
        let ttl = if self.honor_cache_control { time_to_live(&reply.headers) } else { None };
        let sets = self.map(reply, query).await.map_err(|error| secrets.clean(&error).within(&asked))?;
        Ok(Outcome::of_list(sets, asked, empty).lasting(ttl))
    }

    fn reads_application_set(&self) -> bool {
        let in_headers = self.headers.iter().any(|(_, source)| match source {
            HeaderSource::Template(template) => template.reads_application_set(),
            HeaderSource::Secret(_) => false,
        });
        self.url.reads_application_set() || in_headers || self.body.as_ref().is_some_and(Tree::reads_application_set)
    }
}

impl Http {
    async fn map(&self, reply: Reply, query: &Query) -> Result<Vec<ParameterSet>, BackendError> {
        check_reply(&reply)?;
        let (expression, parameters) = (Arc::clone(&self.parameters), Arc::clone(&query.parameters));
        let is_large = reply.body.len() > LARGE;
        let work = move || map_reply(&expression, &reply, &parameters);
        if !is_large {
            return work();
        }
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| BackendError::invalid_output(format!("mapping the answer failed: {error}")))?
    }
}

/// For how long a reply says that it is fresh: `max-age` less its `Age` (RFC 9111, section 4.2), nothing at all with
/// `no-store` and `no-cache`. `s-maxage` and `private` are for caches that answer several users; here all answers
/// belong to the one whose credential was sent.
fn time_to_live(headers: &HeaderMap) -> Option<Duration> {
    let control: CacheControl = headers.typed_get()?;
    if control.no_store() || control.no_cache() {
        return Some(Duration::ZERO);
    }
    let age = headers.typed_get::<Age>().map_or(Duration::ZERO, |age| Duration::from_secs(age.as_secs()));
    control.max_age().map(|life| life.saturating_sub(age).min(LONGEST_LIFE))
}

fn map_reply(
    expression: &Expression,
    reply: &Reply,
    parameters: &Map<String, Value>,
) -> Result<Vec<ParameterSet>, BackendError> {
    let body = document::parse(&reply.body).map_err(|error| {
        BackendError::invalid_output(format!(
            "not one JSON document: {error} (it begins with `{}`)",
            reply.excerpt(120)
        ))
    })?;
    let headers: Map<String, Value> = reply
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned().into()))
        .collect();
    let variables = [
        ("body", &body),
        ("status", &Value::from(reply.status.as_u16())),
        ("headers", &Value::Object(headers)),
        ("params", &Value::Object(parameters.clone())),
    ];
    let mapped = expression
        .evaluate(&variables)
        .map_err(|error| BackendError::invalid_output(format!("parameters: {error}")))?;
    parameter_sets(mapped).map_err(|error| error.within("parameters"))
}

/// A 2xx with a JSON content type, or why it cannot be believed.
fn check_reply(reply: &Reply) -> Result<(), BackendError> {
    let invalid = |why: String| Err(BackendError::invalid_output(why));
    if !reply.status.is_success() {
        return Err(reply.refusal());
    }
    // 202 is not done yet, 206 a part, 207 several answers, 204 nothing at all.
    if !matches!(reply.status, StatusCode::OK | StatusCode::CREATED) {
        return invalid(format!("{} is no whole answer; an empty list must be an explicit 200", reply.status));
    }
    if names_a_next_page(&reply.headers) {
        return invalid("it is one page of several (`Link` with rel=\"next\"); ask for all at once".into());
    }
    if reply.headers.contains_key(header::CONTENT_RANGE) {
        return invalid("it is a part (`Content-Range`), and a part is no answer".into());
    }
    let text =
        |name| reply.headers.get(name).map_or_else(Default::default, |value| String::from_utf8_lossy(value.as_bytes()));
    let encoding = text(header::CONTENT_ENCODING);
    if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity") {
        let shown = reply.secrets.excerpt(encoding.as_bytes(), 40);
        return invalid(format!("it is encoded (`{shown}`), which was not asked for"));
    }
    let content_type = text(header::CONTENT_TYPE);
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")) {
        return Ok(());
    }
    Err(BackendError::invalid_output(format!(
        "the content type is `{}`, not JSON: {}",
        reply.secrets.excerpt(content_type.as_bytes(), 80),
        reply.excerpt(200)
    )))
}

/// RFC 8288: whether a `Link` leads on.
fn names_a_next_page(headers: &HeaderMap) -> bool {
    let links = headers
        .get_all(header::LINK)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
    links.into_iter().any(|link| {
        link.split(';').any(|part| {
            let Some(relations) = part.trim().strip_prefix("rel").and_then(|rest| rest.trim_start().strip_prefix('='))
            else {
                return false;
            };
            let relations = relations.split(',').next().unwrap_or_default();
            relations.trim().trim_matches('"').split_ascii_whitespace().any(|relation| relation == "next")
        })
    })
}

fn build_url(source: &str, path: &Path, problems: &mut Problems) -> Option<Template> {
    let template = problems.note(path, Template::parse(source, Place::Url, INPUT_SCOPE))?;
    let prefix = template.fixed_prefix();
    let authority = prefix.split_once("://").map(|(_, rest)| rest);
    let is_whole = prefix.len() == source.len() || authority.is_some_and(|rest| rest.contains(['/', '?']));
    let parsed = Url::parse(prefix.trim_end_matches(|c| c != '/' && c != '?'));
    let parsed = if prefix.len() == source.len() { Url::parse(source) } else { parsed };
    match parsed {
        Ok(url) if is_whole && matches!(url.scheme(), "http" | "https") && url.has_host() => {
            if !url.username().is_empty() || url.password().is_some() {
                problems.error_with_help(
                    path,
                    "the URL holds a user or a password",
                    "send it as a header: `Authorization: { file: … }`",
                );
            }
            Some(template)
        }
        _ => {
            problems.error_with_help(
                path,
                "the URL must begin with `http://` or `https://` and a host, before any `{{`",
                "which host is asked is decided here, never by a parameter",
            );
            None
        }
    }
}

fn build_headers(
    config: &BTreeMap<String, TextOrSecret>,
    base: &BaseDir,
    path: &Path,
    problems: &mut Problems,
) -> Vec<(HeaderName, HeaderSource)> {
    let mut headers = Vec::new();
    for (name, value) in config {
        let path = path.key(name);
        let parsed = HeaderName::try_from(name.as_str()).map_err(|_| format!("`{name}` is not the name of a header"));
        let Some(name) = problems.note(&path, parsed) else { continue };
        if matches!(
            name,
            header::HOST
                | header::CONTENT_LENGTH
                | header::TRANSFER_ENCODING
                | header::CONNECTION
                | header::ACCEPT_ENCODING
        ) {
            problems.error(&path, format!("the header {name} belongs to the transport"));
        }
        let source = match value {
            TextOrSecret::Text(text) => {
                problems.note(&path, Template::parse(text, Place::Text, INPUT_SCOPE)).map(HeaderSource::Template)
            }
            TextOrSecret::Secret(secret) => {
                secret.check(base, &path, problems);
                Some(HeaderSource::Secret(secret.clone()))
            }
        };
        headers.extend(source.map(|source| (name, source)));
    }
    headers
}

/// Refuses `.` and `..` as segments, in every spelling: URL parsers resolve them, so a value could leave the
/// path that the configuration gave. Refuses an empty segment too: `/v1//items` is another resource.
fn check_segments(url: &str) -> Result<(), String> {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = after_scheme.split(['?', '#']).next().unwrap_or_default();
    let segments: Vec<&str> = path.split(['/', '\\']).skip(1).collect();
    for (index, segment) in segments.iter().enumerate() {
        let is_hole = segment.is_empty() && index + 1 < segments.len();
        if is_hole || matches!(&*segment.to_ascii_lowercase().replace("%2e", "."), "." | "..") {
            return Err(format!("a value made the path segment `{segment}`"));
        }
    }
    Ok(())
}

impl Tree {
    fn build(value: &Value, path: &Path, problems: &mut Problems) -> Option<Self> {
        match value {
            Value::String(text) => problems.note(path, Template::parse(text, Place::Text, INPUT_SCOPE)).map(Self::Text),
            Value::Array(items) => {
                let items =
                    items.iter().enumerate().map(|(index, item)| Self::build(item, &path.index(index), problems));
                items.collect::<Option<_>>().map(Self::List)
            }
            Value::Object(map) => {
                let entries =
                    map.iter().map(|(key, item)| Some((key.clone(), Self::build(item, &path.key(key), problems)?)));
                entries.collect::<Option<_>>().map(Self::Object)
            }
            other => Some(Self::Literal(other.clone())),
        }
    }

    fn render(&self, context: &TemplateValue) -> Result<Value, String> {
        Ok(match self {
            Self::Literal(value) => value.clone(),
            Self::Text(template) => Value::String(template.render(context)?),
            Self::List(items) => Value::Array(items.iter().map(|item| item.render(context)).collect::<Result<_, _>>()?),
            Self::Object(entries) => {
                let entries = entries.iter().map(|(key, item)| Ok((key.clone(), item.render(context)?)));
                Value::Object(entries.collect::<Result<_, String>>()?)
            }
        })
    }

    fn reads_application_set(&self) -> bool {
        match self {
            Self::Literal(_) => false,
            Self::Text(template) => template.reads_application_set(),
            Self::List(items) => items.iter().any(Self::reads_application_set),
            Self::Object(entries) => entries.iter().any(|(_, item)| item.reads_application_set()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url_problem(url: &str) -> Option<String> {
        let mut problems = Problems::default();
        build_url(url, &Path::root(), &mut problems);
        problems.into_vec().into_iter().next().map(|problem| problem.message)
    }

    #[test]
    fn the_host_stands_in_the_configuration() {
        for good in [
            "https://h.example",
            "http://127.0.0.1:8080/v1?env={{ params.env }}",
            "https://h.example/{{ params.a }}/b",
            "https://h.example?x={{ params.a }}",
        ] {
            assert_eq!(url_problem(good), None, "{good}");
        }
        for bad in [
            "https://{{ params.host }}/",
            "https://h.example{{ params.a }}/",
            "https://h.example:{{ params.port }}/",
            "{{ params.url }}",
            "ftp://h.example/",
            "h.example/x",
            "https://u:p@h.example/x",
        ] {
            assert!(url_problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn dot_segments_are_refused_in_every_spelling() {
        for bad in
            ["https://h/a/../b", "https://h/a/%2e%2E", "https://h/./b", "https://h/.%2e/b?x", "https://h/a\\..\\b"]
        {
            assert!(check_segments(bad).is_err(), "{bad}");
        }
        assert!(check_segments("https://h/v1//items").is_err());
        for good in
            ["https://h/a/", "https://h/", "https://h/a..b/c", "https://h/a?x=../..", "https://h/...", "https://h"]
        {
            assert!(check_segments(good).is_ok(), "{good}");
        }
    }
}

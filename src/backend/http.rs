//! `http`: a JSON API. The request is made of templates, the answer becomes a list through one CEL
//! expression. Anything but a 2xx with JSON that maps to a list of objects is *unknown*.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use headers::{Age, CacheControl, HeaderMapExt};
use http::{HeaderMap, StatusCode, header};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Backend, Surroundings,
    mapping::{self, Load},
    request::{Method, Parts, Request, headers_of},
};
use crate::{
    document,
    error::BackendError,
    expression::Expression,
    generator::{Outcome, ParameterSet, Query},
    outbound::{Line, Reply, Terms, link},
    problem::{Path, Problems},
    secret::{Secrets, TextOrSecret},
    template::{INPUT_SCOPE, STEP_SCOPE, input_context},
    units::{ByteSize, HumanDuration},
};

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
    /// The URL, a template over `params` and `applicationSet`, and in a later step of a pipeline over `items`. Scheme and
    /// host stand in it as they are; values are percent-encoded.
    pub url: String,
    /// Headers. A value is a template, or a secret reference.
    #[serde(default)]
    pub headers: BTreeMap<String, TextOrSecret>,
    /// The body, sent as JSON. Strings in it are templates; `"{{ items }}"` alone is the list itself.
    #[serde(default)]
    pub body: Option<Value>,
    /// A CEL expression over `body`, `status`, `headers`, `params` and, in a later step of a pipeline, `items`, that gives
    /// the list of objects.
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
    request: Request,
    parameters: Arc<Expression>,
    honor_cache_control: bool,
    timeout: HumanDuration,
    max_body: usize,
}

impl Http {
    /// Parses all templates and the expression.
    pub fn build(config: &Config, around: Surroundings<'_>, path: &Path, problems: &mut Problems) -> Option<Self> {
        let parts = Parts {
            method: config.method,
            url: &config.url,
            headers: &config.headers,
            body: config.body.as_ref(),
            scope: if around.has_items { STEP_SCOPE } else { INPUT_SCOPE },
        };
        let request = Request::build(parts, around.base, path, problems);
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
            request: request?,
            parameters: Arc::new(parameters?),
            honor_cache_control: config.honor_cache_control,
            timeout: config.timeout,
            max_body: config.max_body.as_usize(),
        })
    }
}

#[async_trait]
impl Backend for Http {
    async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError> {
        let deadline = query.deadline.min(Instant::now() + self.timeout.0);
        let call = self.request.call(&input_context(query), self.max_body, deadline)?;
        let asked = call.to_string();
        let reply = self.line.fetch(call).await?;
        let (empty, secrets) = (format!("{}, an explicit empty list", reply.status), reply.secrets.clone());
        let ttl = if self.honor_cache_control { time_to_live(&reply.headers) } else { None };
        let sets = self.map(reply, query).await.map_err(|error| secrets.clean(&error).within(&asked))?;
        Ok(Outcome::of_list(sets, asked, empty).lasting(ttl))
    }

    fn reads_application_set(&self) -> bool {
        self.request.reads_application_set()
    }

    fn secrets(&self) -> Secrets {
        self.request.secrets()
    }
}

impl Http {
    async fn map(&self, reply: Reply, query: &Query) -> Result<Vec<ParameterSet>, BackendError> {
        check_reply(&reply)?;
        let (expression, query) = (Arc::clone(&self.parameters), query.clone());
        let load = Load::Bytes(reply.body.len()).with(Some(&expression));
        mapping::work_on(load, move || map_reply(&expression, &reply, &query)).await
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

fn map_reply(expression: &Expression, reply: &Reply, query: &Query) -> Result<Vec<ParameterSet>, BackendError> {
    let body = document::parse(&reply.body).map_err(|error| {
        BackendError::invalid_output(format!(
            "not one JSON document: {error} (it begins with `{}`)",
            reply.excerpt(120)
        ))
    })?;
    let (status, headers) = (Value::from(reply.status.as_u16()), headers_of(reply));
    let parameters = Value::Object((*query.parameters).clone());
    let mut variables = vec![("body", &body), ("status", &status), ("headers", &headers), ("params", &parameters)];
    variables.extend(query.items.as_deref().map(|items| ("items", items)));
    mapping::map(expression, &variables)
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
    if link::next(&reply.headers) != Ok(None) {
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

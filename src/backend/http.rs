//! `http`: a JSON API, or with `plugin` a plugin that speaks Argo CD's own protocol. A JSON API's request is made of templates, and its
//! answer becomes a list through one CEL expression. Anything but a 2xx with a list of objects is *unknown*.

mod paging;
mod plugin;

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use headers::{Age, CacheControl, HeaderMapExt};
use http::{HeaderMap, StatusCode, header};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use self::{paging::Paging, plugin::Plugin};
use super::{
    Backend, Surroundings, getparams,
    mapping::{self, Load},
    request::{Method, Parts, Request, headers_of},
};
use crate::{
    document,
    error::BackendError,
    expression::Expression,
    generator::{Outcome, ParameterSet, Query},
    outbound::{Call, ClientCertificate, Line, Reply, Terms, TlsKeys, link},
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
    pub method: Option<Method>,
    /// The URL, a template over `params` and `applicationSet`, and in a later step of a pipeline over `items`. Scheme and
    /// host stand in it as they are; values are percent-encoded.
    pub url: Option<String>,
    /// In place of a URL: a plugin that speaks Argo CD's own protocol, called as Argo CD would call it.
    pub plugin: Option<plugin::Config>,
    /// Headers. A value is a template, or a secret reference.
    #[serde(default)]
    pub headers: BTreeMap<String, TextOrSecret>,
    /// The body, sent as JSON. Strings in it are templates; `"{{ items }}"` alone is the list itself.
    #[serde(default)]
    pub body: Option<Value>,
    /// A CEL expression over `body`, `status`, `headers`, `params` and, in a later step of a pipeline, `items`, that gives
    /// the list of objects; `body` unless set.
    pub parameters: Option<String>,
    /// How a list goes on that comes in pages. All of them are read, or nothing is known.
    pub paging: Option<paging::Config>,
    /// Let the answer's `Cache-Control` say for how long it is fresh, in place of the route's `cache.ttl`.
    #[serde(default)]
    pub honor_cache_control: bool,
    /// A PEM file with certificates of private CAs, relative to the configuration file. They are trusted besides the
    /// system's, and read again every 30 s.
    pub ca: Option<PathBuf>,
    /// A certificate that shows who we are. Its files are read again every 30 s.
    pub client_certificate: Option<ClientCertificate>,
    /// Believe any certificate. Whoever is in between can then read the credential and decide what is answered.
    #[serde(default)]
    pub insecure_skip_verify: bool,
    /// How long the whole exchange may take, waits and further attempts included.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// The largest answer that is accepted.
    #[serde(default = "default_max_body")]
    pub max_body: ByteSize,
}

/// What an answer is made of, unless the configuration says it.
const PARAMETERS: &str = "body";

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

const fn default_max_body() -> ByteSize {
    ByteSize::mib(8)
}

/// A source, ready to be asked.
#[derive(Debug)]
pub struct Http {
    line: Arc<Line>,
    source: Source,
    honor_cache_control: bool,
    timeout: HumanDuration,
    max_body: usize,
}

/// What is asked, and how its answer is read.
#[derive(Debug)]
enum Source {
    Json { request: Request, mapping: Arc<Mapping> },
    Plugin(Plugin),
}

/// How a page is read.
#[derive(Debug)]
struct Mapping {
    parameters: Expression,
    paging: Option<Paging>,
}

/// What a page says: a part of the list, and how it goes on.
type Page = (Vec<ParameterSet>, Option<String>);

impl Http {
    /// Parses all templates and the expression.
    pub fn build(config: &Config, around: Surroundings<'_>, path: &Path, problems: &mut Problems) -> Option<Self> {
        let source = Source::build(config, around, path, problems);
        problems.check_not_zero(&path.key("timeout"), config.timeout.0);
        let address = config.url.as_deref().or(config.plugin.as_ref().map(|plugin| plugin.base_url.as_str()));
        let is_plain = address.is_some_and(|address| address.starts_with("http://"));
        let keys = TlsKeys {
            ca: config.ca.as_ref(),
            client_certificate: config.client_certificate.as_ref(),
            insecure_skip_verify: config.insecure_skip_verify,
        };
        let tls = keys.build(is_plain, around.base, path, problems);
        let line = problems.note(&tls.at(path), around.outbound.line(Terms { tls: tls.clone(), ..Terms::default() }));
        Some(Self {
            line: line?,
            source: source?,
            honor_cache_control: config.honor_cache_control,
            timeout: config.timeout,
            max_body: config.max_body.as_usize(),
        })
    }
}

impl Source {
    fn build(config: &Config, around: Surroundings<'_>, path: &Path, problems: &mut Problems) -> Option<Self> {
        match (&config.url, &config.plugin) {
            (Some(url), None) => {
                let parts = Parts {
                    method: config.method.unwrap_or_default(),
                    url,
                    headers: &config.headers,
                    body: config.body.as_ref(),
                    scope: if around.has_items { STEP_SCOPE } else { INPUT_SCOPE },
                };
                let request = Request::build(parts, around.base, path, problems);
                let source = config.parameters.as_deref().unwrap_or(PARAMETERS);
                let parameters = problems.note(&path.key("parameters"), Expression::compile(source));
                let at = path.key("paging");
                let paging = config.paging.as_ref().map(|paging| Paging::build(paging, &at, problems));
                if config.paging.is_some() && config.method == Some(Method::Post) {
                    problems.error(&at, "only what is read by GET comes in pages");
                }
                let paging = match paging {
                    Some(paging) => Some(paging?),
                    None => None,
                };
                Some(Self::Json { request: request?, mapping: Arc::new(Mapping { parameters: parameters?, paging }) })
            }
            (None, Some(plugin)) => {
                let others = [
                    ("method", config.method.is_some()),
                    ("headers", !config.headers.is_empty()),
                    ("body", config.body.is_some()),
                    ("parameters", config.parameters.is_some()),
                    ("paging", config.paging.is_some()),
                ];
                for (key, _) in others.into_iter().filter(|(_, is_there)| *is_there) {
                    let help =
                        "a plugin is called as Argo CD calls it; leave the key out, or ask its `url` as any JSON API";
                    problems.error_with_help(&path.key(key), "it does not go with `plugin`", help);
                }
                Plugin::build(plugin, around.base, &path.key("plugin"), problems).map(Self::Plugin)
            }
            (url, _) => {
                let what =
                    if url.is_some() { "`url` and `plugin` do not go together" } else { "the key `url` is missing" };
                let help = "write `url` for a JSON API, or `plugin: { baseUrl: … }` for a plugin that speaks Argo CD's protocol";
                problems.error_with_help(path, what, help);
                None
            }
        }
    }

    fn call(&self, query: &Query, most: usize, deadline: Instant) -> Result<Call, BackendError> {
        match self {
            Self::Json { request, .. } => request.call(&input_context(query), most, deadline),
            Self::Plugin(plugin) => plugin.call(query, most, deadline),
        }
    }

    /// What the page that has this `number` says.
    async fn read(&self, reply: Reply, query: &Query, number: usize) -> Result<Page, BackendError> {
        check_whole(&reply)?;
        let load = Load::Bytes(reply.body.len());
        match self {
            Self::Json { mapping, .. } => {
                check_type(&reply)?;
                if mapping.paging.is_none() && link::next(&reply.headers) != Ok(None) {
                    let why = "it is one page of several (`Link` with rel=\"next\"); `paging: { link: true }` reads all of them";
                    return Err(BackendError::invalid_output(why));
                }
                let next = mapping.paging.as_ref().and_then(Paging::expression);
                let load = load.with(Some(&mapping.parameters)).with(next);
                let (mapping, query) = (Arc::clone(mapping), query.clone());
                mapping::work_on(load, move || mapping.read(&reply, &query, number)).await
            }
            // Whatever its content type says: many plugins do not set one, and Argo CD does not look.
            Self::Plugin(_) => {
                let work = move || Ok((getparams::read(&reply.body, || reply.excerpt(120))?, None));
                mapping::work_on(load, work).await
            }
        }
    }

    fn paging(&self) -> Option<&Paging> {
        match self {
            Self::Json { mapping, .. } => mapping.paging.as_ref(),
            Self::Plugin(_) => None,
        }
    }
}

impl Mapping {
    fn read(&self, reply: &Reply, query: &Query, number: usize) -> Result<Page, BackendError> {
        let body = document::parse(&reply.body).map_err(|error| {
            BackendError::invalid_output(format!(
                "not one JSON document: {error} (it begins with `{}`)",
                reply.excerpt(120)
            ))
        })?;
        let (status, headers) = (Value::from(reply.status.as_u16()), headers_of(reply));
        let (parameters, number) = (Value::Object((*query.parameters).clone()), Value::from(number));
        let mut variables = vec![("body", &body), ("status", &status), ("headers", &headers), ("params", &parameters)];
        variables.extend(query.items.as_deref().map(|items| ("items", items)));
        let sets = mapping::map(&self.parameters, &variables)?;
        variables.push(("page", &number));
        let next = self.paging.as_ref().map(|paging| paging.said(reply, &variables)).transpose()?;
        Ok((sets, next.flatten()))
    }
}

#[async_trait]
impl Backend for Http {
    async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError> {
        let deadline = query.deadline.min(Instant::now() + self.timeout.0);
        let mut call = self.source.call(query, self.max_body, deadline)?;
        let (mut sets, mut ttl, mut seen) = (Vec::new(), None, HashSet::new());
        loop {
            let (number, asked) = (seen.len() + 1, call.clone());
            let of_page =
                |error: BackendError| if number > 1 { error.within(format_args!("page {number}")) } else { error };
            let reply = self.line.fetch(call).await.map_err(of_page)?;
            let (status, secrets) = (reply.status, reply.secrets.clone());
            let clean = |error: BackendError| of_page(secrets.clean(&error).within(&asked));
            if self.honor_cache_control {
                // The list is as fresh as its oldest page.
                ttl = [ttl, time_to_live(&reply.headers)].into_iter().flatten().min();
            }
            let (found, next) = self.source.read(reply, query, number).await.map_err(clean)?;
            sets.extend(found);
            let Some((paging, next)) = self.source.paging().zip(next) else {
                let pages = if number > 1 { format!(", {number} pages") } else { String::new() };
                let empty = format!("{status}, an explicit empty list");
                return Ok(Outcome::of_list(sets, format!("{asked}{pages}"), empty).lasting(ttl));
            };
            let url = paging.turn(&asked.url, &next, &mut seen).map_err(clean)?;
            call = Call { url, ..asked };
        }
    }

    fn reads_application_set(&self) -> bool {
        match &self.source {
            Source::Json { request, .. } => request.reads_application_set(),
            Source::Plugin(_) => true,
        }
    }

    fn secrets(&self) -> Secrets {
        match &self.source {
            Source::Json { request, .. } => request.secrets(),
            Source::Plugin(plugin) => plugin.secrets(),
        }
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

/// A whole answer, or why it is none.
fn check_whole(reply: &Reply) -> Result<(), BackendError> {
    let invalid = |why: String| Err(BackendError::invalid_output(why));
    if !reply.status.is_success() {
        return Err(reply.refusal());
    }
    // 202 is not done yet, 206 a part, 207 several answers, 204 nothing at all.
    if !matches!(reply.status, StatusCode::OK | StatusCode::CREATED) {
        return invalid(format!("{} is no whole answer; an empty list must be an explicit 200", reply.status));
    }
    if reply.headers.contains_key(header::CONTENT_RANGE) {
        return invalid("it is a part (`Content-Range`), and a part is no answer".into());
    }
    let encoding = text(reply, header::CONTENT_ENCODING);
    if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity") {
        let shown = reply.secrets.excerpt(encoding.as_bytes(), 40);
        return invalid(format!("it is encoded (`{shown}`), which was not asked for"));
    }
    Ok(())
}

/// JSON by its content type, or what it is instead.
fn check_type(reply: &Reply) -> Result<(), BackendError> {
    let content_type = text(reply, header::CONTENT_TYPE);
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

fn text(reply: &Reply, name: header::HeaderName) -> std::borrow::Cow<'_, str> {
    reply.headers.get(name).map_or_else(Default::default, |value| String::from_utf8_lossy(value.as_bytes()))
}

//! `http`: a JSON API, or with `plugin` a plugin that speaks Argo CD's own protocol. A JSON API's request is made of templates, and its
//! answer becomes a list through one CEL expression. Anything but a 2xx with a list of objects is *unknown*.

mod json;
mod page;
pub mod paging;
mod plugin;
mod redirect;
mod whole;

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use self::{
    json::Json,
    page::Page,
    paging::Paging,
    plugin::Plugin,
    redirect::Redirects,
    whole::{check_whole, time_to_live},
};
use super::{
    Backend, BuildContext, KindConfig, credential, getparams,
    mapping::{self, Load},
    request::Method,
};
use crate::{
    clients::outbound::{Call, ClientCertificate, HttpClient, Reply, TlsKeys},
    domain::{
        error::BackendError,
        generator::{Outcome, ParameterSet, Query},
        problem::{Path, Problems},
        secret::{Secrets, TextOrSecret},
        units::{ByteSize, HumanDuration},
    },
};

/// How many questions of a `forEach` are under way at once.
const AT_ONCE: usize = 16;

/// A request and how to read its answer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "HttpBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Config {
    /// The method. A call may be repeated at any time, so it must change nothing.
    pub(crate) method: Option<Method>,
    /// The URL, a template over `params` and `applicationSet`, in a later step of a pipeline over `items`, and with `forEach` over `each`.
    /// Scheme and host stand in it as they are, but for `allowedHosts`; values are percent-encoded.
    pub(crate) url: Option<String>,
    /// The hosts that may be asked where a value is part of the URL's host: `inventory.example.com`, with a port if it is not
    /// the scheme's, or `*.example.com` for all names below it.
    #[serde(default)]
    pub(crate) allowed_hosts: Vec<String>,
    /// In place of a URL: a plugin that speaks Argo CD's own protocol, called as Argo CD would call it.
    pub(crate) plugin: Option<plugin::Config>,
    /// Who asks, sent as `Authorization`.
    pub(crate) credential: Option<credential::Config>,
    /// Headers. A value is a template, or a secret reference.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, TextOrSecret>,
    /// The body, sent as JSON. Strings in it are templates; `"{{ items }}"` alone is the list itself.
    #[serde(default)]
    pub(crate) body: Option<Value>,
    /// A CEL expression over `params` and, in a later step of a pipeline, `items`, that gives a list: the source is asked once for each of
    /// its items, which is `each` in templates and in `parameters`, and all that it answers is the list. All of it, or nothing is
    /// known.
    pub(crate) for_each: Option<String>,
    /// A CEL expression over `body`, `status`, `headers`, `params`, with `forEach` over `each` and, in a later step of a pipeline, over
    /// `items`, that gives the list of objects; `body` unless set.
    pub(crate) parameters: Option<String>,
    /// Read a document that holds a non-empty `error` or `errors` at its top, which else is an error whatever else it holds.
    /// For an API where these keys mean something else.
    #[serde(default)]
    pub(crate) allow_errors: bool,
    /// How a list goes on that comes in pages. All of them are read, or nothing is known.
    pub(crate) paging: Option<paging::Config>,
    /// What a redirect is: an error (`refuse`), or followed where scheme, host and port stay (`sameOrigin`).
    #[serde(default)]
    pub(crate) redirects: Redirects,
    /// Let the answer's `Cache-Control` say for how long it is fresh, in place of the route's `cache.ttl`.
    #[serde(default)]
    pub(crate) honor_cache_control: bool,
    /// A PEM file with certificates of private CAs, relative to the configuration file. They are trusted besides the
    /// system's, and read again every 30 s.
    pub(crate) ca: Option<PathBuf>,
    /// A certificate that shows who we are. Its files are read again every 30 s.
    pub(crate) client_certificate: Option<ClientCertificate>,
    /// Believe any certificate. Whoever is in between can then read the credential and decide what is answered.
    #[serde(default)]
    pub(crate) insecure_skip_verify: bool,
    /// How long the whole exchange may take, waits and further attempts included.
    #[serde(default = "default_timeout")]
    pub(crate) timeout: HumanDuration,
    /// The largest answer that is accepted.
    #[serde(default = "default_max_body")]
    pub(crate) max_body: ByteSize,
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
pub(crate) struct Http {
    line: Arc<HttpClient>,
    source: Api,
    honor_cache_control: bool,
    timeout: HumanDuration,
    max_body: usize,
}

/// What is asked, and how its answer is read.
#[derive(Debug)]
enum Api {
    Json(Box<Json>),
    Plugin(Plugin),
}

/// What one question found.
struct Found {
    sets: Vec<ParameterSet>,
    /// For how long each page says that it is fresh.
    lives: Vec<Option<Duration>>,
    /// What was asked, and what was said if the list is empty.
    asked: String,
    empty: String,
}

impl Http {
    /// Parses all templates and the expression.
    pub(crate) fn build(
        config: &Config,
        context: BuildContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        problems.check_not_zero(&path.key("timeout"), config.timeout.0);
        let address = config.url.as_deref().or(config.plugin.as_ref().map(|plugin| plugin.base_url.as_str()));
        // A token may be bought elsewhere.
        let is_plain = address.is_some_and(|address| address.starts_with("http://")) && config.credential.is_none();
        let keys = TlsKeys {
            ca: config.ca.as_ref(),
            client_certificate: config.client_certificate.as_ref(),
            insecure_skip_verify: config.insecure_skip_verify,
        };
        let line = keys.line(is_plain, context.outbound, context.base, path, problems);
        let source = Api::build(config, line.as_ref(), context, path, problems);
        Some(Self {
            line: line?,
            source: source?,
            honor_cache_control: config.honor_cache_control,
            timeout: config.timeout,
            max_body: config.max_body.as_usize(),
        })
    }
}

impl Api {
    fn build(
        config: &Config,
        line: Option<&Arc<HttpClient>>,
        context: BuildContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        match (&config.url, &config.plugin) {
            (Some(url), None) => {
                Json::build(config, url, line, context, path, problems).map(|json| Self::Json(Box::new(json)))
            }
            (None, Some(plugin)) => {
                let others = [
                    ("method", config.method.is_some()),
                    ("allowedHosts", !config.allowed_hosts.is_empty()),
                    ("credential", config.credential.is_some()),
                    ("headers", !config.headers.is_empty()),
                    ("body", config.body.is_some()),
                    ("forEach", config.for_each.is_some()),
                    ("parameters", config.parameters.is_some()),
                    ("allowErrors", config.allow_errors),
                    ("paging", config.paging.is_some()),
                    ("redirects", config.redirects != Redirects::Refuse),
                ];
                for (key, _) in others.into_iter().filter(|(_, is_there)| *is_there) {
                    let help =
                        "a plugin is called as Argo CD calls it; leave the key out, or ask its `url` as any JSON API";
                    problems.error_with_help(&path.key(key), "it does not go with `plugin`", help);
                }
                Plugin::build(plugin, context, &path.key("plugin"), problems).map(Self::Plugin)
            }
            (url, _) => {
                let help = "write `url` for a JSON API, or `plugin: { baseUrl: … }` for a plugin that speaks Argo CD's protocol";
                if url.is_some() {
                    problems.error_with_help(path, "`url` and `plugin` do not go together", help);
                } else {
                    problems.missing_key(path, "url", Some(help));
                }
                None
            }
        }
    }

    /// The items of `forEach`, where there is one.
    async fn each(&self, query: &Query, deadline: Instant) -> Result<Option<Vec<Value>>, BackendError> {
        match self {
            Self::Json(json) => json.each(query, deadline).await,
            Self::Plugin(_) => Ok(None),
        }
    }

    async fn call(
        &self,
        query: &Query,
        each: Option<&Value>,
        most: usize,
        deadline: Instant,
    ) -> Result<Call, BackendError> {
        match self {
            Self::Json(json) => json.call(query, each, most, deadline).await,
            Self::Plugin(plugin) => plugin.call(query, most, deadline),
        }
    }

    async fn send(&self, line: &HttpClient, call: Call) -> Result<Reply, BackendError> {
        match self {
            Self::Json(json) => json.send(line, call).await,
            Self::Plugin(_) => line.fetch(call).await,
        }
    }

    /// What the page that has this `number` says.
    async fn read(
        &self,
        reply: Reply,
        query: &Query,
        each: Option<&Value>,
        number: usize,
        deadline: Instant,
    ) -> Result<Page, BackendError> {
        check_whole(&reply, number, matches!(self, Self::Plugin(_)))?;
        match self {
            Self::Json(json) => json.read(reply, query, each, number, deadline).await,
            // Whatever its content type says: many plugins do not set one, and Argo CD does not look.
            Self::Plugin(_) => {
                let load = Load::Bytes(reply.body.len());
                let read = move || getparams::read(&reply.body, || reply.excerpt(120));
                let sets = mapping::work_on(load, read).await?;
                Ok(Page { sets, next: None, counted: None })
            }
        }
    }

    fn paging(&self) -> Option<&Paging> {
        match self {
            Self::Json(json) => json.paging(),
            Self::Plugin(_) => None,
        }
    }

    fn redirects(&self) -> Redirects {
        match self {
            Self::Json(json) => json.redirects,
            Self::Plugin(_) => Redirects::Refuse,
        }
    }
}

impl Http {
    /// Asks one question, page after page.
    async fn find(&self, query: &Query, each: Option<&Value>, deadline: Instant) -> Result<Found, BackendError> {
        let mut call = self.source.call(query, each, self.max_body, deadline).await?;
        let (mut sets, mut lives, mut seen, mut hops) = (Vec::new(), Vec::new(), HashSet::new(), 0);
        let mut counted = Vec::new();
        loop {
            let (number, asked) = (seen.len() + 1, call.clone());
            let of_page =
                |error: BackendError| if number > 1 { error.within(format_args!("page {number}")) } else { error };
            let reply = self.source.send(&self.line, call).await.map_err(of_page)?;
            let (status, secrets) = (reply.status, reply.secrets.clone());
            let clean = |error: BackendError| of_page(secrets.clean(&error).within(&asked));
            if self.source.redirects() == Redirects::SameOrigin
                && let Some(url) = redirect::target(&asked.url, &reply, hops).map_err(clean)?
            {
                hops += 1;
                call = Call { url, ..asked };
                continue;
            }
            if self.honor_cache_control {
                lives.push(time_to_live(&reply.headers));
            }
            let page = self.source.read(reply, query, each, number, deadline).await.map_err(clean)?;
            sets.extend(page.sets);
            counted.push(page.counted);
            let Some((paging, next)) = self.source.paging().zip(page.next) else {
                page::check_counted(&counted).map_err(clean)?;
                // Evidence is for what is not there.
                if !sets.is_empty() {
                    return Ok(Found { sets, lives, asked: String::new(), empty: String::new() });
                }
                let pages = if number > 1 { format!(", {number} pages") } else { String::new() };
                let empty = format!("{status}, an explicit empty list");
                return Ok(Found { sets, lives, asked: format!("{asked}{pages}"), empty });
            };
            let url = paging.turn(&asked.url, &next, &mut seen).map_err(clean)?;
            (call, hops) = (Call { url, ..asked }, 0);
        }
    }

    /// Asks for each item of `list`, several at once.
    async fn find_all(&self, query: &Query, list: Vec<Value>, deadline: Instant) -> Result<Found, BackendError> {
        let number = list.len();
        let asks = list.into_iter().enumerate().map(|(index, each)| self.find_each(query, index, each, deadline));
        let found: Vec<Found> = stream::iter(asks).buffered(AT_ONCE).try_collect().await?;
        let empty = if number == 0 { "it gives an explicit empty list" } else { "each an explicit empty list" };
        let asked = format!("forEach, {number} questions");
        let mut whole = Found { sets: Vec::new(), lives: Vec::new(), asked, empty: empty.to_owned() };
        for found in found {
            whole.sets.extend(found.sets);
            whole.lives.extend(found.lives);
        }
        Ok(whole)
    }

    async fn find_each(
        &self,
        query: &Query,
        index: usize,
        each: Value,
        deadline: Instant,
    ) -> Result<Found, BackendError> {
        let found = self.find(query, Some(&each), deadline).await;
        found.map_err(|error| error.within(format_args!("forEach[{index}]")))
    }
}

/// For how long a list is fresh: as its oldest page, where one that says nothing lasts for the route's `ttl`. `None` when that
/// is what the list lasts.
fn life(pages: &[Option<Duration>], ttl: Duration) -> Option<Duration> {
    let least = pages.iter().flatten().min().copied()?;
    let is_bound_by_ttl = pages.contains(&None) && ttl < least;
    (!is_bound_by_ttl).then_some(least)
}

impl KindConfig for Config {
    fn build(&self, context: BuildContext<'_>, path: &Path, problems: &mut Problems) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(Http::build(self, context, path, problems)?))
    }
}

#[async_trait]
impl Backend for Http {
    async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError> {
        let deadline = query.deadline.min(Instant::now() + self.timeout.0);
        let found = match self.source.each(query, deadline).await? {
            None => self.find(query, None, deadline).await?,
            // Larger than a single question, which most are.
            Some(list) => Box::pin(self.find_all(query, list, deadline)).await?,
        };
        let life = life(&found.lives, query.ttl);
        Ok(Outcome::of_list(found.sets, found.asked, found.empty).lasting(life))
    }

    fn reads_application_set(&self) -> bool {
        match &self.source {
            Api::Json(json) => json.reads_application_set(),
            Api::Plugin(_) => true,
        }
    }

    fn secrets(&self) -> Secrets {
        match &self.source {
            Api::Json(json) => json.secrets(),
            Api::Plugin(plugin) => plugin.secrets(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_as_fresh_as_its_oldest_page() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (pages, whole) in [
            (&[][..], None),
            (&[None, None], None),
            (&[seconds(90), seconds(10)], seconds(10)),
            (&[seconds(90), None], None),
            (&[None, seconds(10)], seconds(10)),
            (&[seconds(0), None], seconds(0)),
        ] {
            assert_eq!(life(pages, Duration::from_mins(1)), whole, "{pages:?}");
        }
    }
}

//! The `http` backend calls a JSON API, or with `plugin` a plugin that speaks Argo CD's own protocol. Templates make the request
//! to a JSON API, and one CEL expression makes the list from its answer. Only a 2xx with a list of objects is an answer;
//! everything else is *unknown*.

mod absent;
mod api;
mod config;
mod format;
mod item_query;
mod json;
mod page;
pub mod paging;
mod plugin;
mod reading;
mod redirect;
mod whole;

use std::{collections::HashSet, fmt::Write as _, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use serde_json::Value;
use tokio::time::Instant;

pub use self::config::Config;
use self::{api::Api, item_query::ItemQuery, redirect::Redirects, whole::time_to_live};
use super::{
    Backend, Building, KindConfig, Nature, Reached,
    now::{self, Now},
};
use domain::{
    error::BackendError,
    generator::{Evidence, Outcome, ParameterSet, Query},
    secret::Secrets,
    units::{HumanDuration, plural},
};
use outbound::{Call, HttpClient, TlsKeys};

/// How many items of a `forEach` are fetched at the same time.
const MAX_CONCURRENT_QUERIES: usize = 16;

/// The `http` backend of a route or step.
#[derive(Debug)]
pub struct Http {
    client: Arc<HttpClient>,
    api: Api,
    now: Now,
    uses_now: bool,
    honor_cache_control: bool,
    timeout: HumanDuration,
    max_body: usize,
    nature: Nature,
}

/// The answer to one query, or to all queries of a `forEach`.
struct Fetched {
    sets: Vec<ParameterSet>,
    /// The time to live that each page states, if any.
    lives: Vec<Option<Duration>>,
    /// The request, and the upstream's answer.
    evidence: Vec<Evidence>,
}

impl Http {
    /// Parses all templates and the expression.
    pub fn build(config: &Config, building: &mut Building<'_>) -> Option<Self> {
        let context = building.context;
        building.problems.check_not_zero(&building.path.key("timeout"), config.timeout.0);
        let address = config.url.as_deref().or(config.plugin.as_ref().map(|plugin| plugin.base_url.as_str()));
        // Without TLS there is nothing to verify. A token may still be requested over TLS from another server.
        let is_plain = address.is_some_and(|address| address.starts_with("http://")) && config.credential.is_none();
        let keys = TlsKeys {
            ca: config.ca.as_ref(),
            client_certificate: config.client_certificate.as_ref(),
            insecure_skip_verify: config.insecure_skip_verify,
        };
        let client = keys.client(is_plain, context.outbound, &mut building.section());
        let api = Api::build(config, client.as_ref(), building);
        let (client, api) = (client?, api?);
        Some(Self {
            nature: building.nature(api.item()),
            client,
            uses_now: api.uses_now(),
            now: Now::of(context.clock),
            api,
            honor_cache_control: config.honor_cache_control,
            timeout: config.timeout,
            max_body: config.max_body.as_usize(),
        })
    }
}

impl Http {
    /// Sends the request for one query, and reads all pages of the answer.
    async fn fetch_one(&self, query: ItemQuery<'_>) -> Result<Fetched, BackendError> {
        let mut call = self.api.call(query, self.max_body).await?;
        let (mut sets, mut lives, mut seen, mut hops) = (Vec::new(), Vec::new(), HashSet::new(), 0);
        let mut counted = Vec::new();
        loop {
            let (number, sent) = (seen.len() + 1, call.clone());
            let of_page = |error: BackendError| {
                let error = if number > 1 { error.within(format_args!("page {number}")) } else { error };
                // An event about this URL concerns the query too.
                BackendError { evidence: vec![Evidence::unknown(sent.to_string(), error.kind.as_str())], ..error }
            };
            let reply = self.api.send(&self.client, call).await.map_err(of_page)?;
            let (status, secrets) = (reply.status, reply.secrets.clone());
            let clean = |error: BackendError| of_page(secrets.clean(&error).within(&sent));
            if self.api.redirects() == Redirects::SameOrigin
                && let Some(url) = redirect::target(&sent.url, &reply, hops).map_err(clean)?
            {
                hops += 1;
                call = Call { url, ..sent };
                continue;
            }
            if self.honor_cache_control {
                lives.push(time_to_live(&reply.headers));
            }
            let page = self.api.read(reply, query, number).await.map_err(clean)?;
            if page.is_absent {
                let evidence = Evidence::absent(sent.describe(), format!("{status}, `absent` holds"));
                return Ok(Fetched { sets: Vec::new(), lives, evidence: vec![evidence] });
            }
            sets.extend(page.sets);
            counted.push(page.counted);
            let Some((paging, next)) = self.api.paging().zip(page.next) else {
                page::check_counted(&counted).map_err(clean)?;
                let mut query = sent.describe();
                if number > 1 {
                    let _ = write!(query, ", {number} pages");
                }
                let evidence = match sets.len() {
                    0 => Evidence::absent(query, format!("{status}, an explicit empty list")),
                    count => Evidence::present(query, format!("{status}, {count} item{}", plural(count))),
                };
                return Ok(Fetched { sets, lives, evidence: vec![evidence] });
            };
            let url = paging.next_url(&sent.url, &next, &mut seen).map_err(clean)?;
            (call, hops) = (Call { url, ..sent }, 0);
        }
    }

    /// Sends one request for each item of `list`, several at the same time.
    async fn fetch_all(&self, query: ItemQuery<'_>, list: Vec<Value>) -> Result<Fetched, BackendError> {
        if list.is_empty() {
            let evidence = vec![Evidence::absent("forEach, 0 requests", "an explicit empty list")];
            return Ok(Fetched { sets: Vec::new(), lives: Vec::new(), evidence });
        }
        let fetches = list.into_iter().enumerate().map(|(index, each)| self.fetch_each(query, index, each));
        let parts: Vec<Fetched> = stream::iter(fetches).buffered(MAX_CONCURRENT_QUERIES).try_collect().await?;
        let mut whole = Fetched { sets: Vec::new(), lives: Vec::new(), evidence: Vec::new() };
        for part in parts {
            whole.sets.extend(part.sets);
            whole.lives.extend(part.lives);
            whole.evidence.extend(part.evidence);
        }
        Ok(whole)
    }

    async fn fetch_each(&self, query: ItemQuery<'_>, index: usize, each: Value) -> Result<Fetched, BackendError> {
        let fetched = self.fetch_one(ItemQuery { each: Some(&each), ..query }).await;
        fetched.map_err(|error| error.within(format_args!("forEach[{index}]")))
    }
}

/// The time to live of a list: the shortest of its pages. For a page without a time to live, the route's `ttl` counts. `None`
/// means that the route's `ttl` applies.
fn life(pages: &[Option<Duration>], ttl: Duration) -> Option<Duration> {
    let least = pages.iter().flatten().min().copied()?;
    let is_bound_by_ttl = pages.contains(&None) && ttl < least;
    if is_bound_by_ttl { None } else { Some(least) }
}

impl KindConfig for Config {
    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(Http::build(self, building)?))
    }
}

#[async_trait]
impl Backend for Http {
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let deadline = query.deadline.min(Instant::now() + self.timeout.0);
        let whole = ItemQuery { query, each: None, now: self.now.seconds(), deadline };
        let fetched = match self.api.each(whole).await? {
            None => self.fetch_one(whole).await?,
            // Boxed, because this future is much larger than that of the usual single query.
            Some(list) => Box::pin(self.fetch_all(whole, list)).await?,
        };
        let life = life(&fetched.lives, query.ttl);
        let outcome = Outcome::of_sources(fetched.sets, fetched.evidence);
        Ok(if self.uses_now { now::limit(outcome, life) } else { outcome.lasting(life) })
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }

    async fn reach(&self, deadline: Instant) -> Vec<Reached> {
        let Some(mut url) = self.api.fixed_destination() else { return Vec::new() };
        url.set_path("/");
        url.set_query(None);
        let source = url.origin().ascii_serialization();
        let call = Call { method: Method::HEAD, may_repeat: false, ..Call::get(url, self.max_body, deadline) };
        // Any status proves that the server is there. What a path needs is not known without a call.
        let result = self.client.fetch(call).await.map(|reply| format!("answers {}", reply.status));
        vec![Reached { source, result, needs: None }]
    }

    fn secrets(&self) -> Secrets {
        self.api.secrets()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_lives_as_long_as_its_shortest_lived_page() {
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

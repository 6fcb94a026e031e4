//! The two protocols of the `http` backend behind one interface: a JSON API, and a plugin of Argo CD.

use std::sync::Arc;

use serde_json::Value;

use super::{
    config::Config,
    format::Format,
    item_query::ItemQuery,
    json::Json,
    page::Page,
    paging::Paging,
    plugin::Plugin,
    redirect::Redirects,
    whole::{Asked, check_whole},
};
use crate::{Building, getparams};
use domain::{error::BackendError, secret::Secrets};
use lang::scope::ValueType;
use outbound::{Call, HttpClient, Reply};
use source::{Load, work_on};

/// The protocol of the upstream: how to call it, and how to read its answer.
#[derive(Debug)]
pub(super) enum Api {
    /// A JSON API.
    Json(Box<Json>),
    /// A plugin that speaks Argo CD's protocol.
    Plugin(Plugin),
}

impl Api {
    /// Builds the variant that `config` names: `url` or `plugin`.
    pub(super) fn build(
        config: &Config,
        client: Option<&Arc<HttpClient>>,
        building: &mut Building<'_>,
    ) -> Option<Self> {
        match (&config.url, &config.plugin) {
            (Some(url), None) => Json::build(config, url, client, building).map(|json| Self::Json(Box::new(json))),
            (None, Some(plugin)) => {
                let others = [
                    ("method", config.method.is_some()),
                    ("allowedHosts", !config.allowed_hosts.is_empty()),
                    ("credential", config.credential.is_some()),
                    ("headers", !config.headers.is_empty()),
                    ("body", config.body.is_some()),
                    ("forEach", config.for_each.is_some()),
                    ("absent", config.absent.is_some()),
                    ("format", config.format != Format::Json),
                    ("contentType", config.content_type.is_some()),
                    ("xmlLists", !config.xml_lists.is_empty()),
                    ("parameters", config.parameters.is_some()),
                    ("allowErrors", config.allow_errors),
                    ("paging", config.paging.is_some()),
                    ("redirects", config.redirects != Redirects::Refuse),
                ];
                for (key, _) in others.into_iter().filter(|(_, is_there)| *is_there) {
                    let help =
                        "a plugin is called as Argo CD calls it; leave the key out, or use its `url` as any JSON API";
                    building.key(key).error_with_help("it does not go with `plugin`", help);
                }
                Plugin::build(plugin, &mut building.key("plugin")).map(Self::Plugin)
            }
            (url, _) => {
                let help = "write `url` for a JSON API, or `plugin: { baseUrl: … }` for a plugin that speaks Argo CD's protocol";
                if url.is_some() {
                    building.error_with_help("`url` and `plugin` do not go together", help);
                } else {
                    building.problems.missing_key(&building.path, "url", Some(help));
                }
                None
            }
        }
    }

    /// The type of an item.
    pub(super) fn item(&self) -> ValueType {
        match self {
            Self::Json(json) => json.item.clone(),
            Self::Plugin(_) => ValueType::Anything,
        }
    }

    /// The secrets that are sent, which an answer could repeat.
    pub(super) fn secrets(&self) -> Secrets {
        match self {
            Self::Json(json) => json.secrets(),
            Self::Plugin(plugin) => plugin.secrets(),
        }
    }

    /// The items of `forEach`; `None` without a `forEach`.
    pub(super) async fn each(&self, query: ItemQuery<'_>) -> Result<Option<Vec<Value>>, BackendError> {
        match self {
            Self::Json(json) => json.each(query).await,
            Self::Plugin(_) => Ok(None),
        }
    }

    /// The first call for `query`, for an answer of at most `max_bytes`.
    pub(super) async fn call(&self, query: ItemQuery<'_>, max_bytes: usize) -> Result<Call, BackendError> {
        match self {
            Self::Json(json) => json.call(query, max_bytes).await,
            Self::Plugin(plugin) => plugin.call(query.query, max_bytes, query.deadline),
        }
    }

    /// Sends `call`, with the credential if one is configured.
    pub(super) async fn send(&self, client: &HttpClient, call: Call) -> Result<Reply, BackendError> {
        match self {
            Self::Json(json) => json.send(client, call).await,
            Self::Plugin(_) => client.fetch(call).await,
        }
    }

    /// Reads page `number` of the answer.
    pub(super) async fn read(&self, reply: Reply, query: ItemQuery<'_>, number: usize) -> Result<Page, BackendError> {
        let asks_for = match self {
            Self::Json(json) if number == 1 && json.is_absent(&reply, query).await? => return Ok(Page::absent()),
            Self::Json(json) if json.has_absent() => Asked::WithAbsent,
            Self::Json(_) => Asked::Json,
            Self::Plugin(_) => Asked::Plugin,
        };
        check_whole(&reply, number, asks_for)?;
        match self {
            Self::Json(json) => json.read(reply, query, number).await,
            // Argo CD ignores the content type, and many plugins set none.
            Self::Plugin(_) => {
                let load = Load::Bytes(reply.body.len());
                let read = move || getparams::read(&reply.body, || reply.excerpt(120));
                let sets = work_on(load, read).await?;
                Ok(Page { sets, next: None, counted: None, is_absent: false })
            }
        }
    }

    /// The server that is called; `None` if a value can change the host.
    pub(crate) fn fixed_destination(&self) -> Option<reqwest::Url> {
        match self {
            Self::Json(json) => json.fixed_destination(),
            Self::Plugin(plugin) => Some(plugin.url().clone()),
        }
    }

    /// How the list continues, if it comes in pages.
    pub(super) fn paging(&self) -> Option<&Paging> {
        match self {
            Self::Json(json) => json.paging(),
            Self::Plugin(_) => None,
        }
    }

    /// Whether the answer depends on the time.
    pub(super) fn uses_now(&self) -> bool {
        match self {
            Self::Json(json) => json.uses_now(),
            Self::Plugin(_) => false,
        }
    }

    /// The treatment of a redirect.
    pub(super) fn redirects(&self) -> Redirects {
        match self {
            Self::Json(json) => json.redirects,
            Self::Plugin(_) => Redirects::Refuse,
        }
    }
}

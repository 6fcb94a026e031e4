//! The configuration of the `http` backend.

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{paging, plugin, redirect::Redirects};
use crate::{
    backend::{credential, request::Method},
    clients::outbound::ClientCertificate,
    domain::{
        secret::TextOrSecret,
        units::{ByteSize, HumanDuration},
    },
};

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

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

const fn default_max_body() -> ByteSize {
    ByteSize::mib(8)
}

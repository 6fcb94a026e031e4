//! The configuration of the `http` backend.

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    format::{ContentTypes, Format},
    paging, plugin,
    redirect::Redirects,
};
use crate::{credential, request::Method};
use domain::{
    document::exact,
    secret::HeaderText,
    units::{ByteSize, HumanDuration},
};
use outbound::ClientCertificate;

/// A request, and how to read its answer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "HttpBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The method. The gateway may repeat a request at any time, so the request must change nothing.
    pub method: Option<Method>,
    /// The URL, a template. It can use `params` and `applicationSet`, in a later step of a pipeline also `items`, and with `forEach` also
    /// `each`. Values are percent-encoded. The scheme must be literal, and so must the host unless `allowedHosts` is set.
    pub url: Option<String>,
    /// The hosts that may be called if a value is part of the URL's host. An entry is a host such as `inventory.example.com`, or
    /// `*.example.com` for all names below `example.com`. A port that is not the scheme's default follows after a `:`.
    #[serde(default)]
    pub allowed_hosts: Vec<String>,
    /// Instead of `url`: a plugin that speaks Argo CD's own protocol. It is called as Argo CD would call it.
    pub plugin: Option<plugin::PluginConfig>,
    /// The credential, sent as `Authorization`.
    pub credential: Option<credential::Config>,
    /// Headers. A value is a template, or a secret reference, which may have a `prefix`.
    #[serde(default)]
    pub headers: BTreeMap<String, HeaderText>,
    /// The body, sent as JSON. Its strings are templates. A string that is only `"{{ items }}"` becomes the list of items itself.
    #[serde(default)]
    #[serde(deserialize_with = "exact::read")]
    pub body: Option<Value>,
    /// A CEL expression that makes a list. It can use `params`, and in a later step of a pipeline also `items`. The upstream is called once
    /// for each item of that list. Templates and `parameters` see the item as `each`. All answers together are the list; if one request
    /// fails, the whole answer is unknown.
    pub for_each: Option<String>,
    /// The format of the upstream's documents. `body` has the values of the document, whatever its format.
    #[serde(default)]
    pub(crate) format: Format,
    /// The content types that are accepted as such a document: `any`, or a list such as `[text/plain]`. Unless set, those of the format.
    pub(crate) content_type: Option<ContentTypes>,
    /// With `format: xml`: elements that are always lists, by their path from the root element on, such as `ListBucketResult/Contents`. Without
    /// this key, an element that occurs once is not a list.
    #[serde(default)]
    pub(crate) xml_lists: Vec<String>,
    /// A CEL expression that makes the list of objects; `body` unless set. It can use `body`, `status`, `headers` and `params`, with
    /// `forEach` also `each`, and in a later step of a pipeline also `items`.
    pub parameters: Option<String>,
    /// A CEL expression over `status`, `headers`, `body` and `params`, with `forEach` also `each`, and in a later step of a pipeline also
    /// `items`. Where it is true, the first reply proves that there is nothing: an empty list. It sees 200 and 201, and if it looks at `status`
    /// also the 4xx that may be about the thing that was asked for, such as 404; never 401, 403, 407, 408, 429 or 5xx. The reply's content
    /// type must be accepted. `body` is null if the body of a 4xx is not a document.
    pub absent: Option<String>,
    /// Accept a document with a non-empty `error` or `errors` at its top level. Without this key, such a document is always an error.
    /// Set it for an API that uses these keys for something else.
    #[serde(default)]
    pub(crate) allow_errors: bool,
    /// How to find the next page of a list. All pages are read; if one page fails, the whole answer is unknown.
    pub paging: Option<paging::PagingConfig>,
    /// The treatment of a redirect: `refuse` makes it an error, `sameOrigin` follows it if scheme, host and port stay the same.
    #[serde(default)]
    pub redirects: Redirects,
    /// Let the answer's `Cache-Control` say how long the answer is fresh, instead of the route's `cache.ttl`.
    #[serde(default)]
    pub(crate) honor_cache_control: bool,
    /// A PEM file with certificates of private CAs, relative to the configuration file. They are trusted in addition to the
    /// system's. The file is read again every 30 s.
    pub ca: Option<PathBuf>,
    /// The gateway's client certificate. Its files are read again every 30 s.
    pub client_certificate: Option<ClientCertificate>,
    /// Accept any certificate. Somebody between the gateway and the server can then read the credential and change the answers.
    #[serde(default)]
    pub insecure_skip_verify: bool,
    /// How long the whole exchange may take, with all waits and retries.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
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

//! A request to a URL of the configuration. Templates and secrets fill in its URL, headers and body.

mod body;
mod url;

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use self::{body::Tree, url::UrlTemplate};
use domain::{
    document::Document,
    error::BackendError,
    file::base_dir::BaseDir,
    problem::{Path, Problems},
    secret::{HeaderSecret, HeaderText, Secrets, literal},
};
use lang::{
    evaluator::Context,
    scope::NameScope,
    template::{Template, ValueContext},
};
use outbound::{Call, Reply, warn_of_cleartext};

/// The HTTP method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// `GET`
    #[default]
    Get,
    /// `POST`, for a query with a body.
    Post,
}

/// The parts of a request, as configured.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// The HTTP method.
    pub method: Method,
    /// The URL's template.
    pub url: &'a str,
    /// The hosts that may be called if a value is part of the URL's host.
    pub allowed_hosts: &'a [String],
    /// The headers. Each value is a template or a secret.
    pub headers: &'a BTreeMap<String, HeaderText>,
    /// The body. Its strings are templates.
    pub body: Option<&'a Value>,
    /// The names that the templates can use.
    pub scope: &'a NameScope,
}

/// A request with its parsed templates.
#[derive(Debug)]
pub struct Request {
    base: BaseDir,
    method: Method,
    url: UrlTemplate,
    headers: Vec<(HeaderName, HeaderSource)>,
    body: Option<Tree>,
}

#[derive(Debug)]
enum HeaderSource {
    Template(Template),
    Secret(HeaderSecret),
}

impl Request {
    /// Parses all templates. Notes problems of `url`, `headers` and `body` below `path`.
    pub fn build(parts: Parts<'_>, base: &BaseDir, path: &Path, problems: &mut Problems) -> Option<Self> {
        let url = UrlTemplate::build(parts.url, parts.allowed_hosts, parts.scope, path, problems);
        let headers = build_headers(parts, base, &path.key("headers"), problems);
        let body = parts.body.map(|body| Tree::build(body, parts.scope, &path.key("body"), problems));
        if parts.body.is_some() && parts.method == Method::Get {
            problems.error_with_help(&path.key("body"), "a GET has no body", "write `method: POST`");
        }
        Some(Self { base: base.clone(), method: parts.method, url: url?, headers, body: body.flatten() })
    }

    /// The request with the values of `context`. The answer may have `max_bytes` bytes and must arrive by `deadline`.
    ///
    /// # Errors
    /// When a value is missing or not allowed at its place, or a secret cannot be read.
    pub async fn call(&self, context: &Context, max_bytes: usize, deadline: Instant) -> Result<Call, BackendError> {
        let invalid = BackendError::invalid_input;
        let url = self.url.render(context).await.map_err(|error| error.within("url").into_backend_error(invalid))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        for (name, source) in &self.headers {
            headers.insert(name, source.value(name, &self.base, context).await?);
        }
        let body = match &self.body {
            Some(tree) => {
                headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
                let value =
                    tree.render(context).await.map_err(|error| error.within("body").into_backend_error(invalid))?;
                Some(Bytes::from(value.to_string()))
            }
            None => None,
        };
        let method = match self.method {
            Method::Get => http::Method::GET,
            Method::Post => http::Method::POST,
        };
        // With `revalidate`, a list that has not changed costs only a 304.
        Ok(Call { method, headers, body, revalidate: true, ..Call::get(url, max_bytes, deadline) })
    }

    /// Warns at `path` of the secrets in its headers, or of another credential that it `has`, if its URL begins with `http://` and is not on this
    /// machine.
    pub fn warn_of_cleartext(&self, has_credential: bool, path: &Path, problems: &mut Problems) {
        let has_secret = self.headers.iter().any(|(_, source)| matches!(source, HeaderSource::Secret(_)));
        let url = self.fixed_destination().or_else(|| {
            let is_plain = self.url.source().starts_with("http://");
            is_plain.then(|| ::url::Url::parse("http://a-host-of-a-parameter").ok()).flatten()
        });
        if let Some(url) = url.filter(|_| has_secret || has_credential) {
            warn_of_cleartext(&url, &path.key("url"), problems);
        }
    }

    /// The beginning of the URL; `None` if a value can change the host.
    #[must_use]
    pub(crate) fn fixed_destination(&self) -> Option<::url::Url> {
        self.url.fixed_destination()
    }

    /// The secrets that the request sends.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        let references = self.headers.iter().filter_map(|(_, source)| match source {
            HeaderSource::Template(_) => None,
            HeaderSource::Secret(secret) => secret.reference.read(&self.base).ok(),
        });
        references.collect()
    }

    /// Whether a template uses the ApplicationSet's name.
    #[must_use]
    pub fn reads_application_set(&self) -> bool {
        self.reads("applicationSet")
    }

    /// Whether a template uses the top-level name `top`.
    pub(crate) fn reads(&self, top: &str) -> bool {
        let in_headers = self.headers.iter().any(|(_, source)| match source {
            HeaderSource::Template(template) => template.reads(top),
            HeaderSource::Secret(_) => false,
        });
        self.url.reads(top) || in_headers || self.body.as_ref().is_some_and(|body| body.reads(top))
    }
}

impl HeaderSource {
    async fn value(&self, name: &HeaderName, base: &BaseDir, context: &Context) -> Result<HeaderValue, BackendError> {
        match self {
            Self::Template(template) => {
                let text = context.render(template).await;
                let text = text.map_err(|error| error.within(name).into_backend_error(BackendError::invalid_input))?;
                HeaderValue::from_str(&text).map_err(|_| {
                    BackendError::invalid_input(format!("the header {name} cannot hold this parameter's value"))
                })
            }
            Self::Secret(secret) => secret.header(base),
        }
    }
}

/// The headers of `reply`, as expressions see them: an object of texts, with names in lower case. Of several headers with
/// one name, the last counts.
#[must_use]
pub(crate) fn headers_of(reply: &Reply) -> Document<'_> {
    let text = |name: &HeaderName| {
        reply.headers.get_all(name).iter().next_back().map(HeaderValue::as_bytes).unwrap_or_default()
    };
    let headers = reply.headers.keys().map(|name| (name.as_str(), String::from_utf8_lossy(text(name))));
    Document::Object(headers.map(|(name, text)| (name.into(), Document::Text(text))).collect())
}

fn build_headers(
    parts: Parts<'_>,
    base: &BaseDir,
    path: &Path,
    problems: &mut Problems,
) -> Vec<(HeaderName, HeaderSource)> {
    let mut headers = Vec::new();
    for (written, value) in parts.headers {
        let (path, name) = (path.key(written), written);
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
            HeaderText::Text(text) => {
                literal::check(written, text, &path, problems);
                Template::build(text, ValueContext::Text, parts.scope, &path, problems).map(HeaderSource::Template)
            }
            HeaderText::Secret(secret) => {
                secret.check(base, &path, problems);
                Some(HeaderSource::Secret(secret.clone()))
            }
        };
        headers.extend(source.map(|source| (name, source)));
    }
    headers
}

//! `plugin`: a plugin that speaks Argo CD's own protocol. It is called as Argo CD would call it.

use http::{HeaderMap, HeaderValue, Method, header};
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use crate::{Building, getparams};
use domain::{
    document,
    error::BackendError,
    file::base_dir::BaseDir,
    generator::Query,
    secret::{SecretRef, Secrets},
};
use outbound::{Call, UrlError, fixed_url, is_inner_name, warn_of_cleartext};

/// The path that Argo CD adds to a plugin's `baseUrl`.
const PATH: &str = "api/v1/getparams.execute";

/// A plugin. The keys are those of the ConfigMap to which an ApplicationSet's `configMapRef` points.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "HttpPlugin")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginConfig {
    /// The plugin's URL. `/api/v1/getparams.execute` is added.
    pub base_url: String,
    /// The token that the plugin expects. Without this key, no token is sent.
    pub token: Option<SecretRef>,
}

/// A plugin with its full URL.
#[derive(Debug)]
pub(super) struct Plugin {
    url: Url,
    token: Option<SecretRef>,
    base: BaseDir,
}

impl Plugin {
    /// Checks the URL and the token.
    pub(super) fn build(config: &PluginConfig, building: &mut Building<'_>) -> Option<Self> {
        let context = building.context;
        if let Some(token) = &config.token {
            building.key("token").check_secret(token);
        }
        let mut base_url = building.key("baseUrl");
        // It gets the whole call.
        base_url.note_reads(true);
        let url = base_url.note(address(&config.base_url))?;
        context.outbound.name_destination(Some(&url));
        // Within a cluster Argo CD itself calls its plugins so.
        if config.token.is_some() && !url.host_str().is_some_and(is_inner_name) {
            warn_of_cleartext(&url, &base_url.path, base_url.problems);
        }
        Some(Self { url, token: config.token.clone(), base: context.base.clone() })
    }

    /// The same request that Argo CD would send. The answer may have `max_bytes` bytes and must arrive by `deadline`.
    ///
    /// # Errors
    /// When the token cannot be read.
    pub(super) fn call(&self, query: &Query, max_bytes: usize, deadline: Instant) -> Result<Call, BackendError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.token {
            headers.insert(header::AUTHORIZATION, token.header(&self.base, "Bearer ")?);
        }
        let body = Some(document::line(&getparams::PluginRequest::of(query).without_empty_parameters()).into());
        Ok(Call { method: Method::POST, headers, body, ..Call::get(self.url.clone(), max_bytes, deadline) })
    }

    /// The plugin's URL.
    pub(super) const fn url(&self) -> &Url {
        &self.url
    }

    /// The token.
    #[must_use]
    pub(super) fn secrets(&self) -> Secrets {
        self.token.iter().filter_map(|token| token.read(&self.base).ok()).collect()
    }
}

/// Why a base URL cannot be that of a plugin.
#[derive(Debug, thiserror::Error)]
enum BaseUrlError {
    /// It cannot be fetched.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// It has a query or a fragment.
    #[error("it has a `?` or `#`, and Argo CD adds its path to the end; name the plugin's address only")]
    Parts,
    /// It has the path that is added.
    #[error("leave `/{PATH}` out: it is added")]
    WithPath,
    /// With the path it is not a URL.
    #[error(transparent)]
    Joined(#[from] url::ParseError),
}

/// The URL of the plugin with the base URL `base`. Joins the path as Argo CD does: keeps a prefix, and adds a missing `/`.
fn address(base: &str) -> Result<Url, BaseUrlError> {
    let url = fixed_url(base)?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(BaseUrlError::Parts);
    }
    if url.path().trim_end_matches('/').ends_with("/getparams.execute") {
        return Err(BaseUrlError::WithPath);
    }
    let slash = if base.ends_with('/') { "" } else { "/" };
    Ok(Url::parse(&format!("{base}{slash}{PATH}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_added_as_argo_cd_adds_it() {
        for (base, url) in [
            ("http://hello-plugin", "http://hello-plugin/api/v1/getparams.execute"),
            ("http://hello-plugin/", "http://hello-plugin/api/v1/getparams.execute"),
            ("https://h:8443/team/a", "https://h:8443/team/a/api/v1/getparams.execute"),
        ] {
            assert_eq!(address(base).unwrap().as_str(), url);
        }
        for (base, says) in [
            ("hello-plugin", "not a URL"),
            ("ftp://h", "http://"),
            ("https://u:p@h/", "password"),
            ("https://h/?a=1", "`?`"),
            ("https://h/#a", "`?` or `#`"),
            ("https://h/api/v1/getparams.execute", "leave"),
        ] {
            let error = address(base).unwrap_err().to_string();
            assert!(error.contains(says), "{base}: {error}");
        }
    }
}

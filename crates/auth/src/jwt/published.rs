//! Keys that an issuer publishes: at a URL of the configuration, or at the URL in its discovery document ("`OpenID` Connect Discovery 1.0",
//! section 4). Anyone who can change the keys can let callers in, so the keys are fetched by https.

use std::{fmt::Display, net::IpAddr, str::FromStr, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, header};
use jsonwebtoken::Algorithm;
use reqwest::Url;
use serde::Deserialize;
use tokio::time::Instant;

use super::{config::JwksConfig, set::KeySet};
use crate::{
    AuthContext,
    url_policy::{UrlPolicyError, safe_url},
};
use domain::{
    document::{DocumentError, excerpt, parse_object},
    error::BackendError,
    file::base_dir::BaseDir,
    problem::{Path, Problems},
    secret::SecretRef,
    section::Section,
};
use outbound::{Call, HttpClient, Reply, TlsKeys, UrlError, check_link, fixed_url, is_safe, stays};

/// The largest set of keys that is read, in bytes.
const MAX_REPLY_BYTES: usize = 1024 * 1024;
/// The shortest allowed `refresh`.
const MIN_REFRESH: Duration = Duration::from_secs(1);

/// Why a discovery document cannot be used.
#[derive(Debug, thiserror::Error)]
enum DiscoveryError {
    /// The issuer is not a URL.
    #[error("the issuer is not a URL that can be fetched: {0}")]
    Issuer(#[source] UrlError),
    /// The issuer has parts that the URL of an issuer cannot have.
    #[error("the URL of an issuer has no query and no fragment")]
    IssuerParts,
    /// Its own URL may not decide who is a caller.
    #[error(transparent)]
    Url(#[from] UrlPolicyError),
    /// It has another form.
    #[error("it is not a discovery document: {0}")]
    Form(#[source] DocumentError),
    /// It is for another issuer.
    #[error("it is for the issuer `{found}`, not for `{issuer}`")]
    OtherIssuer {
        /// Its issuer.
        found: String,
        /// The issuer of the configuration.
        issuer: String,
    },
    /// The URL of the keys is not a URL.
    #[error("its `jwks_uri` is not a URL: {0}")]
    KeysUrl(#[source] <Url as FromStr>::Err),
    /// The URL of the keys is not one that may be followed; the text has the reason.
    #[error("its `jwks_uri` {0}")]
    KeysLink(String),
    /// The URL of the keys is neither https nor on this machine.
    #[error("its `jwks_uri` is not https")]
    KeysNotHttps,
}

/// The source of published keys.
#[derive(Debug)]
pub(super) struct Published {
    url: Url,
    /// The issuer that the discovery document must name, if the URL is that document's.
    discovered: Option<String>,
    token: Option<SecretRef>,
    base: BaseDir,
    client: Arc<HttpClient>,
}

/// The fields of a discovery document that are used.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Published {
    /// The keys of `issuer`, by `url` or `discovery` of `config`, at `path`.
    pub(super) fn build(
        config: &JwksConfig,
        issuer: &str,
        means: AuthContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        let (key, url) = match &config.url {
            Some(url) => ("url", safe_url(url).map_err(DiscoveryError::from)),
            None => ("discovery", discovery(issuer)),
        };
        let url = problems.note(&path.key(key), url);
        means.outbound.name_destination(url.as_ref());
        if config.refresh.0 < MIN_REFRESH {
            problems.error(&path.key("refresh"), "it is less than 1s, which would overload the server");
        }
        if let Some(token) = &config.token {
            token.check(means.base, &path.key("token"), problems);
        }
        let keys = TlsKeys { ca: config.ca.as_ref(), ..TlsKeys::default() };
        let is_plain = url.as_ref().is_some_and(|url| url.scheme() == "http");
        let client = keys.client(is_plain, means.outbound, &mut Section::new(means.base, path.clone(), problems));
        Some(Self {
            url: url?,
            discovered: config.url.is_none().then(|| issuer.to_owned()),
            token: config.token.clone(),
            base: means.base.clone(),
            client: client?,
        })
    }

    /// Fetches the keys for the `pinned` algorithms.
    ///
    /// # Errors
    /// When there are none by `deadline`; the message names the server.
    pub(super) async fn fetch(&self, pinned: &[Algorithm], deadline: Instant) -> Result<KeySet, BackendError> {
        let found = match &self.discovered {
            None => self.url.clone(),
            Some(issuer) => {
                self.get(&self.url, deadline, |reply| {
                    keys_of(reply, issuer, &self.url, |address| self.client.allows(address))
                })
                .await?
            }
        };
        self.get(&found, deadline, |reply| KeySet::of_jwks(&reply.body, pinned)).await
    }

    /// Fetches the JSON document at `url` and parses it with `read`.
    async fn get<T, E: Display>(
        &self,
        url: &Url,
        deadline: Instant,
        read: impl FnOnce(&Reply) -> Result<T, E>,
    ) -> Result<T, BackendError> {
        let accept = HeaderValue::from_static("application/jwk-set+json, application/json");
        let mut headers = HeaderMap::from_iter([(header::ACCEPT, accept)]);
        if let Some(token) = self.token.as_ref().filter(|_| stays(&self.url, url)) {
            headers.insert(header::AUTHORIZATION, token.header(&self.base, "Bearer ")?);
        }
        let call =
            Call { headers, revalidate: true, ..Call::get(url.clone(), MAX_REPLY_BYTES, deadline).led_from(&self.url) };
        let shown = call.to_string();
        let reply = self.client.fetch(call).await?;
        let is_whole = if reply.status.as_u16() == 200 { reply.check_json() } else { Err(reply.refusal()) };
        let wrong = |error: E| BackendError::invalid_output(error.to_string());
        let found = is_whole.and_then(|()| read(&reply).map_err(wrong));
        found.map_err(|error| error.within(shown))
    }

    /// Whether `other` has the same source.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.url == other.url && self.discovered == other.discovered
    }
}

/// The URL of the discovery document of `issuer`.
fn discovery(issuer: &str) -> Result<Url, DiscoveryError> {
    let url = fixed_url(issuer).map_err(DiscoveryError::Issuer)?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(DiscoveryError::IssuerParts);
    }
    Ok(safe_url(&format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/')))?)
}

/// The URL of the keys, by the discovery document from `from`.
fn keys_of(reply: &Reply, issuer: &str, from: &Url, allows: impl Fn(IpAddr) -> bool) -> Result<Url, DiscoveryError> {
    let document: Discovery = parse_object(&reply.body).map_err(DiscoveryError::Form)?;
    if document.issuer != issuer {
        let found = excerpt(document.issuer.as_bytes(), 200);
        return Err(DiscoveryError::OtherIssuer { found, issuer: issuer.to_owned() });
    }
    let url = Url::parse(&document.jwks_uri).map_err(DiscoveryError::KeysUrl)?;
    check_link(&url, from, allows).map_err(DiscoveryError::KeysLink)?;
    if is_safe(&url) { Ok(url) } else { Err(DiscoveryError::KeysNotHttps) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::StatusCode;

    use super::*;
    use domain::secret::Secrets;

    #[test]
    fn the_discovery_url_is_below_the_issuer() {
        assert_eq!(
            discovery("https://i.example/realms/a/").unwrap().as_str(),
            "https://i.example/realms/a/.well-known/openid-configuration"
        );
        for bad in
            ["accounts.google.com", "https://i.example?x=1", "https://i.example#x", "urn:issuer", "https://u@i.example"]
        {
            assert!(discovery(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_discovery_document_counts_for_its_own_issuer_only() {
        let find = |body: &str, from: &str| {
            let reply = Reply {
                status: StatusCode::OK,
                headers: HeaderMap::new(),
                body: Bytes::copy_from_slice(body.as_bytes()),
                secrets: Secrets::default(),
                retry_after: None,
                attempts: 1,
            };
            let url = keys_of(&reply, "https://i.example", &Url::parse(from).unwrap(), |_| false);
            url.map(|url| url.to_string()).map_err(|error| error.to_string())
        };
        let discovery = |jwks_uri: &str| format!(r#"{{"issuer":"https://i.example","jwks_uri":"{jwks_uri}","x":1}}"#);
        let from = "https://i.example/.well-known/openid-configuration";
        assert_eq!(find(&discovery("https://keys.example/k"), from), Ok("https://keys.example/k".to_owned()));
        for (body, says) in [
            (discovery("http://i.example/k"), "is `http`, not https"),
            (discovery("https://10.0.0.1/k"), "inner address"),
            (discovery("https://localhost/k"), "inner address"),
            (discovery("https://u:p@keys.example/k"), "a user or a password"),
            (discovery("keys"), "is not a URL"),
            (
                r#"{"issuer":"https://evil.example","jwks_uri":"https://i.example/k"}"#.to_owned(),
                "is for the issuer `https://evil",
            ),
            (r#"{"issuer":"https://i.example"}"#.to_owned(), "is not a discovery document"),
            ("<html>".to_owned(), "is not a discovery document"),
        ] {
            let why = find(&body, from).unwrap_err();
            assert!(why.contains(says), "{body}: {why}");
        }
        // A cleartext URL on this machine may lead only to this machine.
        assert!(find(&discovery("http://127.0.0.1:1/k"), "http://127.0.0.1:1/").is_ok());
        assert!(find(&discovery("http://keys.example/k"), "http://127.0.0.1:1/").unwrap_err().contains("not https"));
    }
}

//! One request, as its sender describes it.

use std::{fmt, sync::Arc};

use base16ct::lower::encode_string;
use bytes::Bytes;
use http::{HeaderMap, Method, header};
use reqwest::Url;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use url::Position;

/// The account of requests without a credential.
pub const ANONYMOUS: &str = "anonymous";

/// One request.
#[derive(Debug, Clone)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// The full URL.
    pub url: Url,
    /// All headers except those of the transport. Headers with secrets are marked as sensitive.
    pub headers: HeaderMap,
    /// The body, if there is one.
    pub body: Option<Bytes>,
    /// The largest body that is accepted, in bytes.
    pub max_bytes: usize,
    /// When the complete answer must have arrived.
    pub deadline: Instant,
    /// The account for rate limits that a destination sets per credential. Without it, a hash of the sensitive headers is the account.
    /// Set it if these headers change while the account stays the same.
    pub account: Option<Arc<str>>,
    /// Whether an answer with an `ETag` or `Last-Modified` is kept, so that the next request is conditional. A 304 then means that the
    /// kept answer is still valid.
    pub revalidate: bool,
    /// Whether the request may be sent again after a failure.
    pub may_repeat: bool,
    /// Whether an answer of another host led here. Then requests go only to public addresses, and to those that
    /// `outbound.allowAddresses` names.
    pub is_led: bool,
    /// What `record` writes in place of the answer's body, if that holds secrets that belong to nobody's header.
    pub recorded_as: Option<fn(&[u8]) -> Bytes>,
}

impl Call {
    /// A `GET` of `url` without headers.
    #[must_use]
    pub fn get(url: Url, max_bytes: usize, deadline: Instant) -> Self {
        Self {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            body: None,
            max_bytes,
            deadline,
            account: None,
            revalidate: false,
            may_repeat: true,
            is_led: false,
            recorded_as: None,
        }
    }

    /// The same call, to which an answer of `from` led.
    #[must_use]
    pub fn led_from(self, from: &Url) -> Self {
        Self { is_led: self.is_led || self.url.host() != from.host(), ..self }
    }

    /// The method and the URL for a message, without user, query and fragment, which may hold secrets.
    #[must_use]
    pub fn describe(&self) -> String {
        let [scheme, separator, host, path] = destination(&self.url);
        format!("{} {scheme}{separator}{host}{path}", self.method)
    }

    /// The account of this call, without secrets: `account` if it is set, else that of [`account_of`].
    #[must_use]
    pub fn account(&self) -> Arc<str> {
        if let Some(account) = &self.account {
            return Arc::clone(account);
        }
        account_of(&self.headers)
    }
}

/// The account of requests with `headers`, without secrets: a hash of the credential, or [`ANONYMOUS`] without one.
#[must_use]
pub fn account_of(headers: &HeaderMap) -> Arc<str> {
    let mut hash = None;
    for (name, value) in headers {
        if value.is_sensitive() || name == header::AUTHORIZATION {
            let hash = hash.get_or_insert_with(Sha256::new);
            for part in [name.as_str().as_bytes(), value.as_bytes()] {
                hash.update(part.len().to_le_bytes());
                hash.update(part);
            }
        }
    }
    hash.map_or_else(|| ANONYMOUS.into(), |hash| format!("sha256:{}", encode_string(&hash.finalize())).into())
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

/// `url` for a message, without user, query and fragment, which may hold secrets.
fn destination(url: &Url) -> [&str; 4] {
    [url.scheme(), "://", &url[Position::BeforeHost..Position::AfterPort], url.path()]
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[tokio::test]
    async fn a_destination_shows_no_secret() {
        let url = Url::parse("https://user:pass@h.example:8443/a/b?token=secret#f").unwrap();
        assert_eq!(destination(&url).concat(), "https://h.example:8443/a/b");
        for (url, shown) in [
            ("http://h.example:80?a=b", "http://h.example/"),
            ("https://u@[::1]:7/#f", "https://[::1]:7/"),
            ("http://10.1:8080/a%20b", "http://10.0.0.1:8080/a%20b"),
        ] {
            let call = Call::get(Url::parse(url).unwrap(), 1, Instant::now());
            assert_eq!(call.to_string(), format!("GET {shown}"));
        }
    }

    #[tokio::test]
    async fn an_account_is_its_credential() {
        let account = |headers: &[(&'static str, &'static str, bool)], named: Option<&str>| {
            let mut call = Call::get(Url::parse("https://h.example/").unwrap(), 1, Instant::now());
            for (name, value, is_sensitive) in headers {
                let mut value = HeaderValue::from_static(value);
                value.set_sensitive(*is_sensitive);
                call.headers.insert(*name, value);
            }
            call.account = named.map(Into::into);
            call.account().to_string()
        };
        assert_eq!(account(&[("accept", "x", false)], None), ANONYMOUS);
        let one = account(&[("accept", "x", false), ("private-token", "hunter2", true)], None);
        assert_eq!(one, account(&[("private-token", "hunter2", true)], None));
        assert!(one.starts_with("sha256:") && !one.contains("hunter2"));
        assert_ne!(one, account(&[("private-token", "hunter3", true)], None));
        assert_ne!(one, account(&[("authorization", "hunter2", false)], None));
        assert_eq!(account(&[("private-token", "hunter2", true)], Some("app 7")), "app 7");
    }
}

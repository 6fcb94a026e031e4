//! One request to a cloud, for a credential. No error quotes a reply that may hold one.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use reqwest::Url;
use tokio::time::Instant;
use url::form_urlencoded;

use domain::{
    clock::{Clock, Timestamp},
    error::{BackendError, ErrorKind},
    secret::Secret,
};
use outbound::{Call, HttpClient, Reply};
#[cfg(feature = "azure")]
use outbound::{ClientOptions, Outbound, Tls};

/// The largest reply, in bytes.
const MAX_REPLY_BYTES: usize = 1024 * 1024;
/// Clocks that differ by more are worth a word: clouds accept five minutes.
const SKEW: Duration = Duration::from_mins(2);
/// The shortest and the longest life of a credential. Others are cut.
const SHORTEST_LIFE: Duration = Duration::from_secs(10);
const LONGEST_LIFE: Duration = Duration::from_hours(12);

/// The headers of Azure by which a request is found: those of registries, of Entra ID and of other APIs.
const REQUEST_IDS: [&str; 2] = ["x-ms-correlation-request-id", "x-ms-request-id"];

/// How requests reach the clouds.
#[derive(Clone)]
pub(crate) struct Exchanges {
    /// For public endpoints.
    pub client: Arc<HttpClient>,
    /// For hosts with certificates of their own.
    #[cfg(feature = "azure")]
    pub public: Arc<Outbound>,
    /// For the metadata addresses, which nothing else may ask. Without a proxy.
    pub metadata: Arc<HttpClient>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The account for rate limits: a cloud that makes one identity pause has not refused another.
    pub account: Arc<str>,
}

/// A refusal in a cloud's own words.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    /// The cloud's code, such as `AccessDenied`.
    pub code: String,
    /// The cloud's text.
    pub message: String,
    /// The number by which the cloud finds the request.
    pub request_id: Option<String>,
}

impl Exchanges {
    /// The same ways for the identity that `account` describes.
    #[must_use]
    pub(crate) fn of(self, account: &str) -> Self {
        Self { account: account.into(), ..self }
    }

    /// The same ways, to a host that is reached with `tls`. Its certificate is checked in any case: a token for all registries goes there.
    ///
    /// # Errors
    /// When its certificates cannot be used.
    #[cfg(feature = "azure")]
    pub(crate) fn with_tls(&self, tls: &Tls) -> Result<Self, BackendError> {
        let client = self
            .public
            .client(ClientOptions { tls: Tls { is_checked: true, ..tls.clone() }, ..ClientOptions::default() });
        let client = client.map_err(|why| BackendError::unavailable(why.to_string()))?;
        Ok(Self { client, ..self.clone() })
    }

    /// `call` as the identity's own. Its account does not depend on which credential is in use.
    fn owned(&self, call: Call) -> Call {
        Call { account: Some(Arc::clone(&self.account)), ..call }
    }

    /// Sends `call`, whose body or URL holds `secrets`, and returns a reply with 200. `step` names it in errors. `refusal` reads the body of
    /// another status.
    ///
    /// # Errors
    /// When there is no such reply.
    pub(crate) async fn send(
        &self,
        step: &str,
        call: Call,
        secrets: &[Secret],
        refusal: fn(&Reply) -> Option<Refusal>,
    ) -> Result<Reply, BackendError> {
        let shown = format!("{step}: {call}");
        let reply = self.client.fetch(self.owned(call)).await;
        self.read(reply.map_err(|error| error.within(step))?, &shown, secrets, refusal)
    }

    /// The same at a metadata address.
    ///
    /// # Errors
    /// When there is no such reply. `advice` says what often is the reason if none arrives.
    pub(crate) async fn ask_metadata(
        &self,
        step: &str,
        call: Call,
        secrets: &[Secret],
        advice: &str,
    ) -> Result<Reply, BackendError> {
        let shown = format!("{step}: {call}");
        let reply = self.metadata.fetch(self.owned(call)).await.map_err(|mut error| {
            error.message = format!("{step}: {}; {advice}", error.message);
            error
        })?;
        self.read(reply, &shown, secrets, json_refusal)
    }

    fn read(
        &self,
        mut reply: Reply,
        shown: &str,
        secrets: &[Secret],
        refusal: fn(&Reply) -> Option<Refusal>,
    ) -> Result<Reply, BackendError> {
        for secret in secrets {
            reply.secrets.push(secret.clone());
        }
        if reply.status == StatusCode::OK {
            return Ok(reply);
        }
        let skew = skew(&reply, self.clock.now()).map(|skew| format!("; {skew}")).unwrap_or_default();
        let error = match refusal(&reply) {
            Some(refusal) => refusal.into_error(&reply),
            None => reply.refusal(),
        };
        let error = BackendError { message: format!("{}{skew}", error.message), ..error };
        Err(reply.secrets.clean(&error).within(shown))
    }
}

impl Refusal {
    fn into_error(self, reply: &Reply) -> BackendError {
        let Self { code, message, request_id } = self;
        let is_limit = reply.is_limit() || code.contains("Throttl") || code == "RequestLimitExceeded";
        let kind = match reply.status {
            _ if is_limit => ErrorKind::Throttled { retry_after: reply.retry_after },
            status if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => ErrorKind::Unavailable,
            _ => ErrorKind::Denied,
        };
        let id = request_id.map(|id| format!(" (request {})", reply.secrets.excerpt(id.as_bytes(), 80)));
        let message = reply.secrets.excerpt(message.as_bytes(), 500);
        let code = reply.secrets.excerpt(code.as_bytes(), 80);
        let colon = if message.is_empty() { "" } else { ": " };
        BackendError::new(kind, format!("{}: {code}{colon}{message}{}", reply.status.as_u16(), id.unwrap_or_default()))
    }
}

/// The refusal in a JSON body: those of OAuth 2.0, of Google's and Azure's APIs, and of metadata servers.
pub(crate) fn json_refusal(reply: &Reply) -> Option<Refusal> {
    let body: serde_json::Value = serde_json::from_slice(&reply.body).ok()?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let error = body.get("error").or_else(|| body.get("errors").and_then(|errors| errors.get(0)))?;
    let of_body = ["correlation_id", "trace_id"].iter().find_map(|key| body.get(key).and_then(text));
    // Google's APIs name it among the details (google.rpc.RequestInfo), Azure's in headers.
    let mut details = error.get("details").and_then(serde_json::Value::as_array).into_iter().flatten();
    let of_details = || details.find_map(|detail| detail.get("requestId").and_then(text));
    let of_header = |name: &&str| Some(reply.headers.get(*name)?.to_str().ok()?.to_owned());
    let request_id = of_body.or_else(of_details).or_else(|| REQUEST_IDS.iter().find_map(of_header));
    if let Some(code) = text(error) {
        let message = body.get("error_description").and_then(text).unwrap_or_default();
        return Some(Refusal { code, message, request_id });
    }
    let code = ["status", "code"].iter().find_map(|key| error.get(key).and_then(text)).unwrap_or_default();
    let message = error.get("message").and_then(text).unwrap_or_default();
    (!code.is_empty() || !message.is_empty()).then_some(Refusal { code, message, request_id })
}

/// A `POST` of `form` to `url`.
pub(crate) fn form(url: Url, form: &[(&str, &str)], deadline: Instant) -> Call {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    post(url, "application/x-www-form-urlencoded", body.into(), deadline)
}

/// A `POST` of `body` to `url`.
pub(crate) fn post(url: Url, kind: &'static str, body: Bytes, deadline: Instant) -> Call {
    let mut call = get(url, deadline);
    call.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Call { method: Method::POST, body: Some(body), ..call }
}

/// A `GET` of `url`.
pub(crate) fn get(url: Url, deadline: Instant) -> Call {
    let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("application/json"))]);
    Call { headers, ..Call::get(url, MAX_REPLY_BYTES, deadline) }
}

/// `scheme` and `token` as a header that never prints.
///
/// # Errors
/// When no header can carry it.
pub(crate) fn sensitive(scheme: &str, token: &str) -> Result<HeaderValue, BackendError> {
    let mut value = HeaderValue::try_from(format!("{scheme}{token}"))
        .map_err(|_| BackendError::invalid_output("the credential holds characters that no header can carry"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The life of a credential that ends at `ends` (RFC 3339), by the clock of the server that sent `reply`: this machine's may be wrong.
///
/// # Errors
/// When `ends` is not a time, or has passed.
#[cfg(any(feature = "aws", feature = "google"))]
pub(crate) fn life_until(ends: &str, reply: &Reply, now: Timestamp) -> Result<Duration, BackendError> {
    let bad = |what: &str| BackendError::invalid_output(format!("its time of expiry {what}"));
    let ends = humantime::parse_rfc3339_weak(ends).map_err(|_| bad("is not a time"))?;
    let ends = ends.duration_since(UNIX_EPOCH).map_err(|_| bad("has passed"))?;
    let lasts =
        ends.checked_sub(now_at(reply, now)).filter(|lasts| !lasts.is_zero()).ok_or_else(|| bad("has passed"))?;
    Ok(lasts.clamp(SHORTEST_LIFE, LONGEST_LIFE))
}

/// The life `seconds` within what is kept.
pub(crate) fn life(lasts: Duration) -> Duration {
    lasts.clamp(SHORTEST_LIFE, LONGEST_LIFE)
}

/// The time since 1970 at the server that sent `reply`; here, it is `now`.
#[cfg(any(feature = "aws", feature = "google"))]
pub(crate) fn now_at(reply: &Reply, now: Timestamp) -> Duration {
    date(reply).unwrap_or_else(|| Duration::from_millis(now.0))
}

/// The time since 1970 at the server, if it says so.
fn date(reply: &Reply) -> Option<Duration> {
    let date = httpdate::parse_http_date(reply.headers.get(header::DATE)?.to_str().ok()?).ok()?;
    date.duration_since(UNIX_EPOCH).ok()
}

/// A note if this machine's clock differs much from the server's.
fn skew(reply: &Reply, now: Timestamp) -> Option<String> {
    let (there, here) = (date(reply)?, Duration::from_millis(now.0));
    let how = if here > there { "ahead of" } else { "behind" };
    let by = here.abs_diff(there);
    (by > SKEW).then(|| format!("this machine's clock is {} s {how} the server's", by.as_secs()))
}

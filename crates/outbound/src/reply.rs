//! One whole answer, and the meaning of an unwelcome status.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use domain::{
    error::{BackendError, ErrorKind},
    secret::Secrets,
};

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The status. It may be any status, also that of an error.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The complete body, at most `Call::max_bytes` bytes.
    pub body: Bytes,
    /// The secrets of the call's headers, which no message about this answer may repeat.
    pub secrets: Secrets,
    /// The pause that the answer demands of the gateway.
    pub retry_after: Option<Duration>,
    /// How often the request was sent.
    pub attempts: u32,
}

impl Reply {
    /// The first `max_chars` characters of the body, for a message.
    #[must_use]
    pub fn excerpt(&self, max_chars: usize) -> String {
        self.secrets.excerpt(&self.body, max_chars)
    }

    /// Whether the content type is JSON.
    ///
    /// # Errors
    /// When it is another content type, which the error names.
    pub fn check_json(&self) -> Result<(), BackendError> {
        let content_type = self.headers.get(header::CONTENT_TYPE).map_or_else(Default::default, HeaderValue::as_bytes);
        if content_type == b"application/json" {
            return Ok(());
        }
        let content_type = String::from_utf8_lossy(content_type);
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")) {
            return Ok(());
        }
        Err(BackendError::invalid_output(format!(
            "the content type is `{}`, not JSON: {}",
            self.secrets.excerpt(content_type.as_bytes(), 80),
            self.excerpt(200)
        )))
    }

    /// Whether status and headers are those of a whole answer: 200 or 201, without `Content-Range`. 202 is not finished,
    /// 206 is a part, 207 is several answers, 204 is none.
    ///
    /// # Errors
    /// When the answer is not whole. The error has the reason.
    pub fn check_whole(&self) -> Result<(), BackendError> {
        let invalid = |why: String| Err(BackendError::invalid_output(why));
        if !matches!(self.status, StatusCode::OK | StatusCode::CREATED) {
            return invalid(format!("{} is not a whole answer; an empty list must be an explicit 200", self.status));
        }
        if self.headers.contains_key(header::CONTENT_RANGE) {
            return invalid("it is only a part of the answer (`Content-Range`)".to_owned());
        }
        let encoding = self.headers.get(header::CONTENT_ENCODING).map_or_else(Default::default, HeaderValue::as_bytes);
        if !encoding.is_empty() && !encoding.eq_ignore_ascii_case(b"identity") {
            return invalid(format!(
                "it is encoded (`{}`), which was not requested",
                self.secrets.excerpt(encoding, 40)
            ));
        }
        Ok(())
    }

    /// Whether the answer means that a rate limit is reached. GitHub sends a 403 with a time for that.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS
            || (self.status == StatusCode::FORBIDDEN && self.retry_after.is_some())
    }

    /// The error for an unwelcome status. It quotes the start of the body, which often names the reason.
    #[must_use]
    pub fn refusal(&self) -> BackendError {
        let status = self.status;
        let excerpt = self.excerpt(200);
        let excerpt = if excerpt.is_empty() { String::new() } else { format!(": {excerpt}") };
        match status {
            _ if self.is_limit() => {
                let kind = ErrorKind::Throttled { retry_after: self.retry_after };
                BackendError::new(kind, format!("it demands a pause with {status}{excerpt}"))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                BackendError::new(ErrorKind::Denied, format!("access denied ({status}){excerpt}; check the credential"))
            }
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                let advice = "check `username` and `password` of `outbound.proxy`";
                BackendError::new(
                    ErrorKind::Denied,
                    format!("the proxy demands a credential ({status}){excerpt}; {advice}"),
                )
            }
            _ if is_failure(status) => BackendError::unavailable(format!("it failed with {status}{excerpt}")),
            _ => BackendError::invalid_output(format!("unexpected status {status}{excerpt}")),
        }
    }
}

/// Whether `status` means that the destination itself has trouble, which may soon be over.
pub(crate) fn is_failure(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT
}

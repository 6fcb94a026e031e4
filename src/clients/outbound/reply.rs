//! One whole answer, and what an unwelcome one means.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::domain::{
    error::{BackendError, ErrorKind},
    secret::Secrets,
};

/// A whole answer.
#[derive(Debug)]
pub struct Reply {
    /// Any status: judging it is the caller's business.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The complete body, at most the call's `most` bytes.
    pub body: Bytes,
    /// What the call's sensitive headers held, which nothing that is told of this answer may repeat.
    pub secrets: Secrets,
    /// For how long it asks to be left alone.
    pub rest: Option<Duration>,
    /// How often the request was sent for it.
    pub attempts: u32,
}

impl Reply {
    /// The body's first words for a message, `most` characters of them.
    #[must_use]
    pub(crate) fn excerpt(&self, most: usize) -> String {
        self.secrets.excerpt(&self.body, most)
    }

    /// Whether it is JSON by its content type.
    ///
    /// # Errors
    /// With what it is instead.
    pub(crate) fn check_json(&self) -> Result<(), BackendError> {
        let content_type = self.headers.get(header::CONTENT_TYPE).map_or_else(Default::default, HeaderValue::as_bytes);
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

    /// Whether it is a whole answer by its status and headers: a 200 or 201, and no part of one. 202 is not done yet, 206 a part,
    /// 207 several answers, 204 nothing at all.
    ///
    /// # Errors
    /// With what it is instead.
    pub(crate) fn check_whole(&self) -> Result<(), BackendError> {
        let invalid = |why: String| Err(BackendError::invalid_output(why));
        if !matches!(self.status, StatusCode::OK | StatusCode::CREATED) {
            return invalid(format!("{} is no whole answer; an empty list must be an explicit 200", self.status));
        }
        if self.headers.contains_key(header::CONTENT_RANGE) {
            return invalid("it is a part (`Content-Range`), and a part is no answer".to_owned());
        }
        let encoding = self.headers.get(header::CONTENT_ENCODING).map_or_else(Default::default, HeaderValue::as_bytes);
        if !encoding.is_empty() && !encoding.eq_ignore_ascii_case(b"identity") {
            return invalid(format!(
                "it is encoded (`{}`), which was not asked for",
                self.secrets.excerpt(encoding, 40)
            ));
        }
        Ok(())
    }

    /// Whether it says that too much was asked. A 403 that names a time is a limit, as GitHub tells it.
    #[must_use]
    pub(crate) fn is_limit(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS || (self.status == StatusCode::FORBIDDEN && self.rest.is_some())
    }

    /// What a reply with an unwelcome status means. Its body's first words are told, since they often
    /// name the reason.
    #[must_use]
    pub fn refusal(&self) -> BackendError {
        let status = self.status;
        let said = self.excerpt(200);
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        match status {
            _ if self.is_limit() => {
                let kind = ErrorKind::Throttled { retry_after: self.rest };
                BackendError::new(kind, format!("it asks for a pause with {status}{said}"))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                BackendError::new(ErrorKind::Denied, format!("access denied ({status}){said}; check the credential"))
            }
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                let advice = "check `username` and `password` of `outbound.proxy`";
                BackendError::new(
                    ErrorKind::Denied,
                    format!("the proxy wants to know who asks ({status}){said}; {advice}"),
                )
            }
            _ if is_failure(status) => BackendError::unavailable(format!("it failed with {status}{said}")),
            _ => BackendError::invalid_output(format!("unexpected status {status}{said}")),
        }
    }
}

/// Whether a status says that the destination itself is in trouble, which may be over soon.
pub(crate) fn is_failure(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT
}

//! Queries of `appset-gateway test` and `record`: each is a request `SELECT postgres://host:5432/database?1=value`, whose body is the list of rows.

use http::{HeaderMap, Method, StatusCode};
use url::Url;

use super::client::Sql;
use crate::Backend as _;
use domain::{
    error::{BackendError, ErrorKind},
    replay::{HttpFault, HttpReply},
};

impl Sql {
    /// The recorded rows for `values`, or `None` if the database is to be queried.
    pub(super) fn replayed(&self, values: &[String]) -> Option<Result<String, BackendError>> {
        let reply = self.sources.as_ref()?.reply(&select(), &self.request(values))?;
        Some(match reply {
            Ok(HttpReply { status, body, .. }) if status.is_success() => {
                Ok(String::from_utf8_lossy(&body).into_owned())
            }
            Ok(HttpReply { status, body, .. }) => {
                let kind = match status {
                    StatusCode::FORBIDDEN => ErrorKind::Denied,
                    StatusCode::PAYLOAD_TOO_LARGE => ErrorKind::InvalidOutput,
                    _ => ErrorKind::Unavailable,
                };
                Err(BackendError::new(kind, format!("{}: {}", self.name, String::from_utf8_lossy(&body))))
            }
            Err(HttpFault::Timeout) => Err(BackendError::timeout(format!("{}: the query took too long", self.name))),
            Err(HttpFault::Missing(message)) => Err(BackendError::unavailable(message)),
            Err(HttpFault::Connect | HttpFault::Broken) => {
                Err(BackendError::unavailable(format!("{}: the database cannot be reached", self.name)))
            }
        })
    }

    /// Notes `result` if replies are recorded.
    pub(super) fn note(&self, values: &[String], result: &Result<String, BackendError>) {
        let Some(sources) = &self.sources else { return };
        let reply = |status: StatusCode, body: &str| HttpReply {
            status,
            headers: HeaderMap::new(),
            body: body.to_owned().into(),
        };
        let noted = match result {
            Ok(rows) => Ok(reply(StatusCode::OK, rows)),
            Err(error) => match error.kind {
                ErrorKind::Timeout => Err(HttpFault::Timeout),
                ErrorKind::Denied => Ok(reply(StatusCode::FORBIDDEN, &error.message)),
                ErrorKind::InvalidOutput => Ok(reply(StatusCode::PAYLOAD_TOO_LARGE, &error.message)),
                _ => Ok(reply(StatusCode::BAD_GATEWAY, &error.message)),
            },
        };
        sources.note_reply(&select(), &self.request(values), noted, &self.secrets());
    }

    /// The query as a recorded request: `SELECT postgres://host:5432/database?1=value`.
    fn request(&self, values: &[String]) -> Url {
        let mut url = self.name.clone();
        if !values.is_empty() {
            let numbered = values.iter().enumerate().map(|(index, value)| ((index + 1).to_string(), value));
            url.query_pairs_mut().extend_pairs(numbered);
        }
        url
    }
}

/// The method of a recorded query.
fn select() -> Method {
    Method::from_bytes(b"SELECT").unwrap_or(Method::GET)
}

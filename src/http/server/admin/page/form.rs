//! Reads forms.

use axum::body::Body;
use http::{header, request::Parts};
use url::form_urlencoded;

use super::super::super::{
    error::{ApiError, Code},
    read,
};

/// The fields of a form, each once.
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads a form from the body of a request with this `head`.
    ///
    /// # Errors
    /// When it is no form, too large, incomplete, or has a field twice.
    pub(super) async fn read(head: &Parts, body: Body) -> Result<Self, ApiError> {
        let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(ApiError::new(Code::UnsupportedMediaType, "the body must be a form of the page"));
        }
        let body = read(body).await?;
        let fields: Vec<(String, String)> = form_urlencoded::parse(&body).into_owned().collect();
        let is_twice = |index: usize| fields[..index].iter().any(|(name, _)| *name == fields[index].0);
        if (0..fields.len()).any(is_twice) {
            return Err(ApiError::new(Code::InvalidRequest, "the form has a field twice"));
        }
        Ok(Self(fields))
    }

    /// The value of a field.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

//! The body of a request: `{"applicationSetName":"x","input":{"parameters":{…}}}`.

use std::sync::Arc;

use domain::{
    document::{self, Document, DocumentError, Object},
    generator::Parameters,
};

/// Why a body is not a request of Argo CD's plugin generator.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It is not JSON.
    #[error(
        "the body is not one JSON document: {0}; expected {{\"applicationSetName\":\"…\",\"input\":{{\"parameters\":{{…}}}}}}"
    )]
    NotJson(#[source] DocumentError),
    /// It is JSON of this type.
    #[error("the body must be an object, not {0}")]
    NotAnObject(&'static str),
    /// A key has a value of another type.
    #[error("`{key}` must be {expected}, not {found}")]
    Type {
        /// The key.
        key: &'static str,
        /// The type that it must have.
        expected: &'static str,
        /// Its type.
        found: &'static str,
    },
}

/// The request of Argo CD's plugin generator. Other keys are ignored, because later versions may add some.
#[derive(Debug, PartialEq)]
pub struct GetParamsRequest {
    /// `applicationSetName`; empty if it is missing.
    pub application_set: Arc<str>,
    /// `applicationSetNamespace`, which a later Argo CD may send (argo-cd #26600).
    pub namespace: Option<Arc<str>>,
    /// `input.parameters`; empty if it or `input` is missing.
    pub parameters: Arc<Parameters>,
}

impl GetParamsRequest {
    /// Parses a body of any content type. The documentation's `curl -d` sends the content type of a form.
    ///
    /// # Errors
    /// When the body is not such a request; the text has the reason and the place.
    pub fn parse(body: &[u8]) -> Result<Self, RequestError> {
        let document = document::read(body).map_err(RequestError::NotJson)?;
        let Document::Object(mut body) = document else {
            return Err(RequestError::NotAnObject(document.kind()));
        };
        let application_set = name(body.take("applicationSetName"), "applicationSetName")?.unwrap_or_default();
        let namespace = name(body.take("applicationSetNamespace"), "applicationSetNamespace")?;
        let mut input = object(body.take("input"), "input")?;
        let parameters = object(input.take("parameters"), "input.parameters")?;
        Ok(Self { application_set, namespace, parameters: Arc::new(parameters.into()) })
    }
}

fn name(value: Option<Document<'_>>, key: &'static str) -> Result<Option<Arc<str>>, RequestError> {
    match value {
        None | Some(Document::Null) => Ok(None),
        Some(Document::Text(name)) => Ok(Some(Arc::from(name))),
        Some(other) => Err(RequestError::Type { key, expected: "a string", found: other.kind() }),
    }
}

fn object<'a>(value: Option<Document<'a>>, key: &'static str) -> Result<Object<'a>, RequestError> {
    match value {
        None | Some(Document::Null) => Ok(Object::default()),
        Some(Document::Object(object)) => Ok(object),
        Some(other) => Err(RequestError::Type { key, expected: "an object", found: other.kind() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parameters_are_empty() {
        for body in [
            r#"{"applicationSetName":"x","input":{"parameters":{}}}"#,
            r#"{"applicationSetName":"x","input":{}}"#,
            r#"{"applicationSetName":"x","input":null}"#,
            r#"{"applicationSetName":"x","input":{"parameters":null}}"#,
            "{\"applicationSetName\":\"x\"}\n",
        ] {
            let request = GetParamsRequest::parse(body.as_bytes()).unwrap();
            assert_eq!((&*request.application_set, request.parameters.len()), ("x", 0), "{body}");
        }
        assert_eq!(&*GetParamsRequest::parse(b"{}").unwrap().application_set, "");
        let request = GetParamsRequest::parse(br#"{"applicationSetName":"x","applicationSetNamespace":"teams"}"#);
        assert_eq!(request.unwrap().namespace.as_deref(), Some("teams"));
    }

    #[test]
    fn errors_say_what_is_wrong_and_where() {
        for (body, says) in [
            ("", "it is blank"),
            ("{", "EOF while parsing an object at line 1 column 1"),
            ("[]", "must be an object, not a list"),
            (r#"{"applicationSetName":1}"#, "`applicationSetName` must be a string, not a number"),
            (r#"{"applicationSetNamespace":[]}"#, "`applicationSetNamespace` must be a string, not a list"),
            (r#"{"input":[]}"#, "`input` must be an object, not a list"),
            (r#"{"input":{"parameters":"x"}}"#, "`input.parameters` must be an object, not a string"),
            (r#"{"input":{"parameters":{"a":1,"a":2}}}"#, "the key `a` stands twice at line 1"),
            ("branch=main", "line 1 column 1"),
        ] {
            let error = GetParamsRequest::parse(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says), "{body}: {error}");
        }
    }
}

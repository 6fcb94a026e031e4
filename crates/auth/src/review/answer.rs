//! The API server's answer about a token: the `status` of a `TokenReview` (authentication.k8s.io/v1).

use serde::Deserialize;

use domain::document::{DocumentError, excerpt, parse_object};

/// The holder of a token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct User {
    /// The user's name.
    pub username: String,
    /// The user's groups.
    pub groups: Vec<String>,
}

/// The API server's answer about a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReviewAnswer {
    /// It belongs to this user, and is for one of the requested audiences.
    Theirs(User),
    /// It is good, but not for a requested audience.
    ForOthers,
    /// It is not good. The text is the server's.
    Nobodys(String),
}

/// Why an answer of the API server cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    /// It has another form.
    #[error("the answer is not a TokenReview: {0}")]
    Form(#[source] DocumentError),
    /// The user has no usable name. This is the beginning of the name.
    #[error("the answer is not a TokenReview: the user's name is `{0}`")]
    UserName(String),
}

#[derive(Deserialize)]
struct Review {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Status {
    authenticated: bool,
    user: User,
    audiences: Vec<String>,
    error: String,
}

impl ReviewAnswer {
    /// Parses the answer to a review for `audiences`. A server that does not support audiences returns none; the token may then be for any
    /// service.
    ///
    /// # Errors
    /// When it is not a `TokenReview`.
    pub(super) fn read(body: &[u8], audiences: &[String]) -> Result<Self, ReviewError> {
        let Review { status } = parse_object(body).map_err(ReviewError::Form)?;
        if !status.authenticated {
            return Ok(Self::Nobodys(status.error));
        }
        if !status.audiences.iter().any(|audience| audiences.contains(audience)) {
            return Ok(Self::ForOthers);
        }
        let name = &status.user.username;
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(ReviewError::UserName(excerpt(name.as_bytes(), 80)));
        }
        Ok(Self::Theirs(status.user))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(status: &Value) -> Result<ReviewAnswer, String> {
        let body =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}, "status": status});
        ReviewAnswer::read(body.to_string().as_bytes(), &["gateway".to_owned()]).map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_is_taken_with_its_audience_only() {
        let user = json!({"username": "u", "uid": "1", "groups": ["g"], "extra": {"x": ["y"]}});
        let theirs = ReviewAnswer::Theirs(User { username: "u".to_owned(), groups: vec!["g".to_owned()] });
        assert_eq!(read(&json!({"authenticated": true, "user": user, "audiences": ["x", "gateway"]})), Ok(theirs));
        for audiences in [json!([]), json!(["https://kubernetes.default.svc"])] {
            assert_eq!(
                read(&json!({"authenticated": true, "user": user, "audiences": audiences})),
                Ok(ReviewAnswer::ForOthers)
            );
        }
        assert_eq!(read(&json!({"authenticated": true, "user": user})), Ok(ReviewAnswer::ForOthers));
        assert_eq!(read(&json!({"error": "expired"})), Ok(ReviewAnswer::Nobodys("expired".to_owned())));
        assert_eq!(
            read(&json!({"authenticated": false, "user": user, "audiences": ["gateway"]})),
            Ok(ReviewAnswer::Nobodys(String::new()))
        );
        assert_eq!(read(&json!({})), Ok(ReviewAnswer::Nobodys(String::new())));
    }

    #[test]
    fn what_is_no_review_is_not_accepted() {
        for status in [Value::Null, json!("ok"), json!({"authenticated": "true"}), json!({"authenticated": 1})] {
            assert!(read(&status).is_err(), "{status}");
        }
        for user in [json!({}), json!({"username": ""}), json!({"username": "a\nb"}), json!({"username": null})] {
            assert!(read(&json!({"authenticated": true, "user": user, "audiences": ["gateway"]})).is_err(), "{user}");
        }
        for body in ["", "{}", "[]", "<html>", r#"{"status":{"authenticated":false},"status":{"authenticated":true}}"#]
        {
            assert!(ReviewAnswer::read(body.as_bytes(), &[]).is_err(), "{body}");
        }
    }
}

//! Which URLs may decide who is a caller. Anyone between the gateway and such a URL could let callers in, so it must be https or on this
//! machine.

use reqwest::Url;

use outbound::{UrlError, fixed_url, is_safe};

/// Why a URL may not decide who is a caller.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UrlPolicyError {
    /// It cannot be fetched.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// It is not https.
    #[error("it is not https, so anybody in between could let callers in")]
    NotHttps,
}

/// Parses a URL of the configuration that decides who is a caller.
///
/// # Errors
/// When it is neither https nor on this machine.
pub(crate) fn safe_url(text: &str) -> Result<Url, UrlPolicyError> {
    let url = fixed_url(text)?;
    if is_safe(&url) { Ok(url) } else { Err(UrlPolicyError::NotHttps) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleartext_is_allowed_on_this_machine_only() {
        for (url, expected) in [
            ("https://i.example/keys", true),
            ("http://127.0.0.1:5556/keys", true),
            ("http://localhost/keys", true),
            ("http://[::1]/keys", true),
            ("http://i.example/keys", false),
            ("http://localhost.i.example/keys", false),
            ("http://10.0.0.1/keys", false),
            ("ftp://localhost/keys", false),
        ] {
            assert_eq!(safe_url(url).is_ok(), expected, "{url}");
        }
    }
}

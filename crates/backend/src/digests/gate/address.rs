//! Checks the addresses of APIs, and that links to further pages stay at the same API.

use http::HeaderMap;
use percent_encoding::percent_decode_str;
use reqwest::Url;

use domain::{document::excerpt, error::BackendError};
use outbound::{link, names_user, stays};

/// The error text for a link that leads out of its list.
const LEADS_ELSEWHERE: &str = "is another resource: it is not at the address of the first; is the API's address in the \
                         configuration the forge's own?";

/// Why a text is not the address of an API.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// It is not a URL.
    #[error("not a URL: {0}; write it as in `https://git.example.com/api/v4`")]
    Syntax(#[source] url::ParseError),
    /// It is a URL of another kind, or no fixed one.
    #[error("{0}; write it as in `https://git.example.com/api/v4`")]
    Unfit(&'static str),
}

/// Parses the address of an API, which must be written out in the configuration.
///
/// # Errors
/// When it is not a usable URL.
pub fn base_url(api: &str) -> Result<Url, AddressError> {
    let wrong = AddressError::Unfit;
    if api.contains("{{") || api.contains("{%") {
        return Err(wrong("no parameter may decide which API is called"));
    }
    let url = Url::parse(api).map_err(AddressError::Syntax)?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(wrong("the API's URL begins with `https://` or `http://` and a host"));
    }
    if names_user(&url) {
        return Err(wrong("the URL holds a user or a password, which have their own keys"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("the API's URL has no query and no fragment"));
    }
    Ok(url)
}

/// The next page, if the header `Link` in the answer of `from` names one. It is checked as in [`follow`].
///
/// # Errors
/// When the link leads elsewhere or cannot be read.
pub(crate) fn follow_header(
    headers: &HeaderMap,
    from: &Url,
    continues: impl Fn(&str) -> bool,
) -> Result<Option<Url>, BackendError> {
    let next = link::next(headers).map_err(|lost| {
        let shown = excerpt(lost.split(['?', '#']).next().unwrap_or_default().as_bytes(), 120);
        BackendError::invalid_output(format!("its `Link` to the next page cannot be read: {shown}"))
    })?;
    next.map(|link| follow(from, &link, continues)).transpose()
}

/// The page that `link` names in the answer of `from`. It must have the same origin, so that no credential goes elsewhere,
/// and the same path or a path that `continues` accepts.
///
/// # Errors
/// When the link leads elsewhere.
pub fn follow(from: &Url, link: &str, continues: impl Fn(&str) -> bool) -> Result<Url, BackendError> {
    let wrong = |why: &str| {
        let link = link.split(['?', '#']).next().unwrap_or_default();
        BackendError::invalid_output(format!("the next page, `{}`, {why}", excerpt(link.as_bytes(), 120)))
    };
    let mut next = from.join(link).map_err(|error| wrong(&format!("is not a URL: {error}")))?;
    let path = |url: &Url| percent_decode_str(url.path()).collect::<Vec<u8>>();
    if path(&next) == path(from) {
        next.set_path(from.path());
    } else if !continues(next.path()) {
        return Err(wrong(LEADS_ELSEWHERE));
    }
    if !stays(from, &next) {
        return Err(wrong(LEADS_ELSEWHERE));
    }
    next.set_fragment(None);
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_next_page_belongs_to_the_same_list() {
        let from = Url::parse("https://h.example/api/v4/projects/g%2Fa/pipelines?sha=1").unwrap();
        for (link, expected) in [
            ("https://h.example/api/v4/projects/g%2Fa/pipelines?page=2", "page=2"),
            ("https://h.example:443/api/v4/projects/g%2fa/pipelines?page=3", "page=3"),
            ("?page=4", "page=4"),
        ] {
            let next = follow(&from, link, |_| false).unwrap();
            assert_eq!((next.path(), next.query()), (from.path(), Some(expected)));
        }
        for link in [
            "https://other.example/api/v4/projects/g%2Fa/pipelines?page=2",
            "http://h.example/api/v4/projects/g%2Fa/pipelines?page=2",
            "https://h.example:8443/api/v4/projects/g%2Fa/pipelines?page=2",
            "https://h.example/api/v4/projects/g%2Fb/pipelines?page=2",
            "https://user@h.example/api/v4/projects/g%2Fa/pipelines?page=2",
            "http://[",
        ] {
            assert!(follow(&from, link, |_| false).is_err(), "{link}");
        }
        let by_number = "https://h.example/api/v4/projects/7/pipelines?page=2";
        assert_eq!(follow(&from, by_number, |path| path.contains("/7/")).unwrap().as_str(), by_number);
        assert!(
            !follow(&from, "https://other.example/?token=hunter2", |_| true).unwrap_err().message.contains("hunter2")
        );
    }

    #[test]
    fn the_api_is_written_out_in_the_configuration() {
        for good in ["https://api.github.com", "https://ghe.example.com/api/v3/", "http://h:8080/gitea/api/v1"] {
            assert!(base_url(good).unwrap().as_str().starts_with(good), "{good}");
        }
        for (bad, says) in [
            ("https://{{ params.host }}/api", "no parameter may decide"),
            ("git.example.com", "not a URL"),
            ("ftp://git.example.com", "begins with"),
            ("https://u:hunter2@git.example.com/api", "password"),
            ("https://git.example.com/api?token=hunter2", "no query"),
        ] {
            let why = base_url(bad).unwrap_err().to_string();
            assert!(why.contains(says) && !why.contains("hunter2"), "{why}");
        }
    }
}

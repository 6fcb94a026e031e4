//! `paging`: a list that comes in pages. All pages are read; if one page fails, the whole answer is unknown.

use std::collections::HashSet;

use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Number, Value};

use domain::{
    error::BackendError,
    problem::{Path, Problems},
};
use lang::{
    expression::Expression,
    scope::{NameScope, ValueType},
};
use outbound::{Reply, link, stays};

/// How to find the next page of a list: `link` or `next`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "HttpPaging")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PagingConfig {
    /// Follow the header `Link: <…>; rel="next"` (RFC 8288), which GitHub, GitLab and registries send.
    #[serde(default)]
    pub link: bool,
    /// A CEL expression over `body`, `status`, `headers`, `params` and `page`, the number of this page, counted from 1. It gives the value of
    /// `parameter` for the next page, or without `parameter` the URL of the next page. After the last page it gives null, false or an empty
    /// text.
    pub next: Option<String>,
    /// The parameter in the URL's query that gets the value of `next`.
    pub parameter: Option<String>,
    /// The most pages that a list may have.
    #[serde(default = "default_max_pages")]
    #[schemars(range(min = 1))]
    pub max_pages: usize,
}

const fn default_max_pages() -> usize {
    100
}

/// 2^53. Floats below it represent every whole number exactly.
const MAX_SAFE: f64 = 9_007_199_254_740_992.0;

/// The `paging` of a backend, with its compiled expression.
#[derive(Debug)]
pub struct Paging {
    next: Option<(Expression, Option<String>)>,
    max_pages: usize,
}

impl Paging {
    /// Compiles the expression, over the names of `page` and the page's number. Notes keys that contradict each other.
    pub fn build(config: &PagingConfig, page: &NameScope, path: &Path, problems: &mut Problems) -> Option<Self> {
        if config.max_pages == 0 {
            problems.error(&path.key("maxPages"), "with 0 no page would be read");
        }
        if config.parameter.is_some() && config.next.is_none() {
            problems.error(&path.key("parameter"), "there is no `next` that is its value");
        }
        if config.link == config.next.is_some() {
            let help = "`link: true` for a `Link` header, `next` for all else";
            problems.error_with_help(path, "set exactly one of `link` and `next`", help);
            return None;
        }
        let next = match &config.next {
            Some(next) => {
                let scope = page.with("page", ValueType::Anything);
                let (next, _) = Expression::build(next, &scope, &path.key("next"), problems)?;
                Some((next, config.parameter.clone()))
            }
            None => None,
        };
        Some(Self { next, max_pages: config.max_pages })
    }

    /// The `next` expression; `None` with `link: true`.
    #[must_use]
    pub fn expression(&self) -> Option<&Expression> {
        self.next.as_ref().map(|(next, _)| next)
    }

    /// The URL of the next page, or the value of the parameter that names it. `None` after the last page. `next` is the value of
    /// the expression; without it, the `Link` header counts.
    ///
    /// # Errors
    /// When the expression does not fit the page, or gives a value of another kind.
    pub fn next_page(reply: &Reply, next: Option<Result<Value, BackendError>>) -> Result<Option<String>, BackendError> {
        let Some(next) = next else { return next_link(reply) };
        let invalid = |why: String| BackendError::invalid_output(why).within("paging.next");
        match next.map_err(|error| error.within("paging.next"))? {
            Value::Null | Value::Bool(false) => Ok(None),
            Value::String(text) => Ok(Some(text).filter(|text| !text.is_empty())),
            Value::Number(number) if is_exact(&number) => Ok(Some(number.to_string())),
            Value::Number(_) => Err(invalid(
                "it is a number that cannot be sent to the digit; take a text or a whole number".to_owned(),
            )),
            other => {
                let found = domain::document::kind_of(&other);
                Err(invalid(format!("it is {found}, neither a text, a number nor null")))
            }
        }
    }

    /// The URL of the page after `url`. `target` is the URL or the parameter's value that the page at `url` gave. `seen` holds the URLs
    /// of the pages that were read.
    ///
    /// # Errors
    /// When the next page has another scheme, host or port, was read before, or is one page too many.
    pub fn next_url(&self, url: &Url, target: &str, seen: &mut HashSet<Url>) -> Result<Url, BackendError> {
        let invalid = BackendError::invalid_output;
        seen.insert(url.clone());
        if seen.len() >= self.max_pages {
            return Err(invalid(format!("there are more than {} pages (`paging.maxPages`)", self.max_pages)));
        }
        let next = match &self.next {
            Some((_, Some(parameter))) => with_parameter(url, parameter, target),
            _ => url.join(target).map_err(|error| invalid(format!("the next page's URL cannot be read: {error}")))?,
        };
        if !stays(url, &next) {
            return Err(invalid(format!(
                "the next page is elsewhere ({}); only pages of the same host are read",
                next.origin().ascii_serialization()
            )));
        }
        if seen.contains(&next) {
            return Err(invalid("the pages go in a circle".to_owned()));
        }
        Ok(next)
    }
}

/// The target of the `Link` header with `rel="next"`, if there is one.
///
/// # Errors
/// When the header cannot be read.
pub fn next_link(reply: &Reply) -> Result<Option<String>, BackendError> {
    link::next(&reply.headers).map_err(|link| {
        let shown = reply.secrets.excerpt(link.as_bytes(), 120);
        BackendError::invalid_output(format!("its `Link` cannot be read: `{shown}`"))
    })
}

/// Whether `number` can be sent exactly as it was written. Large floats lose digits.
fn is_exact(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|float| float.abs() < MAX_SAFE)
}

/// `url` with `parameter` set to `value`. Replaces a value that is already there.
fn with_parameter(url: &Url, parameter: &str, value: &str) -> Url {
    let others: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| name != parameter)
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let mut next = url.clone();
    next.query_pairs_mut().clear().extend_pairs(others).append_pair(parameter, value);
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paging(next: Option<&str>, parameter: Option<&str>) -> Paging {
        let config = PagingConfig {
            link: next.is_none(),
            next: next.map(str::to_owned),
            parameter: parameter.map(str::to_owned),
            max_pages: 3,
        };
        Paging::build(
            &config,
            &NameScope::of(&["body", "headers", "status", "params"]),
            &Path::root(),
            &mut Problems::default(),
        )
        .unwrap()
    }

    #[test]
    fn the_next_page_is_on_the_same_host_and_new() {
        let next_url = |paging: &Paging, from: &str, target: &str| {
            let mut seen = HashSet::from([Url::parse("https://h/seen").unwrap()]);
            let found = paging.next_url(&Url::parse(from).unwrap(), target, &mut seen);
            found.map(String::from).map_err(|error| error.message)
        };
        let by_url = paging(Some("body.next"), None);
        assert_eq!(next_url(&by_url, "https://h/v1/a?x=1", "?page=2").unwrap(), "https://h/v1/a?page=2");
        assert_eq!(next_url(&by_url, "https://h/v1/a?x=1", "/v1/b").unwrap(), "https://h/v1/b");
        assert_eq!(next_url(&by_url, "https://h/v1/a", "https://h:443/b").unwrap(), "https://h/b");
        let by_value = paging(Some("body.next"), Some("cursor"));
        assert_eq!(
            next_url(&by_value, "https://h/a?cursor=1&x=a%20b&x=2", "a&b=c/+").unwrap(),
            "https://h/a?x=a+b&x=2&cursor=a%26b%3Dc%2F%2B"
        );
        assert_eq!(
            next_url(&by_value, "https://h/a", "https://evil/").unwrap(),
            "https://h/a?cursor=https%3A%2F%2Fevil%2F"
        );
        for (target, says) in [
            ("https://evil/", "elsewhere (https://evil)"),
            ("http://h/", "elsewhere (http://h)"),
            ("//evil/a", "elsewhere"),
            ("https://h:8443/", "elsewhere"),
            ("https://u@h/", "elsewhere"),
            ("https://h/seen", "in a circle"),
            ("?", "in a circle"),
            ("https://", "cannot be read"),
        ] {
            let error = next_url(&by_url, "https://h/a?", target).unwrap_err();
            assert!(error.contains(says), "{target}: {error}");
        }
    }
}

//! Lists in pages: all pages or none (invariant I3), and each from the place that was asked.

use http::{HeaderMap, header};
use percent_encoding::percent_decode_str;
use reqwest::Url;
use tokio::time::Instant;

use super::Forge;
use crate::{document::excerpt, error::BackendError, outbound::Reply, secret::Secrets};

/// How many pages are followed. A list that goes on is not known whole.
const MOST_PAGES: usize = 20;

/// A part of a list.
#[derive(Debug)]
pub struct Page<T> {
    /// What stands in it.
    pub items: Vec<T>,
    /// Where the next part is, if there is one.
    pub next: Option<Url>,
}

impl Forge {
    /// The list that begins at `first`, all of it, as `read` makes items of its answers; and what must not be told of it.
    ///
    /// # Errors
    /// When a page is missing by `deadline`, or the list does not end.
    pub async fn list<T: Send>(
        &self,
        first: Url,
        deadline: Instant,
        mut read: impl FnMut(&Reply, &Url) -> Result<Page<T>, BackendError> + Send,
    ) -> Result<(Vec<T>, Secrets), BackendError> {
        let (mut items, mut seen, mut secrets) = (Vec::new(), Vec::new(), Secrets::default());
        let mut next = Some(first);
        while let Some(url) = next {
            let fail = |error| self.told(url.path(), error);
            if seen.contains(&url) {
                return Err(fail(BackendError::invalid_output(
                    "its pages lead in a circle, so the list is not known whole",
                )));
            }
            if seen.len() == MOST_PAGES {
                let why = format!("the list goes on after {MOST_PAGES} pages, so it is not known whole");
                return Err(fail(BackendError::invalid_output(why)));
            }
            let reply = self.get(url.clone(), deadline).await?;
            let page = read(&reply, &url).map_err(|error| fail(reply.secrets.clean(&error)))?;
            items.extend(page.items);
            next = page.next;
            secrets = reply.secrets;
            seen.push(url);
        }
        Ok((items, secrets))
    }
}

/// The page that `link` names in the answer of `from`. It must be of the same list: a credential goes nowhere else.
///
/// # Errors
/// When it is elsewhere.
pub fn follow(from: &Url, link: &str) -> Result<Url, BackendError> {
    let wrong = |why: &str| {
        let link = link.split(['?', '#']).next().unwrap_or_default();
        BackendError::invalid_output(format!("the next page, `{}`, {why}", excerpt(link.as_bytes(), 120)))
    };
    let next = from.join(link).map_err(|error| wrong(&format!("is no URL: {error}")))?;
    let path = |url: &Url| percent_decode_str(url.path()).collect::<Vec<u8>>();
    if next.origin() != from.origin() || path(&next) != path(from) {
        return Err(wrong(
            "is not at the address of the first; is the API's address in the configuration the forge's own?",
        ));
    }
    let mut url = from.clone();
    url.set_query(next.query());
    Ok(url)
}

/// The target of `Link: <…>; rel="next"` (RFC 8288).
#[must_use]
pub fn next_link(headers: &HeaderMap) -> Option<String> {
    headers.get_all(header::LINK).iter().find_map(|value| next_of(&String::from_utf8_lossy(value.as_bytes())))
}

/// The target of the first link in `links` whose relations hold `next`.
fn next_of(links: &str) -> Option<String> {
    let mut rest = links;
    while let Some((target, after)) = rest.split_once('<').and_then(|(_, rest)| rest.split_once('>')) {
        let end = end_of_parameters(after);
        if after[..end].split(';').any(is_next) {
            return Some(target.trim().to_owned());
        }
        rest = &after[end..];
    }
    None
}

/// Where a link's parameters end: at a comma that stands in no quotes.
fn end_of_parameters(text: &str) -> usize {
    let mut is_quoted = false;
    for (position, c) in text.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => return position,
            _ => {}
        }
    }
    text.len()
}

fn is_next(parameter: &str) -> bool {
    parameter.split_once('=').is_some_and(|(name, relations)| {
        let mut relations = relations.trim().trim_matches('"').split_ascii_whitespace();
        name.trim().eq_ignore_ascii_case("rel") && relations.any(|relation| relation.eq_ignore_ascii_case("next"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_as_their_standard_says() {
        for (links, next) in [
            (r#"<https://h/a?page=2>; rel="next""#, Some("https://h/a?page=2")),
            (
                r#"<https://h/a?page=1>; rel="first", <https://h/a?x=1,2;3&page=2>; rel="next""#,
                Some("https://h/a?x=1,2;3&page=2"),
            ),
            ("</a?page=2>; title=\"a, <b>; rel=next\"; REL=\"last Next\"", Some("/a?page=2")),
            ("<b>;rel=next", Some("b")),
            (r#"<https://h/a?page=1>; rel="prev", <https://h/a?page=9>; rel="last""#, None),
            ("", None),
            ("rel=next", None),
        ] {
            assert_eq!(next_of(links).as_deref(), next, "{links}");
        }
    }

    #[test]
    fn a_next_page_is_of_the_same_list() {
        let from = Url::parse("https://h.example/api/v4/projects/g%2Fa/pipelines?sha=1").unwrap();
        for (link, asked) in [
            ("https://h.example/api/v4/projects/g%2Fa/pipelines?page=2", "page=2"),
            ("https://h.example:443/api/v4/projects/g%2fa/pipelines?page=3", "page=3"),
            ("?page=4", "page=4"),
        ] {
            let next = follow(&from, link).unwrap();
            assert_eq!((next.path(), next.query()), (from.path(), Some(asked)));
        }
        for link in [
            "https://other.example/api/v4/projects/g%2Fa/pipelines?page=2",
            "http://h.example/api/v4/projects/g%2Fa/pipelines?page=2",
            "https://h.example:8443/api/v4/projects/g%2Fa/pipelines?page=2",
            "https://h.example/api/v4/projects/g%2Fb/pipelines?page=2",
            "http://[",
        ] {
            assert!(follow(&from, link).is_err(), "{link}");
        }
        assert!(!follow(&from, "https://other.example/?token=hunter2").unwrap_err().message.contains("hunter2"));
    }
}

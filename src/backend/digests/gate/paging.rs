//! Lists in pages: all pages or none (invariant I3), and each from the place that was asked.

use percent_encoding::percent_decode_str;
use reqwest::Url;

use crate::{document::excerpt, error::BackendError, outbound::Reply, secret::Secrets};

/// How many pages are followed. A list that goes on is not known whole.
const MOST_PAGES: usize = 20;
/// What is wrong with a link that leads out of its list.
const ELSEWHERE: &str = "is another resource: it is not at the address of the first; is the API's address in the \
                         configuration the forge's own?";

/// A part of a list.
#[derive(Debug)]
pub struct Page<T> {
    /// What stands in it.
    pub items: Vec<T>,
    /// Where the next part is, if there is one.
    pub next: Option<Url>,
}

/// The list that begins at `first`, all of it, as `get` asks for its pages and `read` makes items of each; and what must
/// not be told of it.
///
/// # Errors
/// When a page is missing, or the list does not end.
pub async fn list<T, Asked>(
    first: Url,
    get: impl Fn(Url) -> Asked,
    mut read: impl FnMut(&Reply, &Url) -> Result<Page<T>, BackendError>,
) -> Result<(Vec<T>, Secrets), BackendError>
where
    Asked: Future<Output = Result<Reply, BackendError>>,
{
    let (mut items, mut seen, mut secrets) = (Vec::new(), Vec::new(), Secrets::default());
    let mut next = Some(first);
    while let Some(url) = next {
        let fail = |error: BackendError| error.within(format_args!("GET {}", url.path()));
        if seen.contains(&url) {
            let why = "its pages lead in a circle, so the list is not known whole";
            return Err(fail(BackendError::invalid_output(why)));
        }
        if seen.len() == MOST_PAGES {
            let why =
                format!("the list goes on after {MOST_PAGES} pages; one of more than {MOST_PAGES} pages is not read");
            return Err(fail(BackendError::invalid_output(why)));
        }
        let reply = get(url.clone()).await?;
        let page = read(&reply, &url).map_err(|error| fail(reply.secrets.clean(&error)))?;
        items.extend(page.items);
        next = page.next;
        secrets = reply.secrets;
        seen.push(url);
    }
    Ok((items, secrets))
}

/// The page that `link` names in the answer of `from`. It must be of the same list, which goes on at the same path or at
/// another one that `continues`, and at the same origin: a credential goes nowhere else.
///
/// # Errors
/// When it is elsewhere.
pub fn follow(from: &Url, link: &str, continues: impl Fn(&str) -> bool) -> Result<Url, BackendError> {
    let wrong = |why: &str| {
        let link = link.split(['?', '#']).next().unwrap_or_default();
        BackendError::invalid_output(format!("the next page, `{}`, {why}", excerpt(link.as_bytes(), 120)))
    };
    let mut next = from.join(link).map_err(|error| wrong(&format!("is no URL: {error}")))?;
    let path = |url: &Url| percent_decode_str(url.path()).collect::<Vec<u8>>();
    if path(&next) == path(from) {
        next.set_path(from.path());
    } else if !continues(next.path()) {
        return Err(wrong(ELSEWHERE));
    }
    if next.origin() != from.origin() || !next.username().is_empty() || next.password().is_some() {
        return Err(wrong(ELSEWHERE));
    }
    next.set_fragment(None);
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_next_page_is_of_the_same_list() {
        let from = Url::parse("https://h.example/api/v4/projects/g%2Fa/pipelines?sha=1").unwrap();
        for (link, asked) in [
            ("https://h.example/api/v4/projects/g%2Fa/pipelines?page=2", "page=2"),
            ("https://h.example:443/api/v4/projects/g%2fa/pipelines?page=3", "page=3"),
            ("?page=4", "page=4"),
        ] {
            let next = follow(&from, link, |_| false).unwrap();
            assert_eq!((next.path(), next.query()), (from.path(), Some(asked)));
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
}

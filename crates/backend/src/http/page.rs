//! One page of an answer: its parameter sets, the next page, and the total of the whole list.

use http::HeaderMap;

use super::paging::{self, Paging};
use crate::total;
use domain::{
    document::{Document, has_content},
    error::BackendError,
    generator::ParameterSet,
};
use outbound::Reply;

/// GitLab's header with the number of the next page. It is blank on the last page.
const NEXT_PAGE: &str = "x-next-page";
/// GitLab's header with the number of all items. It counts only if one of the headers in `BESIDE_TOTAL` is there too.
const TOTAL: &str = "x-total";
const BESIDE_TOTAL: [&str; 3] = ["x-page", "x-per-page", "x-total-pages"];
/// The header that only GitHub's answers have, and the key with the number of all items in such an answer.
const GITHUB: &str = "x-github-request-id";
const TOTAL_COUNT: &str = "total_count";

/// The content of a page.
#[derive(Debug)]
pub(super) struct Page {
    /// The parameter sets on this page.
    pub sets: Vec<ParameterSet>,
    /// The URL of the next page, or the value of the `parameter` that names it. `None` on the last page.
    pub next: Option<String>,
    /// The total that the page names, if any.
    pub counted: Option<Counted>,
    /// Whether `absent` proves that there is nothing.
    pub is_absent: bool,
}

impl Page {
    /// The only page, of an answer that proves that there is nothing.
    pub(super) const fn absent() -> Self {
        Self { sets: Vec::new(), next: None, counted: None, is_absent: true }
    }
}

/// A total that the API documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    /// How many items there are on all pages.
    pub total: u64,
    /// How many items are on this page.
    pub(crate) on_page: usize,
}

/// The total that the page names. Only totals of GitLab and GitHub are read, because these are known to count the whole list.
///
/// # Errors
/// When a total cannot be read.
pub(super) fn counted(headers: &HeaderMap, body: &Document<'_>) -> Result<Option<Counted>, BackendError> {
    match body {
        Document::List(items) if BESIDE_TOTAL.iter().any(|name| headers.contains_key(*name)) => {
            let total = total::in_header(headers, TOTAL)?;
            Ok(total.map(|total| Counted { total, on_page: items.len() }))
        }
        Document::Object(object) if headers.contains_key(GITHUB) => {
            let Some(total) = object.get(TOTAL_COUNT) else { return Ok(None) };
            let Document::Number(total) = total else {
                return Err(BackendError::invalid_output(format!("its `{TOTAL_COUNT}` is {}", total.kind())));
            };
            let mut lists = object.iter().filter_map(|(_, value)| value.as_list());
            let is_one = |list: &[Document<'_>]| (total.as_u64(), list.len());
            match (lists.next().map(is_one), lists.next()) {
                (Some((Some(total), on_page)), None) => Ok(Some(Counted { total, on_page })),
                _ => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

/// Compares the totals of all pages with the number of items that were read.
///
/// # Errors
/// When the pages are not the whole list.
pub(crate) fn check_counted(pages: &[Option<Counted>]) -> Result<(), BackendError> {
    // Without a total on every page there is nothing to compare. GitLab names no total above 10,000 items.
    let Some(counted) = pages.iter().copied().collect::<Option<Vec<_>>>() else { return Ok(()) };
    let totals: Vec<u64> = counted.iter().map(|page| page.total).collect();
    total::check(&totals, counted.iter().map(|page| page.on_page).sum())
}

/// Checks the last page that is read. Nothing in it may announce another page.
///
/// # Errors
/// When the page announces another page, or that items are missing.
pub(crate) fn check_last(reply: &Reply, body: &Document<'_>, paging: Option<&Paging>) -> Result<(), BackendError> {
    let Some((sign, advice)) = sign_of_more(reply, body)? else { return Ok(()) };
    let why = match paging {
        None => format!("it is one page of several ({sign}); {advice}"),
        Some(paging) if paging.expression().is_some() => {
            format!("paging.next: it says that this is the last page, and {sign} says that there is more; {advice}")
        }
        Some(_) => format!("{sign} says that there is more, and no `Link` leads there; does a proxy drop that header?"),
    };
    Err(BackendError::invalid_output(why))
}

/// The header or key that announces another page, and an advice.
fn sign_of_more(reply: &Reply, body: &Document<'_>) -> Result<Option<(&'static str, &'static str)>, BackendError> {
    if paging::next_link(reply)?.is_some() {
        return Ok(Some(("`Link` with rel=\"next\"", "`paging: { link: true }` reads all of them")));
    }
    if reply.headers.get_all(NEXT_PAGE).iter().any(|page| !page.as_bytes().trim_ascii().is_empty()) {
        let advice = "`paging: { next: \"headers['x-next-page']\", parameter: page }` reads all of them";
        return Ok(Some(("`X-Next-Page`", advice)));
    }
    let metadata = |key: &str| body.get("metadata").and_then(|metadata| metadata.get(key)).is_some_and(has_content);
    if metadata("continue") {
        let advice = "write `paging` with `parameter: continue`, which reads all of them";
        return Ok(Some(("`metadata.continue`", advice)));
    }
    if metadata("remainingItemCount") {
        let advice = "without a `continue` nobody can read what is missing; does a proxy change the answer?";
        return Ok(Some(("`metadata.remainingItemCount`", advice)));
    }
    if body.get("incomplete_results") == Some(&Document::Bool(true)) {
        return Ok(Some(("`incomplete_results`", "let one request search for less")));
    }
    // S3's lists in XML.
    let truncated = |root: &Document<'_>| root.get("IsTruncated").is_some_and(|more| more.as_text() == Some("true"));
    if matches!(body, Document::Object(object) if object.iter().any(|(_, root)| truncated(root))) {
        let advice = "write `paging` with `parameter: continuation-token`, which reads all of them";
        return Ok(Some(("`IsTruncated`", advice)));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use domain::document::read;

    fn count(header: (&'static str, &'static str), body: &str) -> Result<Option<(u64, usize)>, ()> {
        let mut headers = HeaderMap::new();
        headers.insert(header.0, HeaderValue::from_static(header.1));
        headers.insert("x-per-page", HeaderValue::from_static("20"));
        let body = read(body.as_bytes()).unwrap();
        counted(&headers, &body).map(|counted| counted.map(|of| (of.total, of.on_page))).map_err(drop)
    }

    #[test]
    fn totals_are_those_that_are_documented() {
        let github = (GITHUB, "8C9A:1");
        for (header, body, expected) in [
            ((TOTAL, "3"), "[1,2]", Ok(Some((3, 2)))),
            ((TOTAL, "many"), "[1,2]", Err(())),
            ((TOTAL, "3"), r#"{"items":[1,2]}"#, Ok(None)),
            (("x-count", "3"), "[1,2]", Ok(None)),
            (github, r#"{"total_count":3,"workflow_runs":[1,2]}"#, Ok(Some((3, 2)))),
            (github, r#"{"total_count":"3","workflow_runs":[1,2]}"#, Err(())),
            (github, r#"{"total_count":3,"items":[1,2],"others":[]}"#, Ok(None)),
            (github, r#"{"size":3,"items":[1,2]}"#, Ok(None)),
            (("server", "other"), r#"{"total_count":3,"items":[1,2],"size":3}"#, Ok(None)),
        ] {
            assert_eq!(count(header, body), expected, "{header:?} {body}");
        }
        let mut counted_only = HeaderMap::new();
        counted_only.insert(TOTAL, HeaderValue::from_static("3"));
        assert_eq!(counted(&counted_only, &read(b"[1]").unwrap()).unwrap(), None);
    }
}

//! Long lists in pages.

use maud::{Markup, html};
use url::form_urlencoded;

/// How many entries a page has.
const PER_PAGE: usize = 50;

/// One page of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    /// How many entries the list has.
    pub(crate) total: usize,
    /// The number of the page; the first one is 1.
    number: usize,
}

impl Page {
    /// The page called `number` of a list with `total` entries; the nearest one if there is none of this number.
    pub(crate) fn new(total: usize, number: usize) -> Self {
        Self { total, number: number.clamp(1, total.div_ceil(PER_PAGE).max(1)) }
    }

    /// The entries of this page.
    pub(crate) fn of<T>(self, all: Vec<T>) -> Vec<T> {
        all.into_iter().skip((self.number - 1) * PER_PAGE).take(PER_PAGE).collect()
    }

    fn last(self) -> usize {
        self.total.div_ceil(PER_PAGE).max(1)
    }
}

/// Links to the pages before and after. `query` has the other parameters of the list.
pub(super) fn links(path: &str, query: &[(&str, &str)], page: Page) -> Markup {
    let to = |number: usize| {
        let mut text = form_urlencoded::Serializer::new(String::new());
        let text = text.extend_pairs(query).append_pair("page", &number.to_string()).finish();
        format!("{path}?{text}")
    };
    html! {
        @if page.last() > 1 {
            nav.pages aria-label="Pages" {
                @if page.number > 1 { a rel="prev" href=(to(page.number - 1)) { "← Previous" } }
                span { "Page " (page.number) " of " (page.last()) }
                @if page.number < page.last() { a rel="next" href=(to(page.number + 1)) { "Next →" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_on_one_page() {
        let all: Vec<usize> = (0..120).collect();
        let pages: Vec<_> = (1..=3).map(|number| Page::new(120, number).of(all.clone())).collect();
        assert_eq!((pages[0].len(), pages[2].len(), pages.concat()), (50, 20, all));
        for (total, number) in [(0, 1), (0, 9), (50, 0), (50, 2)] {
            assert_eq!(Page::new(total, number).number, 1, "{total} {number}");
        }
    }

    #[test]
    fn a_link_keeps_the_query() {
        let links = links("/routes", &[("q", "a&b=<c>")], Page::new(51, 1)).into_string();
        assert!(links.contains("href=\"/routes?q=a%26b%3D%3Cc%3E&amp;page=2\""), "{links}");
    }
}

//! `Link` headers (RFC 8288): where a list goes on.

use http::{HeaderMap, header};

/// The target of `Link: <…>; rel="next"` (RFC 8288).
#[must_use]
pub fn next(headers: &HeaderMap) -> Option<String> {
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
    use http::HeaderValue;

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
    fn the_next_page_is_found_among_links() {
        let next =
            |link: &'static str| super::next(&HeaderMap::from_iter([(header::LINK, HeaderValue::from_static(link))]));
        let links = "<https://h/a?page=1>; rel=\"prev\", <https://h/a?page=3>; rel=\"next\", <https://h/a?page=9>; rel=\"last\"";
        assert_eq!(next(links).as_deref(), Some("https://h/a?page=3"));
        assert_eq!(next("</a?page=2>; title=\"x\"; REL=next, </b>; rel=last").as_deref(), Some("/a?page=2"));
        assert_eq!(next("<https://h/a?page=1>; rel=\"first\", <https://h/n>; rel=\"nextish\""), None);
        assert_eq!(next(""), None);
    }
}

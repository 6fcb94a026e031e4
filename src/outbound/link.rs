//! `Link` headers (RFC 8288): where a list goes on.

use std::borrow::Cow;

use http::{HeaderMap, header};

/// The target of `Link: <…>; rel="next"` (RFC 8288).
///
/// # Errors
/// When a link leads on and cannot be read, which is not the same as none: with the header that holds it.
pub fn next(headers: &HeaderMap) -> Result<Option<String>, String> {
    match texts(headers).find_map(|links| next_of(&links).ok().flatten()) {
        Some(target) if target.contains(char::REPLACEMENT_CHARACTER) => Err(target),
        Some(target) => Ok(Some(target)),
        None => texts(headers).find_map(|links| next_of(&links).err()).map_or(Ok(None), Err),
    }
}

fn texts(headers: &HeaderMap) -> impl Iterator<Item = Cow<'_, str>> {
    headers.get_all(header::LINK).iter().map(|value| String::from_utf8_lossy(value.as_bytes()))
}

/// The target of the first link in `links` whose relations hold `next`.
///
/// # Errors
/// When there is none, and yet a `next` beside the links, which is lost with whatever it belongs to.
fn next_of(links: &str) -> Result<Option<String>, String> {
    let lost = |text: &str| text.split([';', ',']).any(is_next);
    let (mut rest, mut is_lost) = (links, false);
    while let Some((before, target, after)) = first_of(rest) {
        let end = end_of_parameters(after);
        if after[..end].split(';').any(is_next) {
            return Ok(Some(target.trim().to_owned()));
        }
        is_lost |= lost(before);
        rest = &after[end..];
    }
    if is_lost || lost(rest) { Err(links.to_owned()) } else { Ok(None) }
}

/// What stands before the first target, the target, and what follows.
fn first_of(links: &str) -> Option<(&str, &str, &str)> {
    let (before, link) = links.split_once('<')?;
    let (target, after) = link.split_once('>')?;
    Some((before, target, after))
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
            assert_eq!(next_of(links).unwrap_or_default().as_deref(), next, "{links}");
        }
    }

    #[test]
    fn a_next_page_that_cannot_be_read_is_not_none() {
        let checked = |links: &'static [u8]| {
            let value = HeaderValue::from_bytes(links).unwrap();
            next(&HeaderMap::from_iter([(header::LINK, value)])).map_err(drop)
        };
        for links in [
            &b"rel=next"[..],
            b"/a?page=2; rel=\"next\"",
            b"</a?page=2; REL = \"last next\"",
            b"/a?page=2; rel=next, </b>; rel=last",
            b"</b>; rel=last, /a?page=2; rel=next",
            b"</a?page=\xe9>; rel=next",
        ] {
            assert_eq!(checked(links), Err(()), "{}", String::from_utf8_lossy(links));
        }
        assert_eq!(checked(b"</a>; rel=prev; title=\"\xe9t\xe9\""), Ok(None));
        assert_eq!(checked(b"/a; rel=next, </b>; rel=next"), Ok(Some("/b".to_owned())));
        assert_eq!(next(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn the_next_page_is_found_among_links() {
        let next = |link: &'static str| {
            super::next(&HeaderMap::from_iter([(header::LINK, HeaderValue::from_static(link))])).unwrap()
        };
        let links = "<https://h/a?page=1>; rel=\"prev\", <https://h/a?page=3>; rel=\"next\", <https://h/a?page=9>; rel=\"last\"";
        assert_eq!(next(links).as_deref(), Some("https://h/a?page=3"));
        assert_eq!(next("</a?page=2>; title=\"x\"; REL=next, </b>; rel=last").as_deref(), Some("/a?page=2"));
        assert_eq!(next("<https://h/a?page=1>; rel=\"first\", <https://h/n>; rel=\"nextish\""), None);
        assert_eq!(next(""), None);
    }
}

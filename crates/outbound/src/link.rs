//! `Link` headers (RFC 8288): the next page of a list.

use http::{HeaderMap, header};

/// One link: its target, and its parameters with names in lower case.
type Link<'a> = (&'a str, Vec<(String, String)>);

/// The target of `Link: <…>; rel="next"`.
///
/// # Errors
/// When the header cannot be read, uses `rel*`, or names several next pages. The list may then go on, so this is not its
/// end. The error is that header.
pub fn next(headers: &HeaderMap) -> Result<Option<String>, String> {
    let mut next: Option<String> = None;
    for value in headers.get_all(header::LINK) {
        let text = String::from_utf8_lossy(value.as_bytes());
        let lost = || Err(text.clone().into_owned());
        let Some(links) = read(&text) else { return lost() };
        for (target, parameters) in links {
            if parameters.iter().any(|(name, _)| name == "rel*") {
                return lost();
            }
            if !parameters.iter().any(is_next) {
                continue;
            }
            let is_other = next.as_deref().is_some_and(|known| known != target);
            if is_other || target.contains(char::REPLACEMENT_CHARACTER) {
                return lost();
            }
            next = Some(target.to_owned());
        }
    }
    Ok(next)
}

/// The links in `text`. `None` when `text` does not follow the grammar of RFC 8288, section 3: a link could be lost.
fn read(text: &str) -> Option<Vec<Link<'_>>> {
    let (mut links, mut rest) = (Vec::new(), text);
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return Some(links);
        }
        let (target, after) = rest.strip_prefix('<')?.split_once('>')?;
        if target.contains(['<', '"']) {
            return None;
        }
        let mut parameters = Vec::new();
        rest = after.trim_start();
        while !rest.is_empty() && !rest.starts_with(',') {
            rest = rest.strip_prefix(';')?.trim_start();
            if rest.is_empty() || rest.starts_with([';', ',']) {
                continue;
            }
            let (parameter, after) = parameter(rest)?;
            parameters.push(parameter);
            rest = after.trim_start();
        }
        links.push((target.trim(), parameters));
    }
}

/// The parameter at the start of `text`, and the rest.
fn parameter(text: &str) -> Option<((String, String), &str)> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let end = text.find(|c| !is_token(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let Some(rest) = rest.trim_start().strip_prefix('=') else { return Some(((name, String::new()), rest)) };
    let rest = rest.trim_start();
    if let Some(quoted) = rest.strip_prefix('"') {
        let (value, rest) = unquote(quoted)?;
        return Some(((name, value), rest));
    }
    // Some servers write more than a token without quotes, such as a media type.
    let end = rest.find([' ', '\t', ';', ',']).unwrap_or(rest.len());
    let (value, rest) = rest.split_at(end);
    let is_whole = !value.is_empty() && !value.contains(['"', '<', '>']);
    is_whole.then(|| ((name, value.to_owned()), rest))
}

/// The text up to the closing quote, and the rest.
fn unquote(text: &str) -> Option<(String, &str)> {
    let (mut value, mut characters) = (String::new(), text.char_indices());
    while let Some((position, c)) = characters.next() {
        match c {
            '"' => return Some((value, &text[position + 1..])),
            '\\' => value.push(characters.next()?.1),
            _ => value.push(c),
        }
    }
    None
}

/// Whether the parameter names the relation `next`. Some servers put single quotes around it.
fn is_next((name, value): &(String, String)) -> bool {
    let mut relations = value.split_ascii_whitespace().map(|relation| relation.trim_matches('\''));
    name == "rel" && relations.any(|relation| relation.eq_ignore_ascii_case("next"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn next_link(links: &[u8]) -> Result<Option<String>, ()> {
        let value = HeaderValue::from_bytes(links).unwrap();
        next(&HeaderMap::from_iter([(header::LINK, value)])).map_err(drop)
    }

    #[test]
    fn links_are_read_by_their_standard() {
        for (links, next) in [
            (r#"<https://h/a?page=2>; rel="next""#, Some("https://h/a?page=2")),
            (
                r#"<https://h/a?page=1>; rel="first", <https://h/a?x=1,2;3&page=2>; rel="next""#,
                Some("https://h/a?x=1,2;3&page=2"),
            ),
            ("</a?page=2>; title=\"a, <b>; rel=next\"; REL=\"last Next\"", Some("/a?page=2")),
            ("<b>;rel=next", Some("b")),
            ("<b>;rel='next'", Some("b")),
            ("<b> ; ; rel = \"prev ne\\xt\" ;, ", Some("b")),
            ("</b>; rel=next, </a>; rel=prev, </b>; rel=next", Some("/b")),
            ("</c>; title=\"say \\\"next\\\", please\"; rel=prev, </b>; rel=next", Some("/b")),
            (r#"<https://h/a?page=1>; rel="prev", <https://h/a?page=9>; rel="last""#, None),
            ("<https://h/a?page=1>; rel=\"first\", <https://h/n>; rel=\"nextish\"", None),
            ("</style.css>; rel=preload; as=style; type=text/css; crossorigin", None),
            ("", None),
            (" ,, ", None),
        ] {
            assert_eq!(next_link(links.as_bytes()), Ok(next.map(str::to_owned)), "{links}");
        }
        assert_eq!(next_link(b"</a>; rel=prev; title=\"\xe9t\xe9\""), Ok(None));
        assert_eq!(next(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn an_unreadable_next_page_is_an_error() {
        for links in [
            &b"rel=next"[..],
            b"/a?page=2; rel=\"next\"",
            b"</a?page=2; REL = \"last next\"",
            b"/a?page=2; rel=next, </b>; rel=last",
            b"</b>; rel=last, /a?page=2; rel=next",
            b"/a; rel=next, </b>; rel=next",
            b"</a>; rel=next, </b>; rel=next",
            b"</a?page=\xe9>; rel=next",
            b"</b>; rel*=UTF-8''next",
            b"</b>; rel=prev; REL*=us-ascii'en'next",
            b"</a>; title=\"unclosed, </b>; rel=next",
            b"</b>; rel=\"next",
            b"</b>; rel=\"ne",
            b"</b>; rel='next prev'",
            b"</b>; rel=",
            b"</b> rel=next",
            b"</a, </b>; rel=next",
            b"</b>; =next",
        ] {
            assert_eq!(next_link(links), Err(()), "{}", String::from_utf8_lossy(links));
        }
    }

    #[test]
    fn links_may_come_in_several_headers() {
        let of = |links: &[&'static str]| {
            let values = links.iter().map(|links| (header::LINK, HeaderValue::from_static(links)));
            next(&values.collect()).map_err(drop)
        };
        assert_eq!(of(&["</a>; rel=prev", "</b>; rel=next"]), Ok(Some("/b".to_owned())));
        assert_eq!(of(&["</b>; rel=next", "</b>; rel=\"next"]), Err(()));
    }
}

//! Path checks: no parameter may leave the path of the configuration.

/// Refuses the segments `.` and `..` in every spelling. URL parsers resolve them, so a value could leave the configured path.
/// Encoded slashes count as well, since many servers read `%2F` as `/`. Also refuses an empty segment, because `/v1//items` is
/// another resource. So is `/v1/items/`, unless `is_folder` is set.
pub(super) fn check(url: &str, is_folder: bool) -> Result<(), PathError> {
    let segments: Vec<&str> = path_of(url).split(['/', '\\']).skip(1).collect();
    for (index, segment) in segments.iter().enumerate() {
        let is_hole = segment.is_empty() && !(is_folder && index + 1 == segments.len());
        let is_dotted = || {
            let read = segment.to_ascii_lowercase().replace("%2e", ".").replace("%5c", "%2f");
            read.split("%2f").any(|part| matches!(part, "." | ".."))
        };
        if is_hole || (segment.contains(['%', '.']) && is_dotted()) {
            return Err(if is_hole { PathError::Empty } else { PathError::Dots((*segment).to_owned()) });
        }
    }
    Ok(())
}

/// Why a path is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum PathError {
    /// A segment is empty.
    #[error("a value left a path segment empty")]
    Empty,
    /// This segment would leave the path.
    #[error("a value made the path segment `{0}`")]
    Dots(String),
}

/// The host and path of `url`.
fn path_of(url: &str) -> &str {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    after_scheme.split(['?', '#']).next().unwrap_or_default()
}

/// Whether the path of the template `source` ends with a literal `/`. With a `{%` it might, so the answer is yes too.
pub(super) fn is_folder(source: &str) -> bool {
    let (mut text, mut rest) = (String::new(), source);
    while let Some((before, after)) = rest.split_once("{{") {
        text.push_str(before);
        text.push_str("value");
        rest = after.split_once("}}").map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    source.contains("{%") || path_of(&text).ends_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_are_refused_in_every_spelling() {
        for bad in
            ["https://h/a/../b", "https://h/a/%2e%2E", "https://h/./b", "https://h/.%2e/b?x", "https://h/a\\..\\b"]
        {
            assert!(check(bad, true).is_err(), "{bad}");
        }
        for bad in
            ["https://h/v1/..%2Fadmin", "https://h/v1/a%2f%2E.%2fadmin/x", "https://h/v1/a%5C..", "https://h/a%2F.%2Fb"]
        {
            assert!(check(bad, true).is_err(), "{bad}");
        }
        assert!(check("https://h/v1//items", true).is_err());
        for good in [
            "https://h/a/",
            "https://h/group%2Fapp/..x%2Fy..",
            "https://h/",
            "https://h/a..b/c",
            "https://h/a?x=../..",
            "https://h/...",
            "https://h",
        ] {
            assert!(check(good, true).is_ok(), "{good}");
        }
    }
}

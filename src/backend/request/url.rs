//! A request's URL: which host is asked stands in the configuration, and no value leaves its path.

use reqwest::Url;

use crate::{
    problem::{Path, Problems},
    template::{Place, Template},
};

/// Parses the template of a URL, whose scheme and host stand in it as they are.
pub(super) fn build(source: &str, scope: &[&str], path: &Path, problems: &mut Problems) -> Option<Template> {
    let template = problems.note(path, Template::parse(source, Place::Url, scope))?;
    let prefix = template.fixed_prefix();
    let authority = prefix.split_once("://").map(|(_, rest)| rest);
    let is_whole = prefix.len() == source.len() || authority.is_some_and(|rest| rest.contains(['/', '?']));
    let parsed = Url::parse(prefix.trim_end_matches(|c| c != '/' && c != '?'));
    let parsed = if prefix.len() == source.len() { Url::parse(source) } else { parsed };
    match parsed {
        Ok(url) if is_whole && matches!(url.scheme(), "http" | "https") && url.has_host() => {
            if !url.username().is_empty() || url.password().is_some() {
                problems.error_with_help(
                    path,
                    "the URL holds a user or a password",
                    "send it as a header: `Authorization: { file: … }`",
                );
            }
            Some(template)
        }
        _ => {
            problems.error_with_help(
                path,
                "the URL must begin with `http://` or `https://` and a host, before any `{{`",
                "which host is asked is decided here, never by a parameter",
            );
            None
        }
    }
}

/// Refuses `.` and `..` as segments, in every spelling: URL parsers resolve them, so a value could leave the
/// path that the configuration gave. Refuses an empty segment too: `/v1//items` is another resource.
pub(super) fn check(url: &str) -> Result<(), String> {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = after_scheme.split(['?', '#']).next().unwrap_or_default();
    let segments: Vec<&str> = path.split(['/', '\\']).skip(1).collect();
    for (index, segment) in segments.iter().enumerate() {
        let is_hole = segment.is_empty() && index + 1 < segments.len();
        if is_hole || matches!(&*segment.to_ascii_lowercase().replace("%2e", "."), "." | "..") {
            return Err(format!("a value made the path segment `{segment}`"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::INPUT_SCOPE;

    fn url_problem(url: &str) -> Option<String> {
        let mut problems = Problems::default();
        build(url, INPUT_SCOPE, &Path::root(), &mut problems);
        problems.into_vec().into_iter().next().map(|problem| problem.message)
    }

    #[test]
    fn the_host_stands_in_the_configuration() {
        for good in [
            "https://h.example",
            "http://127.0.0.1:8080/v1?env={{ params.env }}",
            "https://h.example/{{ params.a }}/b",
            "https://h.example?x={{ params.a }}",
        ] {
            assert_eq!(url_problem(good), None, "{good}");
        }
        for bad in [
            "https://{{ params.host }}/",
            "https://h.example{{ params.a }}/",
            "https://h.example:{{ params.port }}/",
            "{{ params.url }}",
            "ftp://h.example/",
            "h.example/x",
            "https://u:p@h.example/x",
        ] {
            assert!(url_problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn dot_segments_are_refused_in_every_spelling() {
        for bad in
            ["https://h/a/../b", "https://h/a/%2e%2E", "https://h/./b", "https://h/.%2e/b?x", "https://h/a\\..\\b"]
        {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(check("https://h/v1//items").is_err());
        for good in
            ["https://h/a/", "https://h/", "https://h/a..b/c", "https://h/a?x=../..", "https://h/...", "https://h"]
        {
            assert!(check(good).is_ok(), "{good}");
        }
    }
}

//! What CI and Argo CD make of a branch or a commit: the filters `tag`, `slug` and `sha8`.

use deunicode::deunicode;

/// The longest tag, in characters (OCI distribution specification 1.1).
const MAX_TAG_CHARS: usize = 128;
/// The longest slug, in characters, as Argo CD's pull request generator sets it.
const MAX_SLUG_CHARS: usize = 50;

/// The tag that CI gives an image of the branch `name`: as docker/metadata-action's `type=ref`, all runs of characters outside
/// `[a-zA-Z0-9._-]` become a dash. A leading dot or dash is dropped.
///
/// # Errors
/// When nothing is left, or the tag has more than 128 characters: a cut tag could belong to another branch.
pub(super) fn tag(name: &str) -> Result<String, String> {
    let name = name.strip_prefix("refs/heads/").or_else(|| name.strip_prefix("refs/tags/")).unwrap_or(name);
    let mut tag = String::with_capacity(name.len());
    let mut in_run = false;
    for c in name.chars() {
        let fits = c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if fits {
            tag.push(c);
        } else if !in_run {
            tag.push('-');
        }
        in_run = !fits;
    }
    let tag = tag.trim_start_matches(['.', '-']);
    if tag.len() > MAX_TAG_CHARS {
        return Err(format!("the tag of this branch has {} characters, and a tag at most {MAX_TAG_CHARS}", tag.len()));
    }
    if tag.is_empty() { Err(nothing_left(name, "tag")) } else { Ok(tag.to_owned()) }
}

/// The branch `name` as Argo CD's pull request generator writes it in `branch_slug` (Go's gosimple/slug for English, with
/// underscores as dashes): lower-case ASCII letters, digits and single dashes, at most 50 of them, cut between words.
///
/// # Errors
/// When nothing is left.
pub(super) fn slug(name: &str) -> Result<String, String> {
    let mut words = String::with_capacity(name.len());
    for c in name.trim().chars() {
        match c {
            '"' | '\'' | '\u{2019}' => {}
            '_' | '\u{2012}'..='\u{2015}' => words.push('-'),
            '&' => words.push_str("and"),
            '@' => words.push_str("at"),
            _ => words.push(c),
        }
    }
    let mut slug = String::with_capacity(words.len());
    for c in deunicode(&words).chars().map(|c| c.to_ascii_lowercase()) {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() {
        return Err(nothing_left(name, "slug"));
    }
    let end = if slug.len() <= MAX_SLUG_CHARS {
        slug.len()
    } else {
        slug[..=MAX_SLUG_CHARS].rfind('-').unwrap_or(MAX_SLUG_CHARS)
    };
    Ok(slug[..end].to_owned())
}

/// The message for a `name` without any character of a `what`. An empty name would be shared by all such names.
fn nothing_left(name: &str, what: &str) -> String {
    let shown: String = name.chars().take(80).collect();
    format!("`{}` has no character that a {what} may begin with", shown.escape_debug())
}

/// The first 8 characters of a commit, as Argo CD's `head_short_sha`.
///
/// # Errors
/// When `commit` is not a commit: 8 to 64 hexadecimal digits.
pub(super) fn sha8(commit: &str) -> Result<String, String> {
    if !(8..=64).contains(&commit.len()) || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let shown: String = commit.chars().take(80).collect();
        return Err(format!("`{}` is not a commit: 8 to 64 hexadecimal digits", shown.escape_debug()));
    }
    Ok(commit[..8].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row of the table in docs/configuration.md: the result of each filter for the first cell, or that the filter refuses
    /// it.
    #[test]
    fn the_documentation_shows_what_filters_do() {
        let lines = include_str!("../../../docs/configuration.md").lines();
        let table = lines.skip_while(|line| !line.starts_with("| branch or commit |")).skip(2);
        let mut rows = 0;
        for row in table.take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let [input, cells @ ..] = &cells[..] else { panic!("{row}") };
            let input = input.trim_matches('`');
            let made = [tag(input), slug(input), sha8(input)];
            let outcome = made.map(|made| made.map_or("refused".to_owned(), |made| format!("`{made}`")));
            assert_eq!(outcome, *cells, "{row}");
            rows += 1;
        }
        assert!(rows > 4, "{rows} rows");
    }

    #[test]
    fn the_tag_and_the_slug_of_a_branch() {
        for (branch, expected_tag, expected_slug) in [
            ("main", "main", "main"),
            ("refs/heads/fix/a b", "fix-a-b", "refs-heads-fix-a-b"),
            (".a/../x", "a-..-x", "a-x"),
            ("a//b", "a-b", "a-b"),
            ("a-/b", "a--b", "a-b"),
        ] {
            assert_eq!(
                (tag(branch).unwrap().as_str(), slug(branch).unwrap().as_str()),
                (expected_tag, expected_slug),
                "{branch}"
            );
        }
        assert!(tag(&"x".repeat(129)).unwrap_err().contains("129 characters"));
    }

    #[test]
    fn an_empty_name_is_refused() {
        for nothing in ["", " ", "///", "refs/heads/-", ".-."] {
            let expected = format!("`{nothing}` has no character that a tag may begin with");
            assert_eq!(tag(nothing), Err(expected.replace("refs/heads/", "")));
        }
        for nothing in ["", "///", "_", "\u{2026}\n"] {
            let expected = format!("`{}` has no character that a slug may begin with", nothing.escape_debug());
            assert_eq!(slug(nothing), Err(expected));
        }
    }

    #[test]
    fn a_long_slug_ends_with_a_word() {
        let words = "renovate/lots-of-words-that-go-on-and-on-until-nobody-reads-them";
        let slug = |name: &str| slug(name).unwrap();
        assert_eq!(slug(words), "renovate-lots-of-words-that-go-on-and-on-until");
        assert_eq!(slug(&"x".repeat(60)), "x".repeat(50));
        let exactly = format!("{}-tail", "x".repeat(50));
        assert_eq!(slug(&exactly), "x".repeat(50), "a dash at the very end of what fits");
    }

    #[test]
    fn the_short_form_of_a_commit() {
        assert_eq!(sha8("0123456789abcdef0123456789abcdef01234567").unwrap(), "01234567");
        for bad in ["", "main", "1234567", "0123456g", &"0".repeat(65)] {
            assert!(sha8(bad).unwrap_err().contains("is not a commit"), "{bad}");
        }
    }
}

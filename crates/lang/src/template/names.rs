//! The names that CI and Argo CD make from a branch or a commit: the filters `tag`, `ref_slug`, `slug`, `sha8` and `name`.

pub(super) use crate::functions::slug::slug;
use crate::functions::{
    label,
    name_error::{MAX_SHOWN, MAX_TAG_CHARS, NameError},
};

/// The longest `CI_COMMIT_REF_SLUG`, in characters.
const MAX_REF_SLUG_CHARS: usize = 63;
/// The tag that CI sets on an image of the branch `name`: as docker/metadata-action's `type=ref`, all runs of characters outside
/// `[a-zA-Z0-9._-]` become a dash, and nothing else is changed. So the result may begin with a dash or a dot, as that of `#1` does. Such a result
/// is a valid tag only after CI's `prefix`; this is checked when the reference is parsed. Without the dash it would be the tag of another
/// branch.
///
/// # Errors
/// When nothing is left, or the tag has more than 128 characters: a cut tag could belong to another branch.
pub(super) fn tag(name: &str) -> Result<String, NameError> {
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
    if tag.len() > MAX_TAG_CHARS {
        return Err(NameError::TooLong(tag.len()));
    }
    if tag.is_empty() { Err(NameError::nothing_left(name, "tag")) } else { Ok(tag) }
}

/// The branch `name` as GitLab's `CI_COMMIT_REF_SLUG` (predefined CI/CD variables): in lower case, each character outside `[a-z0-9]` as
/// a dash, cut after 63 characters, without dashes at the ends. GitLab itself makes one slug of several branches.
///
/// # Errors
/// When nothing is left.
pub(super) fn ref_slug(name: &str) -> Result<String, NameError> {
    let lower = name.chars().flat_map(char::to_lowercase);
    let dashed = lower.map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' });
    let slug: String = dashed.take(MAX_REF_SLUG_CHARS).collect();
    let slug = slug.trim_matches('-');
    if slug.is_empty() { Err(NameError::nothing_left(name, "slug")) } else { Ok(slug.to_owned()) }
}

/// The first 8 digits of a commit, as Argo CD's `head_short_sha`. Git and CI write them in lower case, so a tag in capitals would be
/// missing.
///
/// # Errors
/// When `commit` is not a commit: 8 to 64 hexadecimal digits.
pub(super) fn sha8(commit: &str) -> Result<String, NameError> {
    if !(8..=64).contains(&commit.len()) || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(NameError::NotACommit(commit.chars().take(MAX_SHOWN).collect()));
    }
    Ok(commit[..8].to_ascii_lowercase())
}

/// A DNS-1123 label of at most 63 characters, as `name` without an argument.
///
/// # Errors
/// When the text is blank.
pub(super) fn name(text: &str) -> Result<String, NameError> {
    label::label(text, label::MAX_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row of the table in docs/configuration.md: the result of each filter for the first cell, or that the filter refuses
    /// it.
    #[test]
    fn the_documentation_shows_what_filters_do() {
        let lines = include_str!("../../../../docs/configuration.md").lines();
        let table = lines.skip_while(|line| !line.starts_with("| branch or commit |")).skip(2);
        let mut rows = 0;
        for row in table.take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let [input, cells @ ..] = &cells[..] else { panic!("{row}") };
            let input = input.trim_matches('`');
            let made = [tag(input), ref_slug(input), slug(input), sha8(input)];
            let outcome = made.map(|made| made.map_or("refused".to_owned(), |made| format!("`{made}`")));
            assert_eq!(outcome, *cells, "{row}");
            rows += 1;
        }
        assert!(rows > 4, "{rows} rows");
    }

    #[test]
    fn a_tag_is_that_of_ci_and_of_no_other_branch() {
        for (branch, expected) in [
            ("main", "main"),
            ("refs/heads/fix/a b", "fix-a-b"),
            ("a//b", "a-b"),
            ("a-/b", "a--b"),
            (".a/../x", ".a-..-x"),
            ("#123-fix", "-123-fix"),
            ("\u{dc}ber-x", "-ber-x"),
            ("-x", "-x"),
            ("..x", "..x"),
            ("\u{1f600}", "-"),
        ] {
            assert_eq!(tag(branch).unwrap(), expected, "{branch}");
        }
        assert!(tag(&"x".repeat(129)).unwrap_err().to_string().contains("129 characters"));
        for nothing in ["", "refs/heads/", "refs/tags/"] {
            assert_eq!(tag(nothing).unwrap_err().to_string(), "`` has no character that a tag may begin with");
        }
    }

    #[test]
    fn the_slug_that_gitlab_makes_of_a_branch() {
        for (branch, expected) in [
            ("feature/Login_2", "feature-login-2"),
            ("#123-fix", "123-fix"),
            ("a//b", "a--b"),
            ("1.2.x", "1-2-x"),
            ("\u{212a}elvin", "kelvin"),
            (&format!("{}-tail", "x".repeat(62)), &"x".repeat(62)),
        ] {
            assert_eq!(ref_slug(branch).unwrap(), expected, "{branch}");
        }
        for nothing in ["", "///", "\u{fc}"] {
            assert!(ref_slug(nothing).unwrap_err().to_string().contains("that a slug may begin with"));
        }
    }

    #[test]
    fn the_short_form_of_a_commit() {
        assert_eq!(sha8("0123456789abcdef0123456789abcdef01234567").unwrap(), "01234567");
        assert_eq!(sha8("ABCDEF0123").unwrap(), "abcdef01");
        for bad in ["", "main", "1234567", "0123456g", &"0".repeat(65)] {
            assert!(sha8(bad).unwrap_err().to_string().contains("is not a commit"), "{bad}");
        }
    }
}

//! Finds secrets that stand in a configuration, where references belong. A guess, so it only warns.

use super::{forms, names};
use crate::domain::problem::{Path, Problems};

/// Warns if `value`, which stands under `name` at `path`, may be a secret.
pub(crate) fn check(name: &str, value: &str, path: &Path, problems: &mut Problems) {
    if is_secret(name, value) {
        problems.warning(
            path,
            format!("`{name}` seems to hold a secret, which whoever reads this file can read"),
            "write a reference to a file with the whole value, or to a variable: `{ file: … }` or `{ env: … }`",
        );
    }
}

/// Warns if the query of `url`, which stands at `path`, may hold a secret.
pub(crate) fn check_url(url: &str, path: &Path, problems: &mut Problems) {
    let Some((_, query)) = url.split_once('?') else { return };
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        if is_secret(name, value) {
            problems.warning(
                path,
                format!("`{name}` in the URL seems to hold a secret, which proxies and servers write to their logs"),
                "send it as a header, from a file: `headers: { Authorization: { file: … } }`",
            );
        }
    }
}

/// Whether `value`, which stands under `name`, seems to be a secret.
fn is_secret(name: &str, value: &str) -> bool {
    // A template gets its value from the call; a number or a boolean is a setting.
    let is_setting = value.trim().is_empty() || value.contains("{{") || value.parse::<f64>().is_ok();
    if is_setting || matches!(value, "true" | "false") {
        return false;
    }
    names::named(name).is_some_and(|named| names::is_value(named, value)) || forms::holds_secret(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_their_name_or_their_form() {
        for (name, value, expected) in [
            ("Authorization", "Bearer abc", true),
            ("GITHUB_TOKEN", "hunter2", true),
            ("X-Api-Key", "hunter2", true),
            ("private_token", "hunter2", true),
            ("GH", "ghp_0123456789abcdef", true),
            ("KEY", "-----BEGIN PRIVATE KEY-----", true),
            ("TOKEN_FILE", "/run/token", false),
            ("TOKEN", "", false),
            ("Authorization", "Bearer {{ params.token }}", false),
            ("USE_TOKEN", "true", false),
            ("TOKEN", "1", false),
            ("REGION", "eu", false),
            ("X", "token of", false),
        ] {
            assert_eq!(is_secret(name, value), expected, "{name}: {value}");
        }
    }

    #[test]
    fn a_message_does_not_repeat_a_secret() {
        let (mut problems, root) = (Problems::default(), Path::root());
        check("TOKEN", "hunter2", &root, &mut problems);
        check_url("https://h/x?page=1&access_token=hunter2", &root, &mut problems);
        check_url("https://h/x?access_token={{ params.x }}", &root, &mut problems);
        let problems = problems.into_vec();
        assert_eq!(problems.len(), 2);
        assert!(problems.iter().all(|problem| !format!("{problem:?}").contains("hunter2")));
    }
}

//! Hides texts that may be secrets in reports, which are printed to terminals and logs.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use domain::{secret::forms, visible::is_hidden};

/// Endings of keys whose values may be secrets that were written into the file by mistake.
const SECRET_KEYS: [&str; 13] = [
    "token",
    "bearer",
    "password",
    "passwd",
    "secret",
    "sha256",
    "authorization",
    "credential",
    "privatekey",
    "cookie",
    "apikey",
    "api-key",
    "api_key",
];

/// Whether the value of `key` may be a secret.
pub(super) fn names_secret(key: &str) -> bool {
    SECRET_KEYS.iter().any(|end| key.to_ascii_lowercase().ends_with(end))
}

/// `text` without hidden characters, each of which becomes a space, and without users and passwords of URLs. A report is printed to terminals and logs, and repeats keys and
/// values of the file.
pub(super) fn in_one_line(text: String) -> String {
    let text = if text.contains(is_hidden) { text.replace(is_hidden, " ") } else { text };
    if text.contains('@') { without(USER.as_ref(), &text) } else { text }
}

/// The user and password of a URL.
static USER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r#"(://)([^/\s"'@]+(?:@[^/\s"'@]+)*)@"#).ok());

/// The value of a key that ends like [`SECRET_KEYS`]: text, a list of texts, or a block.
static VALUE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let value = r#""[^"\n]*"|'[^'\n]*'|\[[^\]\n{]*\]|[|>][^\n]*(?:\n[ \t]+[^\n]*)*|[^\s\[{&*#,}|>][^\n,}]*"#;
    Regex::new(&format!(r#"(?i)((?:{})["']?[ \t]*:[ \t]*)({value})"#, SECRET_KEYS.join("|"))).ok()
});

/// The query of a URL, and texts that begin as the secrets of well-known services do.
static WELL_KNOWN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let query = format!(r"[?&][a-z0-9_-]*(?:{}|sig|signature)=", SECRET_KEYS.join("|"));
    Regex::new(&format!(
        r#"(?i)({query}|gh[opsu]_|github_pat_|glpat-|xox[bp]-|dckr_pat_|npm_|AIza|AKIA|ASIA|(?:Bearer|Basic) +|hvs\.)([^\s"'&,{{}}\[\]]+)"#
    ))
    .ok()
});

/// `text` with the second group of `pattern` replaced by stars. Each line keeps its length. Empty if there is no pattern.
fn without(pattern: Option<&Regex>, text: &str) -> String {
    let Some(pattern) = pattern else { return String::new() };
    let hidden = |text: &str| {
        let lines = text.split('\n').map(|line| "*".repeat(line.len()));
        lines.collect::<Vec<_>>().join("\n")
    };
    let stars = |found: &Captures<'_>| {
        let end = found[0].len() - found[1].len() - found[2].len();
        format!("{}{}{}", &found[1], hidden(&found[2]), &found[0][found[0].len() - end..])
    };
    pattern.replace_all(text, stars).into_owned()
}

/// `source` without values that may be secrets, because reports are logged.
pub(super) fn masked(source: &str) -> String {
    forms::mask(&without(WELL_KNOWN.as_ref(), &without(USER.as_ref(), &without(VALUE.as_ref(), source))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_may_be_secrets_are_masked() {
        for (source, shown) in [
            ("tokens: [{name: a, token: hunter2}]", "tokens: [{name: a, token: *******}]"),
            ("sha256: \"hunter2\" # x", "sha256: ********* # x"),
            ("{\"password\": 'hunter, 2'}", "{\"password\": ***********}"),
            ("Authorization: Bearer hunter2\nx: y", "Authorization: **************\nx: y"),
            ("tokens:\n  - name: a\n    file: b", "tokens:\n  - name: a\n    file: b"),
            ("Authorization: { file: b }", "Authorization: { file: b }"),
            ("secret: [hunter2, hunter3]", "secret: ******************"),
            ("token: |-\n  hunter2\n  hunter3\nx: y", "token: **\n*********\n*********\nx: y"),
            ("url: http://me:hunter2@h/x?a=b@c", "url: http://**********@h/x?a=b@c"),
            ("proxy: https://me:hun@ter2@h", "proxy: https://***********@h"),
            ("bearer: hunter2", "bearer: *******"),
            ("url: \"http://user:hunter2@h/\"", "url: \"http://************@h/\""),
            ("url: http://h:80/a@b", "url: http://h:80/a@b"),
            ("privateKey: |\n  BEGIN\n  hunter2\nx: y", "privateKey: *\n*******\n*********\nx: y"),
            ("secret: >-\n  hunter2", "secret: **\n*********"),
            ("url: https://h/x?page=1&access_token=hunter2&a=b", "url: https://h/x?page=1&access_token=*******&a=b"),
            ("args: [ghp_hunter2]", "args: [ghp_*******]"),
            ("args: [-H, \"X: Bearer hunter2\"]", "args: [-H, \"X: Bearer *******\"]"),
            ("url: https://h/x?sig=hunter2", "url: https://h/x?sig=*******"),
            ("url: https://h/x?token={{ params.t }}", "url: https://h/x?token={{ params.t }}"),
        ] {
            assert_eq!(masked(source), shown);
        }
    }
}

//! Which names are those of secrets, and whether a value under such a name is one. A guess.

use std::sync::LazyLock;

use regex::Regex;

use super::{REDACTED, REDACTED_IN_URL, encoded, place::regex};

/// How names of secrets end, in lower case and without other characters than letters and digits.
const ENDS: [&str; 28] = [
    "accesskey",
    "accountkey",
    "apikey",
    "apikeys",
    "authkey",
    "authorization",
    "bearer",
    "cookie",
    "cookies",
    "credential",
    "credentials",
    "dbpass",
    "encryptionkey",
    "masterkey",
    "passphrase",
    "passwd",
    "password",
    "passwords",
    "privatekey",
    "pwd",
    "sessid",
    "sessionid",
    "sessionkey",
    "sharedkey",
    "signaturekey",
    "signingkey",
    "token",
    "userpass",
];
/// Names with `secret` that end so are about a secret, and are none.
const ABOUT_SECRETS: [&str; 17] = [
    "class",
    "count",
    "enabled",
    "engine",
    "existingsecret",
    "file",
    "kind",
    "manager",
    "name",
    "namespace",
    "path",
    "provider",
    "pullsecret",
    "ref",
    "secrets",
    "store",
    "type",
];
/// Names with one of these are about the pages of a list.
const PAGES: [&str; 3] = ["continuationtoken", "nexttoken", "page"];
/// Words for values that are not secrets.
const SETTINGS: [&str; 6] = ["", "true", "false", "null", "none", "nil"];
/// Shorter numbers are settings, and counts.
const SHORTEST_NUMBER: usize = 4;

/// The meaning of a name for its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// Each value is a secret, unless it is plainly a setting.
    Always,
    /// A value is a secret if it has so many characters, and a digit.
    IfRandom(usize),
    /// A value is a secret if it has so many characters.
    IfLong(usize),
}

/// Whether `name` is the name of a secret.
pub fn named(name: &str) -> Option<Named> {
    let squashed: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    // Where the next page of a list begins: `nextPageToken`, AWS' `nextToken`, `NextContinuationToken` of S3.
    if PAGES.iter().any(|word| squashed.contains(word)) {
        return None;
    }
    let is_secret = squashed.contains("secret") && !ABOUT_SECRETS.iter().any(|end| squashed.ends_with(end));
    if is_secret || ENDS.iter().any(|end| squashed.ends_with(end)) {
        return Some(Named::Always);
    }
    match &*last_word(name) {
        "pass" => Some(Named::Always),
        "sid" | "session" | "tokens" | "creds" | "cred" => Some(Named::IfRandom(6)),
        "auth" => Some(Named::IfRandom(12)),
        _ => None,
    }
}

/// Whether `name` is about a password, also in prose.
pub(super) fn is_password(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("pass") || name.ends_with("pwd")
}

/// The last word of a name such as `X-Session`, `dbPass` or `DB_PASS`, in lower case.
fn last_word(name: &str) -> String {
    let name = name.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    let mut word: Vec<char> = Vec::new();
    for c in name.chars().rev() {
        let begins =
            !c.is_ascii_alphanumeric() || word.last().is_some_and(char::is_ascii_uppercase) && c.is_lowercase();
        if begins {
            break;
        }
        word.push(c);
    }
    word.iter().rev().map(char::to_ascii_lowercase).collect()
}

/// Whether `value`, which stands under such a name, is a secret.
pub fn is_value(named: Named, value: &str) -> bool {
    static SCHEME: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)^\s*(?:bearer|basic|token)\s+"));
    static REFERENCE: LazyLock<Regex> =
        LazyLock::new(|| regex(r"^(?:\$[A-Z_][A-Z0-9_]*|\$?\$\{[^}]*\}|\$\([^)]*\)|\{\{[^}]*\}\})$"));
    let value = value.replace(REDACTED, "").replace(REDACTED_IN_URL, "");
    let value = SCHEME.replace(&format!("{value} "), "").trim().to_owned();
    // `$TOKEN` and `{{ params.token }}` get their value elsewhere.
    let is_reference = REFERENCE.is_match(&value);
    let is_number = value.parse::<f64>().is_ok();
    if SETTINGS.contains(&&*value.to_ascii_lowercase())
        || is_reference
        || !value.contains(char::is_alphanumeric)
        || is_number && value.len() < SHORTEST_NUMBER
    {
        return false;
    }
    match named {
        Named::Always => true,
        Named::IfLong(shortest) => value.len() >= shortest,
        Named::IfRandom(shortest) => {
            is_random(&value, shortest) && (!is_number || value.len() >= 8) || encoded::is_pair(&value)
        }
    }
}

/// Whether `value` is a word of at least `shortest` characters with a digit.
pub(super) fn is_random(value: &str, shortest: usize) -> bool {
    value.len() >= shortest && value.contains(|c: char| c.is_ascii_digit()) && !value.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_differ_from_names_about_them() {
        for name in ["dbPass", "DB_PASS", "X-Api-Key", "AccountKey", "client_secret", "secretValue", "private_token"] {
            assert_eq!(named(name), Some(Named::Always), "{name}");
        }
        for name in ["X-Session", "sid", "connect.sid", "auth"] {
            assert!(matches!(named(name), Some(Named::IfRandom(_))), "{name}");
        }
        let of_pages = ["nextPageToken", "nextToken", "NextContinuationToken"];
        for name in
            ["secretName", "imagePullSecrets", "existingSecret", "bypass", "inside", "key", ""].iter().chain(&of_pages)
        {
            assert_eq!(named(name), None, "{name}");
        }
    }

    #[test]
    fn settings_and_references_are_no_secrets() {
        for value in
            ["", "true", "7", "[redacted]", "Bearer [redacted]", "$TOKEN", "${TOKEN}", "{{ params.token }}", "Bearer "]
        {
            assert!(!is_value(Named::Always, value), "{value}");
        }
        for value in ["hunter2", "12345678", "[redacted] hunter2", "Bearer hunter2", "$ecret"] {
            assert!(is_value(Named::Always, value), "{value}");
        }
        for (value, expected) in
            [("AllowRead", false), ("oauth2", false), ("dXNlcjpwdw==", true), ("abcdef123456", true)]
        {
            assert_eq!(is_value(Named::IfRandom(12), value), expected, "{value}");
        }
    }
}

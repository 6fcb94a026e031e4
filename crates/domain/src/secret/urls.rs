//! Users and passwords in URLs.

use std::sync::LazyLock;

use regex::Regex;

use super::{
    REDACTED, REDACTED_IN_URL,
    place::{SecretPlace, regex, start_of},
};

/// The longest user and password, so that the time grows with the length of a text only.
const MAX_USER_BYTES: usize = 1024;

/// The users and passwords of all URLs in `text`, of any scheme. A password may have a `/` that is not encoded.
pub(super) fn places(text: &str) -> impl Iterator<Item = SecretPlace> {
    static BEGIN: LazyLock<Regex> = LazyLock::new(|| regex(r"([A-Za-z][A-Za-z0-9+.-]*):(?:\\?/){2}"));
    BEGIN.captures_iter(text).filter_map(|captures| {
        let (whole, scheme) = (captures.get(0)?, captures.get(1)?.as_str());
        let rest = start_of(&text[whole.end()..], MAX_USER_BYTES);
        let rest = &rest[..rest.find(|c: char| c.is_whitespace() || "\"'<>`".contains(c)).unwrap_or(rest.len())];
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        let length = authority.rfind('@').or_else(|| loose_end(authority, rest))?;
        let user = &rest[..length];
        // `git@` in `ssh://git@example.com` is not a secret, and neither is a mere name in most schemes.
        let is_name = !user.contains(':') && !scheme.to_ascii_lowercase().starts_with("http");
        let is_redacted = [REDACTED, REDACTED_IN_URL, ""].contains(&user);
        (!is_name && !is_redacted).then(|| SecretPlace { range: whole.end()..whole.end() + length, is_in_url: true })
    })
}

/// The end of a user and password, if there is a `/`, `?` or `#` in the password. A port is not a password.
fn loose_end(authority: &str, rest: &str) -> Option<usize> {
    let (_, after) = authority.split_once(':')?;
    let is_port = after.chars().all(|c| c.is_ascii_digit());
    if is_port { None } else { rest.find('@') }
}

//! Finds texts that seem to be secrets by their form or by a name beside them. A guess: a secret of an unknown form without a name stays.

use std::sync::LazyLock;

use regex::Regex;

use super::{
    REDACTED, REDACTED_IN_URL, encoded,
    names::is_random,
    pairs,
    place::{SecretPlace, regex},
    urls,
};

/// `text` with [`REDACTED`] in place of each part that seems to be a secret.
#[must_use]
pub fn redact(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut end = 0;
    for SecretPlace { range, is_in_url } in places(text) {
        redacted.push_str(&text[end..range.start]);
        redacted.push_str(if is_in_url { REDACTED_IN_URL } else { REDACTED });
        end = range.end;
    }
    redacted + &text[end..]
}

/// `text` with stars in place of each part that seems to be a secret. Each line keeps its length.
#[must_use]
pub fn mask(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut end = 0;
    for SecretPlace { range, .. } in places(text) {
        masked.push_str(&text[end..range.start]);
        masked.extend(text[range.clone()].bytes().map(|byte| if byte == b'\n' { '\n' } else { '*' }));
        end = range.end;
    }
    masked + &text[end..]
}

/// Whether a part of `text` seems to be a secret.
#[must_use]
pub fn holds_secret(text: &str) -> bool {
    !places(text).is_empty()
}

/// The places in `text`, in order and without overlaps.
fn places(text: &str) -> Vec<SecretPlace> {
    let mut found = plain(text);
    let in_base64 = encoded::texts(text).into_iter().filter(|(_, inner)| !plain(inner).is_empty());
    found.extend(in_base64.map(|(range, _)| SecretPlace::new(range)));
    found.sort_by_key(|place| place.range.start);
    found.dedup_by(|later, earlier| {
        let overlaps = later.range.start < earlier.range.end;
        if overlaps {
            earlier.range.end = earlier.range.end.max(later.range.end);
        }
        overlaps
    });
    found
}

/// The same, without the encoded texts, and perhaps with overlaps.
fn plain(text: &str) -> Vec<SecretPlace> {
    let mut found: Vec<SecretPlace> = PRIVATE_KEY.find_iter(text).map(|key| SecretPlace::new(key.range())).collect();
    found.extend(
        KNOWN
            .captures_iter(text)
            .filter_map(|known| known.get(1).or_else(|| known.get(2)))
            .map(|token| SecretPlace::new(token.range())),
    );
    found.extend(in_schemes(text));
    found.extend(after_options(text));
    found.extend(pairs::places(text));
    found.extend(urls::places(text));
    found
}

/// A private key in PEM. A block without an end goes to the end of the text.
static PRIVATE_KEY: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)",
    )
});

/// Tokens of well-known services, after a character that is not part of a word. Long ones are unmistakable anywhere.
static KNOWN: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x)(?:^|[^A-Za-z0-9]|%[0-9A-Fa-f]{2}|\\[nrt])(
            gh[opsur]_[A-Za-z0-9_]{8,}[A-Za-z0-9_.-]*
            | github_pat_[A-Za-z0-9_]{8,}
            | gl(?:agent|cbt|dt|ffct|ft|imt|oas|pat|ptt|rt|soat)-[A-Za-z0-9_.-]{8,}
            | dckr_[a-z]+_[A-Za-z0-9_-]{8,}
            | hv[bs]\.[A-Za-z0-9_-]{8,}
            | npm_[A-Za-z0-9]{12,}
            | pypi-AgE[A-Za-z0-9_-]{8,}
            | xox[a-z]-[A-Za-z0-9-]{8,} | xapp-[A-Za-z0-9-]{8,}
            | (?:AKIA|ASIA)[A-Z0-9]{12,}
            | AIza[A-Za-z0-9_-]{30,} | ya29\.[A-Za-z0-9_-]{8,}
            | eyJ[A-Za-z0-9_-]{9,}[A-Za-z0-9_.+/=-]*
            | sha256~[A-Za-z0-9_-]{16,}
            | [sr]k_(?:live|test)_[A-Za-z0-9]{8,} | sk-(?:ant|proj)-[A-Za-z0-9_-]{8,}
            | AT(?:ATT3|CTT3|BB)[A-Za-z0-9_=.-]{16,}
            | AGE-SECRET-KEY-1[A-Z0-9]{16,}
            | dop_v1_[a-f0-9]{16,}
        )
        | (gh[opsur]_[A-Za-z0-9]{36,} | github_pat_[A-Za-z0-9_]{36,} | glpat-[A-Za-z0-9_-]{20,})",
    )
});

/// Credentials after the scheme of an `Authorization` header, without the header's name.
fn in_schemes(text: &str) -> impl Iterator<Item = SecretPlace> {
    static SCHEME: LazyLock<Regex> =
        LazyLock::new(|| regex(r"(?i)(?:^|[^A-Za-z0-9])(bearer|basic|token)(?:\s+|%20)([A-Za-z0-9._~+/=-]{8,})"));
    SCHEME.captures_iter(text).filter_map(|captures| {
        let (scheme, credential) = (captures.get(1)?, captures.get(2)?);
        let value = credential.as_str();
        let is_secret = match &*scheme.as_str().to_ascii_lowercase() {
            "basic" => encoded::is_pair(value),
            "bearer" => is_random(value, 8) || value.len() >= 20,
            _ => is_random(value, 20) && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'),
        };
        is_secret.then(|| SecretPlace::new(credential.range()))
    })
}

/// A user and a password after `-u` or `--user`, as of curl. Two numbers are a user and a group.
fn after_options(text: &str) -> impl Iterator<Item = SecretPlace> {
    static OPTION: LazyLock<Regex> =
        LazyLock::new(|| regex(r#"(?:^|[\s"'])(?:-u|--user)[ =]*["']?([^\s:"'=-][^\s:"'=]*:([^\s"']+))"#));
    OPTION.captures_iter(text).filter_map(|captures| {
        let (both, password) = (captures.get(1)?, captures.get(2)?.as_str());
        let is_group = password.chars().all(|c| c.is_ascii_digit());
        let is_reference = password.starts_with('$') || password == REDACTED;
        (!is_group && !is_reference).then(|| SecretPlace::new(both.range()))
    })
}

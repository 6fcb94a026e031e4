//! Texts in base64, in which a secret is as plain as in the text itself.

use std::{ops::Range, sync::LazyLock};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use regex::Regex;

use super::place::regex;

/// With and without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The ranges of `text` that are in base64, each with the text in it. A run of words that are separated by `/`, such as a path, is tried
/// as a whole and word by word. Lines of a PEM block in base64 are one.
pub(super) fn texts(text: &str) -> Vec<(Range<usize>, String)> {
    static RUN: LazyLock<Regex> =
        LazyLock::new(|| regex(r"LS0tLS1CRUdJTi(?:[A-Za-z0-9+/]|\s|\\n)*={0,2}|[A-Za-z0-9+/_-]{16,}={0,2}"));
    let mut found = Vec::new();
    for run in RUN.find_iter(text) {
        if let Some(inner) = decode(run.as_str()) {
            found.push((run.range(), inner));
            continue;
        }
        let mut start = run.start();
        for word in run.as_str().split('/') {
            if word.len() >= 16
                && let Some(inner) = decode(word)
            {
                found.push((start..start + word.len(), inner));
            }
            start += word.len() + 1;
        }
    }
    found
}

/// The text that is in `text` in base64, in either alphabet.
fn decode(text: &str) -> Option<String> {
    let plain: String = text.replace("\\n", "").split_whitespace().collect();
    let bytes = LENIENT.decode(plain.replace('-', "+").replace('_', "/")).ok()?;
    let inner = String::from_utf8(bytes).ok()?;
    let is_text = !inner.contains(|c: char| c.is_control() && !c.is_whitespace());
    is_text.then_some(inner)
}

/// Whether `text` is a user and a password in base64, as in `Basic` authorization and in Docker's file of credentials.
pub(super) fn is_pair(text: &str) -> bool {
    decode(text).is_some_and(|inner| {
        inner.split_once(':').is_some_and(|(user, password)| !user.is_empty() && !password.is_empty())
    })
}

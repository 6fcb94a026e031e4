//! "Did you mean": the known name that is nearest to a misspelt one.

/// Advice for `written`, where only the names `known` exist.
#[must_use]
pub fn advice(written: &str, known: &[&str]) -> String {
    match near(written, known) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "nothing is known here".to_owned(),
        None => format!("known here: {}", known.join(", ")),
    }
}

/// The name of `known` of which `written` may be a misspelling.
#[must_use]
pub fn near<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |name: &str| strsim::damerau_levenshtein(name, written);
    known.iter().copied().filter(|name| distance(name) <= written.len().div_ceil(3)).min_by_key(|name| distance(name))
}

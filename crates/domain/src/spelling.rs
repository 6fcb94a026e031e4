//! "Did you mean": the known name that is nearest to a misspelt one.

/// Advice for `given` where only `known` is known.
#[must_use]
pub fn advice(given: &str, known: &[&str]) -> String {
    match near(given, known) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "nothing is known here".to_owned(),
        None => format!("known here: {}", known.join(", ")),
    }
}

/// The name of `known` of which `given` may be a misspelling.
#[must_use]
pub fn near<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |name: &str| strsim::damerau_levenshtein(name, given);
    known.iter().copied().filter(|name| distance(name) <= given.len().div_ceil(3)).min_by_key(|name| distance(name))
}

//! `name`: a DNS-1123 label, such as the name of an Application, of any text.

use sha2::{Digest as _, Sha256};

use super::{
    name_error::{MAX_LABEL_CHARS, MIN_LABEL_CHARS, NameError},
    slug,
};

/// The longest label, in characters.
pub const MAX_CHARS: usize = MAX_LABEL_CHARS;
/// How many digits of the hash stand at the end.
const HASH_CHARS: usize = 8;

/// `text`, if it is a label of at most `max` characters. Otherwise its slug, cut, and a dash and 8 digits of the SHA-256 of `text`: whatever
/// was changed, two texts make the same label only if their hashes are equal there.
///
/// # Errors
/// When `text` is blank, or `max` is not from [`MIN_LABEL_CHARS`] to [`MAX_CHARS`].
pub(crate) fn label(text: &str, max: usize) -> Result<String, NameError> {
    if !(MIN_LABEL_CHARS..=MAX_CHARS).contains(&max) {
        return Err(NameError::Length(max));
    }
    if text.trim().is_empty() {
        return Err(NameError::nothing_left(text, "name"));
    }
    if text.len() <= max && is_label(text) {
        return Ok(text.to_owned());
    }
    Ok(hashed(text, text.as_bytes(), max))
}

/// A label of at most `max` characters: the slug of `text`, cut, and 8 digits of the SHA-256 of `identity`, by which it differs from the labels
/// of other identities. `max` is from [`MIN_LABEL_CHARS`] to [`MAX_CHARS`].
#[must_use]
pub fn hashed(text: &str, identity: &[u8], max: usize) -> String {
    let hash = base16ct::lower::encode_string(&Sha256::digest(identity));
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let dashed = slug::uncut(text).chars().map(|c| if fits(c) { c } else { '-' }).collect::<String>();
    let cut: String = dashed.trim_matches('-').chars().take(max.saturating_sub(1 + HASH_CHARS)).collect();
    let (start, hash) = (cut.trim_end_matches('-'), &hash[..HASH_CHARS]);
    if start.is_empty() { hash.to_owned() } else { format!("{start}-{hash}") }
}

/// Whether `text` is a DNS-1123 label, as names of Kubernetes objects are.
#[must_use]
pub fn is_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=MAX_CHARS).contains(&text.len())
        && text.chars().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn only_a_changed_name_has_a_hash() {
        let long = "x".repeat(64);
        for (text, max, expected) in [
            ("main", 63, "main"),
            ("0-a", 63, "0-a"),
            (&long[1..], 63, &long[1..]),
            ("Main", 63, "main-eb814be3"),
            ("D6FDE929B1D4", 10, "d-578f0dd9"),
            ("feature/login", 63, "feature-login-df7c7aeb"),
            // The dash where it is cut is left out.
            ("feature/login", 17, "feature-df7c7aeb"),
            ("///", 63, "732c4e97"),
        ] {
            assert_eq!(label(text, max).unwrap(), expected, "{text}");
        }
        let cut = label(&long, 63).unwrap();
        assert!(cut.starts_with(&"x".repeat(54)) && cut.len() == 63, "{cut}");
    }

    /// The rows of the table in docs/configuration.md.
    #[test]
    fn the_documentation_shows_names() {
        let lines = include_str!("../../../../docs/configuration.md").lines();
        let table = lines.skip_while(|line| !line.starts_with("| text | `\\| name`")).skip(2);
        let mut rows = 0;
        for row in table.take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
            let [text, whole, short] = cells[..] else { panic!("{row}") };
            assert_eq!((&*label(text, 63).unwrap(), &*label(text, 20).unwrap()), (whole, short), "{row}");
            rows += 1;
        }
        assert!(rows > 4, "{rows} rows");
    }

    #[test]
    fn what_makes_no_name_is_refused() {
        for (text, max, says) in [
            ("", 63, "has no character that a name may begin with"),
            (" \n", 63, "has no character that a name may begin with"),
            ("a", 9, "from 10 to 63 characters, not 9"),
            ("a", 64, "from 10 to 63 characters, not 64"),
        ] {
            let error = label(text, max).unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn each_name_is_a_label_of_its_own(texts in vec(".{1,90}", 1..40), max in MIN_LABEL_CHARS..=MAX_CHARS) {
            let texts: HashSet<String> = texts.into_iter().filter(|text| !text.trim().is_empty()).collect();
            let made: Vec<String> = texts.iter().map(|text| label(text, max).unwrap()).collect();
            for label_of in &made {
                prop_assert!(is_label(label_of) && !label_of.is_empty() && label_of.len() <= max, "{}", label_of);
                prop_assert_eq!(&label(label_of, max).unwrap(), label_of, "it is a fixed point");
            }
            prop_assert_eq!(made.iter().collect::<HashSet<_>>().len(), texts.len());
        }
    }
}

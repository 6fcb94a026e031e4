//! The filter `slug`: a branch as Argo CD's pull request generator writes it in `branch_slug`, which is Go's gosimple/slug 1.15.0 for
//! English, with underscores as dashes and at most 50 characters.
//!
//! The replacement of each character is in `tools/slug/characters.deflate`, and examples to compare with in `facts.txt` there.
//! `make slug` makes both by that library.

use std::sync::LazyLock;

use super::name_error::NameError;

/// The longest slug, in characters, as Argo CD's pull request generator sets it.
const MAX_CHARS: usize = 50;
/// The first character of the table.
const FIRST: u32 = 0x80;
/// The start of every so many lines of the table is known.
const STEP: usize = 32;

/// The replacement of each character behind ASCII: a line for each, compressed.
static TABLE: LazyLock<Table> =
    LazyLock::new(|| Table::unpack(include_bytes!("../../../../tools/slug/characters.deflate")));

struct Table {
    lines: String,
    starts: Vec<usize>,
}

impl Table {
    /// The table in `packed`. The program holds it, and a test reads each of its lines, so that a damaged table cannot be.
    fn unpack(packed: &[u8]) -> Self {
        let lines = miniz_oxide::inflate::decompress_to_vec(packed).unwrap_or_default();
        let lines = String::from_utf8(lines).unwrap_or_default();
        let ends = lines.match_indices('\n').map(|(end, _)| end + 1);
        let starts = std::iter::once(0).chain(ends).step_by(STEP).collect();
        Self { lines, starts }
    }

    /// The replacement of `c`. The library drops characters behind the table.
    fn get(&self, c: char) -> &str {
        self.line(c).unwrap_or_default()
    }

    fn line(&self, c: char) -> Option<&str> {
        let line = usize::try_from(u32::from(c).checked_sub(FIRST)?).ok()?;
        self.lines[*self.starts.get(line / STEP)?..].lines().nth(line % STEP)
    }
}

/// `branch_slug` of the branch `name`: lower-case ASCII letters, digits and single dashes, at most 50 of them, cut between words. The
/// library also leaves the underscores of eight characters, such as `\u{2cd}`.
///
/// # Errors
/// When nothing is left.
pub(crate) fn slug(name: &str) -> Result<String, NameError> {
    let slug = uncut(name);
    if slug.is_empty() {
        return Err(NameError::nothing_left(name, "slug"));
    }
    let end = if slug.len() <= MAX_CHARS { slug.len() } else { slug[..=MAX_CHARS].rfind('-').unwrap_or(MAX_CHARS) };
    Ok(slug[..end].to_owned())
}

/// The same, of any length, and empty if nothing is left.
pub(super) fn uncut(name: &str) -> String {
    let mut slug = String::with_capacity(name.len());
    let mut push = |text: &str| {
        for c in text.chars() {
            if c != '-' || !slug.ends_with('-') {
                slug.push(c);
            }
        }
    };
    for c in name.trim().chars() {
        match c {
            '"' | '\'' | '\u{2019}' => {}
            '&' => push("and"),
            '@' => push("at"),
            '\u{2012}'..='\u{2015}' => push("-"),
            _ if c.is_ascii_alphanumeric() => push(c.to_ascii_lowercase().encode_utf8(&mut [0; 4])),
            _ if c.is_ascii() => push("-"),
            _ => push(TABLE.get(c)),
        }
    }
    slug.trim_matches(['-', '_']).to_owned()
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    const FACTS: &str = include_str!("../../../../tools/slug/facts.txt");

    /// As `slug`, but an empty slug is empty text, as the library has it.
    fn made(name: &str) -> String {
        slug(name).unwrap_or_default()
    }

    #[test]
    fn each_character_becomes_what_argo_cd_makes_of_it() {
        let (mut blocks, mut next) = (0, 0);
        for line in FACTS.lines().filter(|line| !line.starts_with('[')) {
            let [first, last, expected] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let [first, last] = [first, last].map(|number| u32::from_str_radix(number, 16).unwrap());
            assert_eq!(first, next, "no character is left out");
            next = last + 1;
            let mut sum = Sha256::new();
            for c in (first..=last).filter_map(char::from_u32) {
                sum.update(made(&format!("x{c}y")));
                sum.update("\n");
            }
            assert_eq!(base16ct::lower::encode_string(&sum.finalize()[..8]), expected, "the block at {first:x}");
            blocks += 1;
        }
        assert_eq!((blocks, next), (256 + 16, 0x0011_0000));
    }

    #[test]
    fn names_become_the_slugs_that_argo_cd_makes_of_them() {
        let mut names = 0;
        for line in FACTS.lines().filter(|line| line.starts_with('[')) {
            let (name, expected): (String, String) = serde_json::from_str(line).unwrap();
            assert_eq!(made(&name), expected, "{name:?}");
            names += 1;
        }
        assert_eq!(names, 600);
    }

    #[test]
    fn the_slug_of_a_branch() {
        for (branch, expected) in [
            ("main", "main"),
            ("refs/heads/fix/a b", "refs-heads-fix-a-b"),
            (".a/../x", "a-x"),
            ("feature/\u{30c1}\u{30b1}\u{30c3}\u{30c8}", "feature-chiketsuto"),
            ("fix/\u{3064}\u{304f}\u{3057}", "fix-tsukushi"),
            ("\u{e9}\u{20ac}", "eeu"),
            ("a\u{2cd}b", "a_b"),
        ] {
            assert_eq!(slug(branch).unwrap(), expected, "{branch}");
        }
        for nothing in ["", "///", "_", "\u{2026}\n", "\u{1f600}"] {
            let expected = format!("`{}` has no character that a slug may begin with", nothing.escape_debug());
            assert_eq!(slug(nothing).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_long_slug_ends_with_a_word() {
        let words = "renovate/lots-of-words-that-go-on-and-on-until-nobody-reads-them";
        let slug = |name: &str| slug(name).unwrap();
        assert_eq!(slug(words), "renovate-lots-of-words-that-go-on-and-on-until");
        assert_eq!(slug(&"x".repeat(60)), "x".repeat(50));
        let exactly = format!("{}-tail", "x".repeat(50));
        assert_eq!(slug(&exactly), "x".repeat(50), "a dash at the very end of what fits");
    }
}

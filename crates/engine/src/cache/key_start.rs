//! The beginning of a key's text, by which an operator names one answer.

use crate::cache::Key;

/// How many digits it has at least. A shorter one may be a mistake, such as a variable of a script that was never set: it names nothing.
const MIN_DIGITS: usize = 6;

/// The beginning of a key's text: 6 to 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyStart(String);

/// Why a text is not a [`KeyStart`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyStartError {
    /// It is empty.
    #[error("an id has {MIN_DIGITS} to {max} hexadecimal digits, and this one is empty", max = Key::TEXT)]
    Empty,
    /// It has this many digits.
    #[error("an id has {MIN_DIGITS} to {max} hexadecimal digits, and this one has {0}", max = Key::TEXT)]
    Digits(usize),
    /// It has characters that are not digits.
    #[error("an id has {MIN_DIGITS} to {max} hexadecimal digits, and this one has other characters", max = Key::TEXT)]
    Characters,
}

/// Why a [`KeyStart`] does not name one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotOne {
    /// No key begins so.
    None,
    /// These keys begin so.
    Several(Vec<Key>),
}

impl KeyStart {
    /// Reads the id that an operator wrote.
    ///
    /// # Errors
    /// When it is not 6 to 32 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, KeyStartError> {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hex && (MIN_DIGITS..=Key::TEXT).contains(&text.len()) {
            return Ok(Self(text.to_ascii_lowercase()));
        }
        Err(match text.chars().count() {
            0 => KeyStartError::Empty,
            count if is_hex => KeyStartError::Digits(count),
            _ => KeyStartError::Characters,
        })
    }

    /// The one of `all` whose key begins so.
    ///
    /// # Errors
    /// When there is none, or there are several.
    pub fn find<T>(&self, all: impl IntoIterator<Item = (Key, T)>) -> Result<T, NotOne> {
        let mut found: Vec<(Key, T)> =
            all.into_iter().filter(|(key, _)| key.to_string().starts_with(&self.0)).collect();
        match found.len() {
            0 | 1 => found.pop().map(|(_, one)| one).ok_or(NotOne::None),
            _ => Err(NotOne::Several(found.into_iter().map(|(key, _)| key).collect())),
        }
    }
}

impl From<Key> for KeyStart {
    fn from(key: Key) -> Self {
        Self(key.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(first: u8, last: u8) -> Key {
        let mut bytes = [0xab; 32];
        (bytes[0], bytes[15]) = (first, last);
        Key::of_bytes(bytes)
    }

    #[test]
    fn too_little_names_nothing() {
        let all = || [(key(1, 1), "one"), (key(2, 1), "two"), (key(2, 2), "three")];
        let find = |text: &str| KeyStart::parse(text).unwrap().find(all());
        assert_eq!((find("01abab"), find("01ABAB")), (Ok("one"), Ok("one")));
        assert_eq!(find("02abab"), Err(NotOne::Several(vec![key(2, 1), key(2, 2)])));
        assert_eq!(find(&key(2, 2).to_string()), Ok("three"));
        assert_eq!(find("03abab"), Err(NotOne::None));
        for text in ["", " ", "01aba", "01abag", "0x01abab", "01abab ", "01ababé", &"0".repeat(33)] {
            assert!(KeyStart::parse(text).is_err(), "{text:?}");
        }
    }
}

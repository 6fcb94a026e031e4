//! Escapes of URLs, JSON, HTML, shells and Rust.

/// How escapes begin: those of URLs; of JSON, shells and Rust; of HTML.
pub(super) const MARKS: [u8; 3] = *b"%\\&";

/// An escape.
pub(super) struct Escape {
    pub(super) meant: Meant,
    /// The length of the escape, in bytes.
    pub(super) length: usize,
}

/// The meaning of an escape: a byte, or a character in UTF-8.
pub(super) struct Meant {
    bytes: [u8; 4],
    size: usize,
}

impl Meant {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }
}

impl From<char> for Meant {
    fn from(c: char) -> Self {
        let mut bytes = [0; 4];
        let size = c.encode_utf8(&mut bytes).len();
        Self { bytes, size }
    }
}

impl Escape {
    /// The escape at the beginning of `bytes`.
    pub(super) fn at(bytes: &[u8]) -> Option<Self> {
        let (meant, length) = match bytes {
            [b'%', high, low, ..] => (byte(*high, *low)?, 3),
            [b'\\', b'x', high, low, ..] => (byte(*high, *low)?, 4),
            [b'\\', b'u', b'{', rest @ ..] => {
                let length = rest.iter().take(7).position(|byte| *byte == b'}')?;
                (char::from_u32(number(&rest[..length], 16)?)?.into(), length + 4)
            }
            [b'\\', b'u', rest @ ..] => in_json(rest)?,
            [b'\\', letter, ..] => (after_backslash(*letter)?.into(), 2),
            [b'&', rest @ ..] => {
                let length = rest.iter().take(9).position(|byte| *byte == b';')?;
                (of_entity(&rest[..length])?.into(), length + 2)
            }
            _ => return None,
        };
        Some(Self { meant, length })
    }
}

/// The character of `XXXX` behind `\u`, or of a pair `XXXX\uXXXX` (RFC 8259, section 7); and the length with the `\u`.
fn in_json(rest: &[u8]) -> Option<(Meant, usize)> {
    let unit = |at: usize| u16::try_from(number(rest.get(at..at + 4)?, 16)?).ok();
    let first = unit(0)?;
    if let Some(c) = char::from_u32(first.into()) {
        return Some((c.into(), 6));
    }
    let second = rest.get(4..6).filter(|between| *between == b"\\u").and_then(|_| unit(6))?;
    let pair = char::decode_utf16([first, second]).next()?.ok()?;
    Some((pair.into(), 12))
}

fn after_backslash(letter: u8) -> Option<char> {
    Some(match letter {
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'0' => '\0',
        b' ' => ' ',
        _ if letter.is_ascii_punctuation() => letter.into(),
        _ => return None,
    })
}

fn of_entity(name: &[u8]) -> Option<char> {
    match name {
        b"amp" => Some('&'),
        b"lt" => Some('<'),
        b"gt" => Some('>'),
        b"quot" => Some('"'),
        b"apos" => Some('\''),
        [b'#', b'x' | b'X', digits @ ..] => char::from_u32(number(digits, 16)?),
        [b'#', digits @ ..] => char::from_u32(number(digits, 10)?),
        _ => None,
    }
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    let is_number = digits.iter().all(|digit| char::from(*digit).is_digit(radix));
    if is_number { u32::from_str_radix(str::from_utf8(digits).ok()?, radix).ok() } else { None }
}

fn byte(high: u8, low: u8) -> Option<Meant> {
    let value = u8::try_from(number(&[high, low], 16)?).ok()?;
    Some(Meant { bytes: [value, 0, 0, 0], size: 1 })
}

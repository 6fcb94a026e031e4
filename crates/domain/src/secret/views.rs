//! The forms in which a text can hold a secret: as it is, escaped (URLs, JSON, HTML, shells, Rust), in hexadecimal or in base64, and these
//! within each other. In each of them it is as plain as the secret itself, so it is sought in all of them.

mod escapes;

use std::ops::Range;

use memchr::{memchr, memmem};

use self::escapes::{Escape, MARKS};

/// How many forms within each other are undone.
const LAYERS: usize = 3;
/// In a shorter text nothing is escaped or encoded that could be a secret, in bytes.
const SHORTEST_TEXT: usize = 5;
/// A run of digits with fewer bits cannot hold a secret.
const SHORTEST_BITS: usize = 4 * 8;
/// How much of a text is searched at once, in bytes. This bounds the memory.
const PART: usize = 64 * 1024;
/// How much longer than the secret one of its forms is, at most.
const GROWTH: usize = 16;

/// The place of one byte of a view in the text that is searched.
type Place = Range<u32>;

/// A text after some decoding.
#[derive(Debug, Default)]
struct View {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl View {
    fn of(bytes: &[u8]) -> Self {
        let places = (0..u32::try_from(bytes.len()).unwrap_or(u32::MAX)).map(|at| at..at + 1).collect();
        Self { bytes: bytes.to_vec(), places }
    }

    fn push(&mut self, byte: u8, place: Place) {
        self.bytes.push(byte);
        self.places.push(place);
    }

    /// The ranges that are text. Bytes decoded from something else are hardly ever text.
    fn texts(&self) -> Vec<Range<usize>> {
        let (mut texts, mut begin) = (Vec::new(), 0);
        for chunk in self.bytes.utf8_chunks() {
            for text in chunk.valid().split_inclusive(|c: char| c.is_control() && !c.is_whitespace()) {
                if text.len() >= SHORTEST_TEXT {
                    texts.push(begin..begin + text.len());
                }
                begin += text.len();
            }
            begin += chunk.invalid().len();
        }
        texts
    }
}

/// The ranges of `text` in which one of `needles` occurs in some form, in no order, and perhaps with overlaps.
pub(super) fn places(text: &str, needles: &[impl AsRef<[u8]>]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let Some(longest) = needles.iter().map(|needle| needle.as_ref().len()).max() else { return found };
    let overlap = longest.saturating_mul(GROWTH);
    // Parts overlap by the longest form, so that no secret is cut in two. Each part is at least as long as that overlap.
    let step = PART.max(overlap);
    for begin in (0..text.len()).step_by(step) {
        let end = text.len().min(begin + step + overlap);
        let mut of_part = Vec::new();
        search(&View::of(&text.as_bytes()[begin..end]), needles, LAYERS, &mut of_part);
        found.extend(of_part.into_iter().map(|place| {
            let [from, to] = [place.start, place.end].map(|at| begin + at as usize);
            text.floor_char_boundary(from)..text.ceil_char_boundary(to)
        }));
    }
    found
}

/// Searches `view` for `needles`, also in the texts that it holds in up to `layers` forms within each other.
fn search(view: &View, needles: &[impl AsRef<[u8]>], layers: usize, found: &mut Vec<Place>) {
    for needle in needles {
        let (needle, mut from) = (needle.as_ref(), 0);
        while let Some(at) = memmem::find(&view.bytes[from..], needle).map(|at| from + at) {
            found.push(view.places[at].start..view.places[at + needle.len() - 1].end);
            from = at + 1;
        }
    }
    if layers == 0 {
        return;
    }
    for text in view.texts() {
        let (bytes, places) = (&view.bytes[text.clone()], &view.places[text]);
        for plain in MARKS.into_iter().filter_map(|mark| unescaped(bytes, places, mark)) {
            search(&plain, needles, layers - 1, found);
        }
        for digits in [HEXADECIMAL, BASE64] {
            digits.decoded(bytes, places, |decoded| search(decoded, needles, layers - 1, found));
        }
    }
}

/// `bytes` without one layer of the escapes that begin with `mark`; `None` if there is none.
fn unescaped(bytes: &[u8], places: &[Place], mark: u8) -> Option<View> {
    memchr(mark, bytes)?;
    let (mut view, mut at) = (View::default(), 0);
    while at < bytes.len() {
        let escape = if bytes[at] == mark { Escape::at(&bytes[at..]) } else { None };
        if let Some(Escape { meant, length }) = escape {
            let place = places[at].start..places[at + length - 1].end;
            meant.as_bytes().iter().for_each(|byte| view.push(*byte, place.clone()));
            at += length;
        } else {
            view.push(bytes[at], places[at].clone());
            at += 1;
        }
    }
    (view.bytes.len() < bytes.len()).then_some(view)
}

/// A way of writing bytes as digits.
#[derive(Clone, Copy)]
struct Digits {
    /// How many bits one digit has.
    bits: usize,
    value: fn(u8) -> Option<u8>,
    /// The bytes that may be between digits.
    skips: fn(u8) -> bool,
    /// How many digits a group has. An encoded text may begin at any digit, behind others that belong to the text around it.
    group: usize,
}

const HEXADECIMAL: Digits = Digits {
    bits: 4,
    value: |byte| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok()),
    skips: |byte| byte == b':' || byte.is_ascii_whitespace(),
    group: 2,
};

/// In either alphabet, with and without padding, in one line or in many.
const BASE64: Digits = Digits {
    bits: 6,
    value: |byte| {
        Some(match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        })
    },
    skips: |byte| byte.is_ascii_whitespace(),
    group: 4,
};

impl Digits {
    /// Calls `each` with the bytes that the runs of digits in `bytes` encode.
    fn decoded(self, bytes: &[u8], places: &[Place], mut each: impl FnMut(&View)) {
        let (mut run, mut at) = (Vec::new(), 0);
        while at <= bytes.len() {
            let byte = bytes.get(at).copied().unwrap_or_default();
            if let Some(value) = (self.value)(byte) {
                run.push((value, places[at].clone()));
            } else if run.is_empty() || !(self.skips)(byte) {
                let padding = bytes[at.min(bytes.len())..].iter().take_while(|byte| **byte == b'=').count();
                let end = padding.checked_sub(1).map(|padding| places[at + padding].end);
                if run.len() * self.bits >= SHORTEST_BITS {
                    (0..self.group).for_each(|from| each(&self.decode(&run[from..], end)));
                }
                run.clear();
            }
            at += 1;
        }
    }

    /// The bytes that `run` encodes. If it is padded up to `end`, its last group is one with the padding.
    fn decode(self, run: &[(u8, Place)], end: Option<u32>) -> View {
        let mut view = View::default();
        let whole_groups = run.len() / self.group * self.group;
        for byte in 0..run.len() * self.bits / 8 {
            let (first, last) = (byte * 8 / self.bits, (byte * 8 + 7) / self.bits);
            let value =
                run[first..=last].iter().fold(0_u32, |value, (digit, _)| value << self.bits | u32::from(*digit));
            let below = (last + 1) * self.bits - (byte + 1) * 8;
            let value = u8::try_from(value >> below & 0xff).unwrap_or_default();
            let end = end.filter(|_| first >= whole_groups).unwrap_or(run[last].1.end);
            view.push(value, run[first].1.start..end);
        }
        view
    }
}

#[cfg(test)]
mod tests;

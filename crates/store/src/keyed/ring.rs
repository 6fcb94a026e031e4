//! The keys with which replicas prove to each other that they made the store's content.

use std::fmt;

use aws_lc_rs::{
    digest,
    hmac::{self, HMAC_SHA256},
};
use bytes::Bytes;

/// The first byte of everything that was made with a key. Another form gets another one.
const FORM: u8 = b'K';
/// The id of a key, in bytes.
const ID: usize = 8;
/// The code of HMAC-SHA256, in bytes.
const CODE: usize = 32;
/// The shortest key, in characters.
const SHORTEST: usize = 32;
/// The most keys of one ring.
const MOST: usize = 8;

/// Why a text has no keys that can be used. It repeats none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyRingError {
    /// The key on this line is too short.
    #[error(
        "line {0} is too short for a key: write {SHORTEST} characters or more, such as those of `openssl rand -hex 32`"
    )]
    Short(usize),
    /// There is none.
    #[error("there is no key in it")]
    Empty,
    /// There are too many.
    #[error("there are more than {MOST} keys in it; remove those that replicas no longer need")]
    TooMany,
}

/// Where something is kept. It proves nothing at another place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'a> {
    /// A field of the record with this key.
    Field(&'a [u8; 32], u8),
    /// Among the invalidations.
    Invalidation,
    /// The current revision of this route.
    Revision(&'a str),
    /// The note of this name in this list.
    Note(&'a str, &'a str),
}

impl Place<'_> {
    /// The place as bytes, in which each part has its length before it: two places never have the same bytes.
    fn write(self, code: &mut hmac::Context) {
        let mut part = |part: &[u8]| {
            code.update(&(part.len() as u64).to_le_bytes());
            code.update(part);
        };
        match self {
            Self::Field(key, field) => [b"field", &key[..], &[field]].into_iter().for_each(&mut part),
            Self::Invalidation => part(b"invalidation"),
            Self::Revision(route) => [b"revision", route.as_bytes()].into_iter().for_each(&mut part),
            Self::Note(list, name) => [b"note", list.as_bytes(), name.as_bytes()].into_iter().for_each(&mut part),
        }
    }
}

/// The keys of one group of replicas. The first one makes, all of them verify.
pub(super) struct KeyRing {
    /// The prefix of all keys of the store. Records of one group of gateways prove nothing to another group.
    prefix: String,
    keys: Vec<SharedKey>,
}

struct SharedKey {
    id: [u8; ID],
    key: hmac::Key,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("ids", &self.ids()).finish_non_exhaustive()
    }
}

/// The content, and whether it was written with the first key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) content: Bytes,
    pub(super) is_first: bool,
}

impl KeyRing {
    /// The keys in `text`, one on each line. Empty lines are left out.
    ///
    /// # Errors
    /// When there is none, or too many, or one is too short.
    pub(super) fn parse(prefix: &str, text: &str) -> Result<Self, KeyRingError> {
        let mut keys: Vec<SharedKey> = Vec::new();
        for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim())) {
            if line.is_empty() {
                continue;
            }
            if line.chars().count() < SHORTEST {
                return Err(KeyRingError::Short(number));
            }
            let mut id = [0; ID];
            id.copy_from_slice(&digest::digest(&digest::SHA256, format!("id of {line}").as_bytes()).as_ref()[..ID]);
            if keys.iter().all(|key| key.id != id) {
                keys.push(SharedKey { id, key: hmac::Key::new(HMAC_SHA256, line.as_bytes()) });
            }
        }
        match keys.len() {
            0 => Err(KeyRingError::Empty),
            1..=MOST => Ok(Self { prefix: prefix.to_owned(), keys }),
            _ => Err(KeyRingError::TooMany),
        }
    }

    /// The names of the keys, for messages and for the store. A key cannot be computed from its name.
    pub(super) fn ids(&self) -> Vec<String> {
        self.keys.iter().map(|key| base16ct::lower::encode_string(&key.id)).collect()
    }

    /// Whether there is another key than the first.
    pub(super) fn has_others(&self) -> bool {
        self.keys.len() > 1
    }

    /// `content` with a proof that the first key made it for `place`.
    pub(super) fn seal(&self, place: Place<'_>, content: &[u8]) -> Bytes {
        let Some(first) = self.keys.first() else { return Bytes::new() };
        let mut sealed = Vec::with_capacity(1 + ID + CODE + content.len());
        sealed.push(FORM);
        sealed.extend_from_slice(&first.id);
        sealed.extend_from_slice(self.code(first, place, content).as_ref());
        sealed.extend_from_slice(content);
        sealed.into()
    }

    /// Reads what [`Self::seal`] of a replica with one of these keys made for `place`. `None` for anything else.
    pub(super) fn open(&self, place: Place<'_>, sealed: &Bytes) -> Option<Opened> {
        let (&form, rest) = sealed.split_first()?;
        let (id, rest) = rest.split_first_chunk::<ID>()?;
        let (code, content) = rest.split_first_chunk::<CODE>()?;
        let index = self.keys.iter().position(|key| key.id == *id).filter(|_| form == FORM)?;
        let expected = self.code(&self.keys[index], place, content);
        aws_lc_rs::constant_time::verify_slices_are_equal(expected.as_ref(), code).ok()?;
        Some(Opened { content: sealed.slice(1 + ID + CODE..), is_first: index == 0 })
    }

    fn code(&self, key: &SharedKey, place: Place<'_>, content: &[u8]) -> hmac::Tag {
        let mut code = hmac::Context::with_key(&key.key);
        code.update(&(self.prefix.len() as u64).to_le_bytes());
        code.update(self.prefix.as_bytes());
        place.write(&mut code);
        // The place ends here, whatever the content begins with.
        code.update(&u64::MAX.to_le_bytes());
        code.update(content);
        code.sign()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NEW: &str = "a-new-key-of-more-than-thirty-two-characters";
    const OLD: &str = "an-old-key-of-more-than-thirty-two-characters";

    fn ring(text: &str) -> KeyRing {
        KeyRing::parse("gateway", text).unwrap()
    }

    #[test]
    fn each_key_of_a_ring_verifies_and_the_first_one_makes() {
        let (old, both, new) = (ring(OLD), ring(&format!("{NEW}\n\n{OLD}\n{NEW}\n")), ring(NEW));
        assert_eq!((both.ids().len(), both.ids()[0] == new.ids()[0]), (2, true));
        let place = Place::Revision("previews");
        let (by_old, by_both) = (old.seal(place, b"r"), both.seal(place, b"r"));
        let opened = |is_first| Some(Opened { content: Bytes::from_static(b"r"), is_first });
        assert_eq!((both.open(place, &by_old), both.open(place, &by_both)), (opened(false), opened(true)));
        assert_eq!((new.open(place, &by_both), new.open(place, &by_old)), (opened(true), None));
        assert_eq!(old.open(place, &by_both), None);
    }

    #[test]
    fn what_is_moved_to_another_place_proves_nothing() {
        let ring = ring(NEW);
        let places = [
            Place::Field(&[1; 32], 0),
            Place::Field(&[1; 32], 1),
            Place::Field(&[2; 32], 0),
            Place::Invalidation,
            Place::Revision("a"),
            Place::Revision("b"),
            Place::Note("a", "b"),
            Place::Note("ab", ""),
            Place::Note("", "ab"),
        ];
        for (from, place) in places.iter().enumerate() {
            let sealed = ring.seal(*place, b"content");
            for (to, other) in places.iter().enumerate() {
                assert_eq!(ring.open(*other, &sealed).is_some(), from == to, "{place:?} at {other:?}");
            }
        }
        let other_group = KeyRing::parse("other", NEW).unwrap();
        assert_eq!(other_group.open(places[0], &ring.seal(places[0], b"content")), None);
    }

    #[test]
    fn bad_keys_are_refused_without_repeating_them() {
        for (text, expected) in [
            ("", "there is no key"),
            (" \n\t\n", "there is no key"),
            ("c4n4ry", "line 1 is too short"),
            (&*format!("{NEW}\nc4n4ry"), "line 2 is too short"),
            (&(0..9).map(|n| format!("{n}-{NEW}")).collect::<Vec<_>>().join("\n"), "more than 8 keys"),
        ] {
            let error = KeyRing::parse("gateway", text).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("c4n4ry"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_changed_byte_is_noticed(content: Vec<u8>, at: prop::sample::Index, change in 1..=255_u8) {
            let (ring, place) = (ring(NEW), Place::Invalidation);
            let sealed = ring.seal(place, &content);
            prop_assert_eq!(ring.open(place, &sealed).map(|opened| opened.content), Some(content.into()));
            let mut changed = sealed.to_vec();
            let at = at.index(changed.len());
            changed[at] ^= change;
            prop_assert_eq!(ring.open(place, &changed.into()), None);
            prop_assert_eq!(ring.open(place, &sealed.slice(..at)), None);
        }
    }
}

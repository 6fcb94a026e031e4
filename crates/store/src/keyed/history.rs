//! The fields of each record that this replica has read in this epoch. Anyone with write access to the store may put back an earlier field,
//! or remove it. Each field contains the version of its record before it was written, so both are noticed.

use std::{collections::HashMap, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::time::Instant;

use super::super::{Field, RecordKey};

/// The store drops a record 30 days after its last change, with all its fields. Older records are not missed.
const KEPT: Duration = Duration::from_hours(29 * 24);

/// A field's content, and after which version of its record it was written. A field that was removed has no content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) after: u64,
    pub(super) content: Option<Bytes>,
}

impl Written {
    /// As bytes.
    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(9 + self.content.as_ref().map_or(0, Bytes::len));
        bytes.put_u64_le(self.after);
        bytes.put_u8(u8::from(self.content.is_some()));
        bytes.put_slice(self.content.as_deref().unwrap_or_default());
        bytes.into()
    }

    /// Reads the bytes of [`Self::encode`].
    pub(super) fn decode(bytes: &Bytes) -> Option<Self> {
        let (after, rest) = bytes.split_first_chunk::<8>()?;
        let (&has_content, _) = rest.split_first()?;
        Some(Self { after: u64::from_le_bytes(*after), content: (has_content == 1).then(|| bytes.slice(9..)) })
    }
}

/// The fields read of each record.
#[derive(Debug, Default)]
pub(super) struct History {
    records: HashMap<RecordKey, ([Option<u64>; 4], Option<Instant>)>,
}

impl History {
    /// Forgets all fields, in another epoch.
    pub(super) fn clear(&mut self) {
        self.records.clear();
    }

    /// Notes that `field` of the record under `key` holds `written`, or nothing that any replica wrote.
    ///
    /// # Errors
    /// The change of the field since it was read last.
    pub(super) fn note(
        &mut self,
        key: &RecordKey,
        field: Field,
        written: Option<&Written>,
    ) -> Result<(), &'static str> {
        let now = Instant::now();
        let (fields, at) = self.records.entry(*key).or_default();
        if at.is_some_and(|at| now - at > KEPT) {
            *fields = [None; 4];
        }
        *at = Some(now);
        let known = &mut fields[field as usize];
        match (written.map(|written| written.after), *known) {
            (None, Some(_)) => Err("it was removed, and not by a replica"),
            (Some(after), Some(known)) if after < known => Err("it is an earlier one, which was put back"),
            (after, _) => {
                *known = after;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RecordKey = [1; 32];

    fn written(after: u64) -> Written {
        Written { after, content: Some(Bytes::from_static(b"x")) }
    }

    #[test]
    fn what_was_written_is_read_again() {
        for content in [None, Some(Bytes::new()), Some(Bytes::from_static(b"content"))] {
            let written = Written { after: u64::MAX - 1, content };
            assert_eq!(Written::decode(&written.encode()), Some(written));
        }
        assert_eq!(Written::decode(&Bytes::from_static(b"12345678")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_field_that_goes_back_or_away_is_noticed() {
        let mut history = History::default();
        let mut note = |field, after: Option<u64>| history.note(&KEY, field, after.map(written).as_ref());
        assert_eq!((note(Field::Answer, Some(3)), note(Field::Held, None)), (Ok(()), Ok(())));
        assert_eq!((note(Field::Answer, Some(3)), note(Field::Answer, Some(7))), (Ok(()), Ok(())));
        assert_eq!(note(Field::Answer, Some(3)), Err("it is an earlier one, which was put back"));
        assert_eq!(note(Field::Answer, None), Err("it was removed, and not by a replica"));
        assert_eq!((note(Field::Answer, Some(7)), note(Field::Held, Some(1))), (Ok(()), Ok(())));
        // The store has dropped the record meanwhile.
        tokio::time::advance(Duration::from_hours(30 * 24)).await;
        assert_eq!(note(Field::Answer, None), Ok(()));
    }
}

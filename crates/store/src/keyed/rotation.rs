//! Changes the key without a pause. While there is another key than the first, records that it made are brought under the first one, a page
//! with each sync. Their versions stay, so no replica reads them again.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{Field, Page, Record, RecordKey, Store},
    KeyRing, Place,
};

/// A replica that has the earlier keys only may still write with them, so all is looked through again after this time.
const AGAIN_AFTER: Duration = Duration::from_mins(1);

/// How far the store was looked through.
#[derive(Debug, Default)]
pub(super) struct Rotation {
    /// The version after which the next page begins.
    after: u64,
    /// How many records of other keys could not be brought under the first one since the beginning.
    left: u64,
    /// How many could.
    moved: u64,
    ended: Option<Instant>,
}

/// The results for the records of one page.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resealed {
    pub(super) moved: u64,
    pub(super) left: u64,
}

impl Rotation {
    /// Looks through everything from the beginning.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// After which version the next page begins. `None` if nothing is to be done now.
    pub(super) fn due(&mut self) -> Option<u64> {
        if self.ended.is_some_and(|at| at.elapsed() >= AGAIN_AFTER) {
            self.begin();
        }
        self.ended.is_none().then_some(self.after)
    }

    /// Notes that `page` was looked through. At the end, returns how many records are left under other keys.
    pub(super) fn note(&mut self, page: &Page, resealed: Resealed) -> Option<u64> {
        self.moved += resealed.moved;
        self.left += resealed.left;
        self.after = page.end;
        if !page.is_last {
            return None;
        }
        self.ended = Some(Instant::now());
        if self.moved > 0 {
            tracing::info!(
                records = self.moved,
                left = self.left,
                "records of the shared store are under its first key now"
            );
        }
        Some(self.left)
    }
}

/// Brings the records of `page` under the first key.
pub(super) async fn reseal<S: Store>(ring: &KeyRing, store: &S, epoch: &str, page: &Page) -> Resealed {
    let mut resealed = Resealed::default();
    for (key, record) in &page.records {
        let fields = fields(ring, key, record);
        if fields.is_empty() {
            continue;
        }
        match store.replace(epoch, *key, record.version, &fields).await {
            Ok(true) => resealed.moved += 1,
            // It has changed meanwhile, or the store went away.
            Ok(false) | Err(_) => resealed.left += 1,
        }
    }
    resealed
}

/// The fields of `record` that another key than the first made, made by the first.
fn fields(ring: &KeyRing, key: &RecordKey, record: &Record) -> Vec<(Field, bytes::Bytes)> {
    let of_other_key = |field: Field| {
        let place = Place::Field(key, field as u8);
        let opened = ring.open(place, record.get(field)?).filter(|opened| !opened.is_first)?;
        Some((field, ring.seal(place, &opened.content)))
    };
    Field::ALL.into_iter().filter_map(of_other_key).collect()
}

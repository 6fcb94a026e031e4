//! Reads the answers of scripts.

use bytes::Bytes;
use redis::Value;

use super::super::{Field, Page, Record, RecordKey, SyncReply};
use domain::clock::Timestamp;

/// The answer of `sync.lua`. `None` if it has another form.
pub(super) fn sync(reply: Value) -> Option<SyncReply> {
    let [
        now,
        epoch,
        recovering,
        lost_at,
        highest,
        is_all,
        invalidation,
        replicas,
        changed,
        invalidations,
        revisions,
        acknowledged,
        current,
    ] = <[Value; 13]>::try_from(list(reply)?).ok()?;
    let lost_at = text(lost_at)?;
    Some(SyncReply {
        now: Timestamp(number(now)?),
        epoch: text(epoch)?,
        is_recovering: text(recovering)? == "1",
        lost_at: if lost_at.is_empty() { None } else { Some(Timestamp(lost_at.parse().ok()?)) },
        highest: number(highest)?,
        is_all: text(is_all)? == "1",
        invalidation: number(invalidation)?,
        replicas: usize::try_from(number(replicas)?).ok()?,
        changed: list(changed)?.into_iter().map(record).collect::<Option<_>>()?,
        invalidations: list(invalidations)?.into_iter().map(invalidation_of).collect::<Option<_>>()?,
        revisions: pairs(list(revisions)?),
        acknowledged: number(acknowledged)?,
        current: usize::try_from(number(current)?).ok()?,
    })
}

/// The answer of `page.lua`. `None` if it has another form.
pub(super) fn page(reply: Value) -> Option<Page> {
    let [is_last, end, records] = <[Value; 3]>::try_from(list(reply)?).ok()?;
    Some(Page {
        records: list(records)?.into_iter().map(record).collect::<Option<_>>()?,
        end: number(end)?,
        is_last: text(is_last)? == "1",
    })
}

/// The id of the last entry in an answer to XREAD. `None` if there is none.
pub(super) fn last_id(reply: Value) -> Option<String> {
    let stream = list(reply)?.into_iter().next()?;
    let entries = list(list(stream)?.into_iter().nth(1)?)?;
    text(list(entries.into_iter().next_back()?)?.into_iter().next()?)
}

fn record(value: Value) -> Option<(RecordKey, Record)> {
    let [key, fields] = <[Value; 2]>::try_from(list(value)?).ok()?;
    let mut fields = list(fields)?.into_iter();
    let mut record = Record::new(number(fields.next()?)?);
    for (field, content) in Field::ALL.into_iter().zip(fields) {
        let content = if content == Value::Nil { None } else { Some(bytes(content)?) };
        record.set(field, content);
    }
    Some((RecordKey::try_from(&bytes(key)?[..]).ok()?, record))
}

fn invalidation_of(value: Value) -> Option<(u64, Bytes)> {
    let [number_of, selector] = <[Value; 2]>::try_from(list(value)?).ok()?;
    Some((number(number_of)?, bytes(selector)?))
}

/// Entries in another form, which no replica wrote, are left out.
fn pairs(values: Vec<Value>) -> Vec<(String, Bytes)> {
    let mut values = values.into_iter();
    let mut pairs = Vec::new();
    while let (Some(name), Some(value)) = (values.next(), values.next()) {
        pairs.extend(text(name).zip(bytes(value)));
    }
    pairs
}

fn list(value: Value) -> Option<Vec<Value>> {
    if let Value::Array(items) = value { Some(items) } else { None }
}

fn bytes(value: Value) -> Option<Bytes> {
    if let Value::BulkString(bytes) = value { Some(bytes.into()) } else { None }
}

fn text(value: Value) -> Option<String> {
    String::from_utf8(bytes(value)?.to_vec()).ok()
}

fn number(value: Value) -> Option<u64> {
    text(value)?.parse().ok()
}

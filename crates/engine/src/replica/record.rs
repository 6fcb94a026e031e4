//! The form of a record's fields in the shared store. Each is sealed with a format version and a checksum, as records on disk are
//! (`engine::cache::disk::record`). A record that does not fit cannot be read, which never counts as "there was nothing".

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    cache::{
        Backoff, Entry, Life,
        disk::record::{Head, opened, sealed},
    },
    failure::Failed,
    guard::{Baseline, Held},
    route::RouteTable,
};
use domain::{document, generator::Selector};

/// An answer without its body.
#[derive(Debug, Serialize, Deserialize)]
struct SharedHead {
    answer: Head,
    /// The epoch in which a run stored it. In another epoch no replica serves it, because a later answer may be lost.
    epoch: String,
    /// The number of the last invalidation before it. A later one ends its life.
    invalidation: u64,
    /// The number of its run.
    run: u64,
    /// For how long it is fresh, in milliseconds.
    fresh_ms: u64,
    /// Whether the backend is called before it is served after that.
    is_brief: bool,
}

/// A failure, and its backoff.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SharedFailure {
    #[serde(rename = "rest")]
    pub(crate) backoff: Backoff<Failed>,
    /// The number of the last invalidation before it. A later one ends the backoff.
    pub(crate) invalidation: u64,
    /// The fingerprint of the keys and roots of its run. Under others, the question may well be answered.
    #[serde(default)]
    pub(crate) trust: u64,
}

impl SharedFailure {
    /// Whether it was under the keys that its route has here.
    pub(crate) fn counts(&self, routes: &RouteTable) -> bool {
        let route = routes.by_any_name(&self.backoff.failure.question.route);
        route.is_none_or(|route| route.trust().fingerprint == self.trust)
    }
}

/// An answer from the store.
#[derive(Debug)]
pub(crate) struct SharedAnswer {
    pub(crate) entry: Entry,
    /// The epoch in which it was stored.
    pub(crate) epoch: String,
    /// The number of the last invalidation before it.
    pub(crate) invalidation: u64,
}

/// `entry`, stored in `epoch` after the invalidation with this number.
pub(crate) fn answer(entry: &Entry, epoch: &str, invalidation: u64) -> Option<Bytes> {
    let (fresh, is_brief) = match entry.life {
        Life::For(fresh) => (fresh, false),
        Life::Brief(fresh) => (fresh, true),
        Life::Restored => (Duration::ZERO, false),
    };
    let head = SharedHead {
        answer: Head::of(entry),
        epoch: epoch.to_owned(),
        invalidation,
        run: entry.run_number,
        fresh_ms: u64::try_from(fresh.as_millis()).unwrap_or(u64::MAX),
        is_brief,
    };
    sealed(&head, entry.encoded.body())
}

/// Reads the bytes of [`answer`].
pub(crate) fn read_answer(content: &[u8]) -> Option<SharedAnswer> {
    let (head, body) = opened::<SharedHead>(content)?;
    let fresh = Duration::from_millis(head.fresh_ms);
    let life = if head.is_brief { Life::Brief(fresh) } else { Life::For(fresh) };
    let entry = Entry { run_number: head.run, life, ..head.answer.with_body(body)? };
    Some(SharedAnswer { entry, epoch: head.epoch, invalidation: head.invalidation })
}

/// The record of a baseline, a held answer or a failure.
pub(crate) fn other<T: Field>(value: &T) -> Option<Bytes> {
    sealed(value, &[])
}

/// Reads the bytes of [`other`].
pub(crate) fn read_other<T: Field>(content: &[u8]) -> Option<T> {
    opened(content).map(|(value, _)| value)
}

/// A field without a body.
pub(crate) trait Field: Serialize + DeserializeOwned {}

impl Field for Baseline {}
impl Field for Held {}
impl Field for SharedFailure {}

/// `backoff`, which began after the invalidation with this number, under the keys with the fingerprint `trust`.
pub(crate) fn failure(backoff: &Backoff<Failed>, invalidation: u64, trust: u64) -> Option<Bytes> {
    other(&SharedFailure { backoff: backoff.clone(), invalidation, trust })
}

/// `selector` as bytes.
pub(crate) fn selector(selector: &Selector) -> Bytes {
    let Selector { route, formerly, application_set, parameters, is_exact, part } = selector;
    // As text: `json!` would rewrite the numbers of its item.
    let part = part.as_ref().map(|part| serde_json::to_string(part).unwrap_or_default());
    let mut value = serde_json::json!({
        "route": route, "formerly": formerly, "applicationSet": application_set, "exact": is_exact, "part": part,
    });
    // `json!` would rewrite the numbers of parameters.
    value["parameters"] = Value::Object(parameters.clone());
    value.to_string().into()
}

/// Reads the bytes of [`selector`]. Unreadable bytes select everything.
pub(crate) fn read_selector(content: &[u8]) -> Selector {
    let value: Value = document::read_back(content).unwrap_or_default();
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let parameters = value.get("parameters").and_then(Value::as_object).cloned().unwrap_or_default();
    let is_exact = value.get("exact").and_then(Value::as_bool).unwrap_or_default();
    let names = value.get("formerly").and_then(Value::as_array).into_iter().flatten();
    let formerly = names.filter_map(|name| name.as_str().map(str::to_owned)).collect();
    let part = text("part").and_then(|part| serde_json::from_str(&part).ok());
    Selector { route: text("route"), formerly, application_set: text("applicationSet"), parameters, is_exact, part }
}

/// A baseline behind an `Arc`.
pub(crate) fn baseline(baseline: &Arc<Baseline>) -> Option<Bytes> {
    other(&**baseline)
}

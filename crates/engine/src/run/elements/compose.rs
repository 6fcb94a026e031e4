//! Makes one answer of a list and of what is known of its elements.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use crate::{
    cache::{ElementCounts, Elements, Encoded, Entry},
    failure::Failure,
    route::ResolvedQuery,
    run::{Finished, RunAnswer, elements::Gathering},
};
use domain::{
    clock::Timestamp,
    error::{BackendError, ErrorKind},
    generator::{Evidence, Lasting, ParameterSet, label},
    units::plural,
};
use source::MaxUnknown;

/// How many elements a message names, and of how many the proof of an empty answer is kept.
const MAX_NAMED: usize = 5;
const MAX_PROOFS: usize = 100;
/// When an element is queried again that was not done by the deadline: its run goes on.
const SOON: Duration = Duration::from_secs(1);

/// An element that is not known now.
struct Unknown {
    /// Its place in the list.
    place: usize,
    id: Arc<str>,
    failure: Failure,
    /// Whether the answer has what it had last.
    is_last_known: bool,
    /// Why the answer cannot be made without it; `None` if it can.
    why_needed: Option<&'static str>,
}

/// The elements of an answer, with what the answer has of each.
pub(super) struct Composed {
    elements: Vec<Arc<ResolvedQuery>>,
    /// What the answer has of each: its answer, or its last known one. `None`: nothing, because it never was known.
    entries: Vec<Option<Arc<Entry>>>,
    unknown: Vec<Unknown>,
    counts: ElementCounts,
}

impl Composed {
    /// Decides what the answer has of each element, of which this was `found`.
    ///
    /// # Errors
    /// When the answer is unknown: too many elements are, or one that an accepted answer may have had.
    pub(super) fn of(
        gathering: &Gathering<'_>,
        elements: Vec<Arc<ResolvedQuery>>,
        found: Vec<Finished>,
    ) -> Result<Self, Failure> {
        let now = gathering.clock.now();
        let last = gathering.last_answer(now);
        let mut all = Self {
            entries: Vec::with_capacity(elements.len()),
            elements,
            unknown: Vec::new(),
            counts: ElementCounts::default(),
        };
        for (place, (element, found)) in all.elements.iter().zip(found).enumerate() {
            let entry = match found {
                Ok(entry) => {
                    let count = if entry.encoded.sets() > 0 { &mut all.counts.present } else { &mut all.counts.absent };
                    *count += 1;
                    Some(entry)
                }
                Err(failure) => {
                    let id = element
                        .query
                        .part
                        .as_ref()
                        .and_then(|part| part.element())
                        .map(|element| Arc::clone(&element.id));
                    let id = id.unwrap_or_default();
                    let known =
                        gathering.last_known(element, now).filter(|known| !is_forgotten(known, &id, last.as_deref()));
                    let why_needed = match &known {
                        Some(known) => why_not_absent(known, &id, last.as_deref()),
                        None => gathering.why_needed(element, &id, last.as_deref()),
                    };
                    let count = if known.is_some() { &mut all.counts.last_known } else { &mut all.counts.unknown };
                    *count += 1;
                    all.unknown.push(Unknown { place, id, failure, is_last_known: known.is_some(), why_needed });
                    known
                }
            };
            all.entries.push(entry);
        }
        all.check(gathering.parts.max_unknown)?;
        Ok(all)
    }

    /// Whether the answer may be made although some elements are unknown.
    fn check(&self, max_unknown: MaxUnknown) -> Result<(), Failure> {
        let (count, all) = (self.unknown.len(), self.elements.len());
        if count == 0 {
            return Ok(());
        }
        let s = plural(all);
        let needed = self.unknown.iter().find_map(|each| Some((each, each.why_needed?)));
        let message = if max_unknown.is_exceeded(count, all) {
            let limit = match max_unknown {
                MaxUnknown::Count(limit) if count > limit as usize => format!("more than `maxUnknown: {limit}`"),
                MaxUnknown::Share(limit) if limit.is_exceeded(count, all) && max_unknown != MaxUnknown::HALF => {
                    format!("more than `maxUnknown: {limit}`")
                }
                _ => "more than half".to_owned(),
            };
            format!("{count} of {all} element{s} unknown, {limit}: {}", self.named(|_| true))
        } else if let Some((_, why)) = needed {
            let why_needed = |each: &Unknown| each.why_needed.is_some();
            format!("{count} of {all} element{s} unknown, and {why}: {}", self.named(why_needed))
        } else {
            return Ok(());
        };
        let kinds = self.unknown.iter().filter_map(|each| match &each.failure {
            Failure::Backend(error) => Some(error.kind),
            _ => None,
        });
        // Another question does not help against one item that is invalid.
        let kind = kinds.into_iter().find(|kind| *kind != ErrorKind::InvalidInput).unwrap_or(ErrorKind::Unavailable);
        let evidence = self.unknown.iter().take(MAX_PROOFS).flat_map(|each| {
            let label = label(&each.id);
            each.failure.evidence().iter().map(move |evidence| evidence.clone().by(&label)).collect::<Vec<_>>()
        });
        let evidence = evidence.collect();
        Err(Failure::Backend(BackendError { evidence, ..BackendError::new(kind, message) }))
    }

    /// The first unknown elements that are `meant`, and why they are unknown.
    fn named(&self, meant: impl Fn(&Unknown) -> bool) -> String {
        let meant: Vec<&Unknown> = self.unknown.iter().filter(|each| meant(each)).collect();
        let first = meant.iter().take(MAX_NAMED).map(|each| format!("{}: {}", label(&each.id), each.failure));
        let mut text = first.collect::<Vec<_>>().join("; ");
        if meant.len() > MAX_NAMED {
            let _ = write!(text, "; and {} more", meant.len() - MAX_NAMED);
        }
        text
    }

    /// The answer.
    pub(super) fn answer(self, gathering: &Gathering<'_>, list: &Entry) -> Result<RunAnswer, Failure> {
        let sets: Vec<ParameterSet> = self.entries.iter().flatten().flat_map(|entry| entry.encoded.decode()).collect();
        let encoded = Encoded::encode(&sets).map_err(|error| {
            Failure::Backend(BackendError::invalid_output(format!("the answer cannot be written as JSON: {error}")))
        })?;
        // An answer without sets has a proof.
        let evidence = if sets.is_empty() { self.proofs(list) } else { Vec::new() };
        let lasting = Some(self.lasting(gathering, list));
        let elements = self.elements.iter().zip(&self.entries).filter_map(|(element, entry)| {
            let has_sets = entry.as_ref().is_some_and(|entry| entry.encoded.sets() > 0);
            Some((&*element.query.part.as_ref()?.element()?.id, has_sets))
        });
        let elements = Elements::of(elements, self.counts);
        Ok(RunAnswer { sets, encoded, evidence, lasting, note: None, elements: Some(Arc::new(elements)) })
    }

    /// Warns of the elements that the answer has as they were last, and of those that it has not, once for this run.
    pub(super) fn warn(&self, gathering: &Gathering<'_>) {
        if self.unknown.is_empty() {
            return;
        }
        let resolved = gathering.resolved;
        let last_known = self.named(|each| each.is_last_known);
        let left_out = self.named(|each| !each.is_last_known);
        let text = |names: &str| (!names.is_empty()).then(|| names.to_owned());
        tracing::warn!(
            route = &*resolved.route.name, application_set = resolved.question.application_set.as_deref(), key = %resolved.key,
            elements = self.elements.len(), last_known = text(&last_known), left_out = text(&left_out),
            "elements are unknown: the answer has what they had last, or nothing of those that never were in one"
        );
    }

    /// The evidence that the list is empty, or that each element is absent.
    fn proofs(&self, list: &Entry) -> Vec<Evidence> {
        let of_elements = self.elements.iter().zip(&self.entries).take(MAX_PROOFS).flat_map(|(element, entry)| {
            let label = element.query.part.as_ref().map(ToString::to_string).unwrap_or_default();
            let evidence = entry.as_ref().map(|entry| entry.evidence.clone()).unwrap_or_default();
            evidence.into_iter().map(move |each| each.by(&label)).collect::<Vec<_>>()
        });
        list.evidence.iter().cloned().chain(of_elements).collect()
    }

    /// How long the answer is fresh: as long as the list and the shortest element. One that is unknown is queried again after its backoff.
    fn lasting(&self, gathering: &Gathering<'_>, list: &Entry) -> Lasting {
        let (mut least, mut is_brief) = gathering.left(list);
        let mut unknown = self.unknown.iter().map(|each| each.place).peekable();
        for (place, (element, entry)) in self.elements.iter().zip(&self.entries).enumerate() {
            let now = gathering.clock.now();
            let is_unknown = unknown.next_if_eq(&place).is_some();
            let (left, brief) = match entry {
                Some(entry) if !is_unknown => gathering.left(entry),
                _ => {
                    let backoff = gathering.known.failing.backoff(&element.key, now);
                    (backoff.map_or(SOON, |(_, left)| left.max(SOON)), false)
                }
            };
            (least, is_brief) = (least.min(left), is_brief || brief);
        }
        if is_brief { Lasting::AtMost(least) } else { Lasting::For(least) }
    }
}

/// Why the element `id` may not count as absent, as it was when it was last `known`: only what is known now may begin or confirm a loss.
fn why_not_absent(known: &Entry, id: &str, last: Option<&Entry>) -> Option<&'static str> {
    let elements = last.and_then(|last| last.elements.as_ref());
    let has_sets = elements.is_some_and(|elements| elements.has_sets_of(id));
    (known.encoded.sets() == 0 && has_sets).then_some("the last accepted answer has it, and since then it was absent")
}

/// Whether what is `known` of the element `id` is over: the last accepted answer was made after it, and without it. The element had left the
/// list, or was left out when it came back.
fn is_forgotten(known: &Entry, id: &str, last: Option<&Entry>) -> bool {
    let is_left_out = |last: &Entry| last.elements.as_ref().is_some_and(|elements| !elements.has_sets_of(id));
    known.encoded.sets() > 0 && last.is_some_and(|last| is_left_out(last) && known.stored_at <= last.stored_at)
}

impl Gathering<'_> {
    /// The last accepted answer, if it may be served.
    fn last_answer(&self, now: Timestamp) -> Option<Arc<Entry>> {
        let resolved = self.resolved;
        self.known.baseline(resolved).ok()?;
        let keys = [resolved.lineage(), resolved.key];
        keys.iter().find_map(|key| self.known.usable(&resolved.route, key, now)).map(|(entry, _)| entry)
    }

    /// What `element` had last, if it may still be served.
    pub(super) fn last_known(&self, element: &ResolvedQuery, now: Timestamp) -> Option<Arc<Entry>> {
        let keys = [element.key, element.lineage()];
        keys.iter().find_map(|key| self.known.usable(&element.route, key, now)).map(|(entry, _)| entry)
    }

    /// Why the answer cannot be made without the element `id`, of which nothing is known: an Application of it may exist. `None` if none can.
    fn why_needed(&self, element: &ResolvedQuery, id: &str, last: Option<&Entry>) -> Option<&'static str> {
        let Some(elements) = last.and_then(|last| last.elements.as_ref()) else {
            return Some("the first answer needs all of them, since nobody knows which Applications there are");
        };
        if !elements.has(id) {
            // No accepted answer had it since it came into the list.
            return None;
        }
        match self.known.baseline(element) {
            // It was left out before, or was absent.
            Ok(baseline) if baseline.count() == 0 => None,
            Ok(_) => Some("what was known is older than `staleIfError` allows"),
            Err(_) => Some("what was known is lost"),
        }
    }
}

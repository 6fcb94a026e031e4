//! Makes one answer of a list and of what is known of its elements.

use std::sync::Arc;

use crate::{
    cache::{ElementCounts, ElementState, Elements, Encoded, Entry},
    failure::Failure,
    route::ResolvedQuery,
    run::{
        Finished, RunAnswer,
        elements::{Gathering, SOON},
    },
};
use domain::{
    clock::Timestamp,
    error::{BackendError, ErrorKind},
    generator::{Element, Evidence, Lasting, ParameterSet},
    units::plural,
};
use source::{MaxUnknown, first_named};

/// Of how many elements the proof of an empty answer, or of one that is unknown, is kept.
const MAX_PROOFS: usize = 100;

/// An element, and what the answer has of it.
struct ElementNow {
    query: Arc<ResolvedQuery>,
    /// Its answer, or its last known one. `None`: nothing, because it never was known.
    entry: Option<Arc<Entry>>,
    /// Why it is not known now.
    unknown: Option<Unknown>,
}

/// Why an element is not known now.
struct Unknown {
    failure: Failure,
    /// Why the answer cannot be made without it; `None` if it can.
    why_needed: Option<&'static str>,
}

/// The elements of an answer, with what the answer has of each.
pub(super) struct Composed(Vec<ElementNow>);

impl ElementNow {
    fn element(&self) -> Option<&Element> {
        self.query.query.element()
    }

    fn label(&self) -> String {
        self.element().map(Element::label).unwrap_or_default()
    }

    fn has_sets(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.encoded.sets() > 0)
    }

    fn state(&self) -> ElementState {
        match (&self.unknown, &self.entry) {
            (Some(_), Some(_)) => ElementState::LastKnown,
            (_, None) => ElementState::Unknown,
            (None, Some(_)) if self.has_sets() => ElementState::Present,
            (None, Some(_)) => ElementState::Absent,
        }
    }
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
        let element_now = |(query, found): (Arc<ResolvedQuery>, Finished)| match found {
            Ok(entry) => ElementNow { query, entry: Some(entry), unknown: None },
            Err(failure) => {
                let id = query.query.element().map(|element| &*element.id).unwrap_or_default();
                let known = gathering.last_known(&query, now).filter(|known| !is_forgotten(known, id, last.as_deref()));
                let why_needed = match &known {
                    Some(known) => why_not_absent(known, id, last.as_deref()),
                    None => gathering.why_needed(&query, id, last.as_deref()),
                };
                ElementNow { query, entry: known, unknown: Some(Unknown { failure, why_needed }) }
            }
        };
        let all = Self(elements.into_iter().zip(found).map(element_now).collect());
        let due_again = || gathering.due_again(all.unknown().map(|(element, _)| &element.query.key));
        all.check(gathering.parts.max_unknown).map_err(|failure| failure.retried_in(due_again()))?;
        Ok(all)
    }

    /// The elements that are not known now, and why.
    fn unknown(&self) -> impl Iterator<Item = (&ElementNow, &Unknown)> {
        self.0.iter().filter_map(|element| Some((element, element.unknown.as_ref()?)))
    }

    /// Whether the answer may be made although some elements are unknown.
    fn check(&self, max_unknown: MaxUnknown) -> Result<(), Failure> {
        let (count, all) = (self.unknown().count(), self.0.len());
        if count == 0 {
            return Ok(());
        }
        let s = plural(all);
        let message = if max_unknown.is_exceeded(count, all) {
            let limit = match max_unknown {
                MaxUnknown::Count(limit) if count > limit as usize => format!("more than `maxUnknown: {limit}`"),
                MaxUnknown::Share(limit) if limit.is_exceeded(count, all) && max_unknown != MaxUnknown::HALF => {
                    format!("more than `maxUnknown: {limit}`")
                }
                _ => "more than half".to_owned(),
            };
            format!("{count} of {all} element{s} unknown, {limit}: {}", self.named(|_, _| true))
        } else if let Some(why) = self.unknown().find_map(|(_, unknown)| unknown.why_needed) {
            let needed = self.named(|_, unknown| unknown.why_needed.is_some());
            format!("{count} of {all} element{s} unknown, and {why}: {needed}")
        } else {
            return Ok(());
        };
        let kinds = self.unknown().filter_map(|(_, unknown)| match &unknown.failure {
            Failure::Backend(error) => Some(error.kind),
            Failure::Deadline => Some(ErrorKind::Timeout),
            _ => None,
        });
        // Another question does not help against one item that is invalid.
        let kind = kinds.into_iter().find(|kind| *kind != ErrorKind::InvalidInput).unwrap_or(ErrorKind::Unavailable);
        let evidence = self.unknown().take(MAX_PROOFS).flat_map(|(element, unknown)| {
            let label = element.label();
            unknown.failure.evidence().iter().map(move |evidence| evidence.clone().by(&label))
        });
        let evidence = evidence.collect();
        Err(Failure::Backend(BackendError { evidence, ..BackendError::new(kind, message) }))
    }

    /// The first unknown elements that are `meant`, and why they are unknown.
    fn named(&self, meant: impl Fn(&ElementNow, &Unknown) -> bool) -> String {
        let meant = || self.unknown().filter(|(element, unknown)| meant(element, unknown));
        let texts = meant().map(|(element, unknown)| format!("{}: {}", element.label(), unknown.failure));
        first_named(meant().count(), texts)
    }

    /// The answer.
    pub(super) fn answer(self, gathering: &Gathering<'_>, list: &Entry) -> Result<RunAnswer, Failure> {
        let entries = self.0.iter().filter_map(|element| element.entry.as_ref());
        let sets: Vec<ParameterSet> = entries.flat_map(|entry| entry.encoded.decode()).collect();
        let encoded = Encoded::encode(&sets).map_err(|error| {
            Failure::Backend(BackendError::invalid_output(format!("the answer cannot be written as JSON: {error}")))
        })?;
        // An answer without sets has a proof.
        let evidence = if sets.is_empty() { self.proofs(list) } else { Vec::new() };
        let lasting = Some(self.lasting(gathering, list));
        let mut counts = ElementCounts::default();
        self.0.iter().for_each(|element| counts.add(element.state()));
        let ids = self.0.iter().filter_map(|element| Some((&*element.element()?.id, element.has_sets())));
        let elements = Some(Arc::new(Elements::of(ids, counts)));
        Ok(RunAnswer { sets, encoded, evidence, lasting, note: None, elements })
    }

    /// Warns of the elements that the answer has as they were last, and of those that it has not, once for this run.
    pub(super) fn warn(&self, gathering: &Gathering<'_>) {
        if self.unknown().next().is_none() {
            return;
        }
        let resolved = gathering.resolved;
        let last_known = self.named(|element, _| element.entry.is_some());
        let left_out = self.named(|element, _| element.entry.is_none());
        let text = |names: &str| (!names.is_empty()).then(|| names.to_owned());
        tracing::warn!(
            route = &*resolved.route.name, application_set = resolved.question.application_set.as_deref(), key = %resolved.key,
            elements = self.0.len(), last_known = text(&last_known), left_out = text(&left_out),
            "elements are unknown: the answer has what they had last, or nothing of those that never were in one"
        );
    }

    /// The evidence that the list is empty, or that each element is absent.
    fn proofs(&self, list: &Entry) -> Vec<Evidence> {
        let of_elements = self.0.iter().take(MAX_PROOFS).flat_map(|element| {
            let name = format!("element {}", element.label());
            let evidence = element.entry.iter().flat_map(|entry| &entry.evidence);
            evidence.map(move |each| each.clone().by(&name))
        });
        list.evidence.iter().cloned().chain(of_elements).collect()
    }

    /// How long the answer is fresh: as long as the list and the shortest element. One that is unknown is queried again after its backoff.
    fn lasting(&self, gathering: &Gathering<'_>, list: &Entry) -> Lasting {
        let now = gathering.clock.now();
        let (mut least, mut is_brief) = Gathering::left(list, now);
        for element in &self.0 {
            let (left, brief) = if let (None, Some(entry)) = (&element.unknown, &element.entry) {
                Gathering::left(entry, now)
            } else {
                (gathering.due_again([&element.query.key]).unwrap_or(SOON), false)
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
pub(crate) fn is_forgotten(known: &Entry, id: &str, last: Option<&Entry>) -> bool {
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
            return Some("the first answer needs all of them, since there may be Applications of each");
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

//! Kubernetes Events on ApplicationSets: `kubectl describe applicationset` then shows facts that conditions cannot, such as that a good answer
//! is served because the guard holds a smaller one.
//! <https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/>

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use super::{
    ApiCall, Argocd, deadline,
    directory::{ApplicationSet, Listed},
};
use bytes::Bytes;
use domain::{clock::Timestamp, error::BackendError};
use http::{Method, StatusCode};
use serde_json::{Value, json};

/// Repeated events with the same reason are one, if they come within this time.
const SAME_FOR: Duration = Duration::from_mins(10);
/// How often the count of repeated events is written, at most.
const COUNTED_EVERY: Duration = Duration::from_secs(30);
/// How many events are remembered.
const MAX_RECORDED: usize = 1000;
/// The longest message, in bytes. Kubernetes accepts 1024.
const MAX_MESSAGE_BYTES: usize = 1000;
/// The longest part of an ApplicationSet's name in the name of an event.
const MAX_NAME_BYTES: usize = 220;
/// The largest answer that is read, in bytes.
const MAX_REPLY_BYTES: usize = 64 * 1024;

/// The subject of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventReason {
    /// The guard holds an answer.
    AnswerHeld,
    /// The guard no longer holds it.
    AnswerReleased,
    /// The guard has accepted it because further runs agreed.
    AnswerConfirmed,
    /// A source has failed several times.
    SourceFailing,
    /// It answers again.
    SourceRecovered,
    /// An element of an answer has been unknown for long.
    ElementUnknown,
    /// It is known again.
    ElementRecovered,
}

/// An event of ApplicationSets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetEvent {
    /// What happened.
    pub reason: EventReason,
    /// The element of the answer that it is about. Events of two elements are two.
    pub element: Option<String>,
    /// The message.
    pub message: String,
}

impl EventReason {
    const fn as_str(self) -> &'static str {
        match self {
            Self::AnswerHeld => "AnswerHeld",
            Self::AnswerReleased => "AnswerReleased",
            Self::AnswerConfirmed => "AnswerConfirmed",
            Self::SourceFailing => "SourceFailing",
            Self::SourceRecovered => "SourceRecovered",
            Self::ElementUnknown => "ElementUnknown",
            Self::ElementRecovered => "ElementRecovered",
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::AnswerHeld | Self::AnswerConfirmed | Self::SourceFailing | Self::ElementUnknown => "Warning",
            Self::AnswerReleased | Self::SourceRecovered | Self::ElementRecovered => "Normal",
        }
    }
}

/// The events that were written of late.
#[derive(Debug, Default)]
pub(super) struct Recorded(HashMap<Subject, Written>);

/// Events of one subject are one, and are counted: the ApplicationSet, the reason and the element.
type Subject = (ApplicationSet, EventReason, Option<String>);

#[derive(Debug, Clone)]
struct Written {
    name: String,
    count: u64,
    began: Timestamp,
    sent: Timestamp,
}

/// The write that an event needs.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Write a new event with this name.
    Create(String),
    /// Write this count into the event with this name.
    Count(String, u64),
    /// Nothing now.
    Wait,
}

impl Recorded {
    /// Counts an event. `id` makes the name of a new one unique.
    fn count(&mut self, subject: &Subject, id: u128, now: Timestamp) -> Step {
        // After a clock jump, what was written does not count: the next event is a new one.
        let is_within = |at: Timestamp, time| now.since(at).is_some_and(|age| age < time);
        if self.0.len() >= MAX_RECORDED {
            self.0.retain(|_, written| is_within(written.began, SAME_FOR));
        }
        let is_full = self.0.len() >= MAX_RECORDED;
        match self.0.get_mut(subject).filter(|written| is_within(written.began, SAME_FOR)) {
            Some(written) => {
                written.count += 1;
                if is_within(written.sent, COUNTED_EVERY) {
                    return Step::Wait;
                }
                written.sent = now;
                Step::Count(written.name.clone(), written.count)
            }
            None if is_full => Step::Wait,
            None => {
                let prefix: String = subject.0.name.chars().take(MAX_NAME_BYTES).collect();
                let name = format!("{prefix}.{id:x}");
                self.0.insert(subject.clone(), Written { name: name.clone(), count: 1, began: now, sent: now });
                Step::Create(name)
            }
        }
    }

    /// The event of `subject` could not be written, or has expired. The next one is a new event.
    fn forget(&mut self, subject: &Subject) {
        self.0.remove(subject);
    }
}

impl Argocd {
    /// Writes `event` on the ApplicationSets named `name`. Repeated ones are counted.
    ///
    /// # Errors
    /// When the API server does not take it.
    pub async fn record(&self, name: &str, event: &SetEvent, now: Timestamp) -> Result<(), BackendError> {
        let Listed { sets, error, .. } = self.sets(name).await;
        let mut result = error.map_or(Ok(()), Err);
        for set in sets {
            if let Err(error) = self.record_on(&set, event, now).await {
                result = Err(error);
            }
        }
        result
    }

    async fn record_on(&self, set: &ApplicationSet, of: &SetEvent, now: Timestamp) -> Result<(), BackendError> {
        let at = now.to_date();
        let SetEvent { reason, element, message } = of;
        let subject = (set.clone(), *reason, element.clone());
        let count = || {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.recorded.lock().count(&subject, since.as_nanos(), now)
        };
        let mut step = count();
        if let Step::Count(name, count_now) = &step {
            let patch = json!({"count": count_now, "lastTimestamp": at, "message": shortened(message)});
            let written = self.write(Method::PATCH, set, Some(name), "application/merge-patch+json", &patch).await?;
            if written != StatusCode::NOT_FOUND {
                return Ok(());
            }
            // It has expired, or somebody has removed it.
            self.recorded.lock().forget(&subject);
            step = count();
        }
        let Step::Create(name) = step else { return Ok(()) };
        let event = event(set, *reason, message, &name, &at);
        let written = self.write(Method::POST, set, None, "application/json", &event).await;
        written.map(drop).inspect_err(|_| self.recorded.lock().forget(&subject))
    }

    async fn write(
        &self,
        method: Method,
        set: &ApplicationSet,
        name: Option<&str>,
        kind: &'static str,
        body: &Value,
    ) -> Result<StatusCode, BackendError> {
        let mut path = vec!["api", "v1", "namespaces", &set.namespace, "events"];
        path.extend(name);
        let call = ApiCall {
            method,
            path: &path,
            query: &[("fieldManager", "appset-gateway")],
            body: Some((kind, Bytes::from(body.to_string()))),
            max_bytes: MAX_REPLY_BYTES,
            deadline: deadline(),
            recorded_as: None,
        };
        let right = format!("create and patch events in the namespace `{}`", set.namespace);
        // 404: the event has expired. 409: the request was repeated, and the first one has made it.
        let expected = [StatusCode::NOT_FOUND.as_u16(), StatusCode::CONFLICT.as_u16()];
        self.send(call, &right, &expected).await.map(|reply| reply.status)
    }
}

/// A new event.
fn event(set: &ApplicationSet, reason: EventReason, message: &str, name: &str, at: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": &*set.namespace},
        "involvedObject": {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "ApplicationSet",
            "namespace": &*set.namespace,
            "name": &*set.name,
            "uid": &*set.uid,
        },
        "reason": reason.as_str(),
        "message": shortened(message),
        "type": reason.kind(),
        "source": {"component": "appset-gateway"},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    })
}

fn shortened(message: &str) -> &str {
    &message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str) -> ApplicationSet {
        ApplicationSet { namespace: "argocd".into(), name: name.into(), uid: "1".into() }
    }

    fn held(name: &str) -> Subject {
        (set(name), EventReason::AnswerHeld, None)
    }

    #[test]
    fn repeated_events_are_one_with_a_count() {
        let (mut recorded, now, held) = (Recorded::default(), Timestamp(1_700_000_000_000), held("previews"));
        let mut count = |id, after| recorded.count(&held, id, now.plus(Duration::from_secs(after)));
        assert_eq!(count(10, 0), Step::Create("previews.a".into()));
        assert_eq!(count(11, 1), Step::Wait);
        assert_eq!(count(12, 31), Step::Count("previews.a".into(), 3));
        assert_eq!(count(13, 32), Step::Wait);
        assert_eq!(count(14, 600), Step::Create("previews.e".into()));
        assert_eq!(
            recorded.count(&(set("previews"), EventReason::SourceFailing, None), 15, now),
            Step::Create("previews.f".into()),
            "another reason is another event"
        );
        let mut of = |element: &str, id| {
            recorded.count(&(set("previews"), EventReason::ElementUnknown, Some(element.to_owned())), id, now)
        };
        assert_eq!(of("12", 17), Step::Create("previews.11".into()));
        assert_eq!(of("13", 18), Step::Create("previews.12".into()), "another element is another event");
        assert_eq!(of("12", 19), Step::Wait);
        let earlier = Timestamp(1_600_000_000_000);
        assert_eq!(recorded.count(&held, 16, earlier), Step::Create("previews.10".into()), "the clock was put back");
    }

    #[test]
    fn events_that_are_remembered_have_a_limit() {
        let (mut recorded, now) = (Recorded::default(), Timestamp(1_700_000_000_000));
        for number in 0..2 * MAX_RECORDED {
            recorded.count(&held(&format!("set-{number}")), 1, now);
        }
        assert_eq!(recorded.0.len(), MAX_RECORDED);
        recorded.count(&held("later"), 1, now.plus(SAME_FOR));
        assert_eq!(recorded.0.len(), 1);
    }

    #[test]
    fn a_long_message_is_shortened_between_letters() {
        let long = "ä".repeat(MAX_MESSAGE_BYTES);
        assert!(shortened(&long).len() <= MAX_MESSAGE_BYTES && shortened("a") == "a");
    }
}

//! The last deliveries of hooks: their subjects, the questions that were rechecked because of them, and the ApplicationSets that were notified.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::date;
use crate::app::App;
use domain::{document::exact, generator::Parameters};
use push::{Delivered, MAX_KEPT, RecheckedQuestion};

/// The last deliveries.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EventLog {
    /// The last one first.
    pub(crate) events: Vec<Event>,
    /// The hooks that got deliveries which their sender did not prove.
    pub(crate) unproven: Vec<UnprovenEvents>,
    /// How many deliveries are kept.
    pub(crate) kept: usize,
}

/// A delivery.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    /// Its number since the start.
    pub(crate) number: u64,
    /// When it came.
    pub(crate) at: String,
    /// The hook.
    pub(crate) hook: String,
    /// `taken`, `ignored`, `duplicate`, `malformed` or `refused`.
    pub(crate) outcome: String,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// How many subjects it has.
    pub(crate) subjects_total: usize,
    /// The first of these.
    pub(crate) subjects: Vec<Value>,
    /// How many known questions it concerned, with the deliveries that came at the same time.
    pub(crate) questions_total: usize,
    /// The first of these that were rechecked.
    pub(crate) questions: Vec<RecheckedView>,
    /// How many rechecks ended with each result.
    pub(crate) rechecks: BTreeMap<String, usize>,
    /// How many ApplicationSets were notified of another answer.
    pub(crate) refreshed_total: usize,
    /// The first of these.
    pub(crate) refreshed: Vec<RefreshedSet>,
}

/// A question that was rechecked because of a delivery.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RecheckedView {
    /// Its key.
    pub(crate) key: String,
    /// The route.
    pub(crate) route: String,
    /// The input parameters.
    #[serde(deserialize_with = "exact::read")]
    pub(crate) input: Parameters,
    /// The result of the last recheck: `changed`, `unchanged`, `held` or `failed`.
    pub(crate) result: String,
}

/// An ApplicationSet that was notified.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RefreshedSet {
    /// Its name.
    pub(crate) application_set: String,
    /// How long after the delivery.
    pub(crate) after_seconds: f64,
}

/// Deliveries that their sender did not prove. Only the last one is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UnprovenEvents {
    /// The hook.
    pub(crate) hook: String,
    /// How many there were since the start.
    pub(crate) total: u64,
    /// When the last one came.
    pub(crate) last_at: String,
    /// Its error.
    pub(crate) message: String,
}

/// The last deliveries to `app`.
pub(crate) fn events(app: &App) -> EventLog {
    let unproven = app.push.deliveries.unproven().into_iter().map(|(hook, unproven)| UnprovenEvents {
        hook: hook.to_string(),
        total: unproven.count,
        last_at: date(unproven.at),
        message: unproven.why,
    });
    EventLog {
        events: app.push.deliveries.list().into_iter().map(Event::of).collect(),
        unproven: unproven.collect(),
        kept: MAX_KEPT,
    }
}

impl Event {
    fn of(delivered: Delivered) -> Self {
        let rechecked = |RecheckedQuestion { key, question, result }: RecheckedQuestion| RecheckedView {
            key: key.to_string(),
            route: question.route.to_string(),
            input: (*question.parameters).clone(),
            result: result.to_owned(),
        };
        let refreshed = delivered.refreshed_first.iter().map(|(name, after)| RefreshedSet {
            application_set: name.to_string(),
            after_seconds: after.as_secs_f64(),
        });
        Self {
            number: delivered.number,
            at: date(delivered.at),
            hook: delivered.hook.to_string(),
            outcome: delivered.outcome.to_owned(),
            message: delivered.why,
            subjects_total: delivered.subjects,
            subjects: delivered.named,
            questions_total: delivered.questions,
            refreshed: refreshed.collect(),
            refreshed_total: delivered.refreshed,
            questions: delivered.rechecked.into_iter().map(rechecked).collect(),
            rechecks: delivered.rechecks.into_iter().map(|(result, count)| (result.to_owned(), count)).collect(),
        }
    }
}

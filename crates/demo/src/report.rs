//! What came of a scene, as the judges counted it.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    judge::{Reading, Reconciled},
    scene::Scene,
};

/// What came of a scene.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SceneReport {
    /// The scene's name.
    pub scene: &'static str,
    /// What happened, in a few words.
    pub title: &'static str,
    /// How many minutes passed in the story.
    pub minutes: u64,
    /// How many Applications there should be at the end.
    pub applications: usize,
    /// With a plugin that catches its errors, and no gateway.
    pub without_gateway: Side,
    /// With a plugin that answers an error with an error, and no gateway.
    pub errors_passed_on: Side,
    /// With the gateway.
    pub gateway: Side,
}

/// What Argo CD did by the answers of one server.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Side {
    /// How many Applications were created.
    pub created: usize,
    /// The deleted Applications.
    pub deleted: BTreeSet<String>,
    /// How many of these should still exist.
    pub deleted_wrongly: usize,
    /// How many answers were errors, after which Argo CD changes nothing.
    pub errors: usize,
    /// The reasons that the server itself gives, the most important first: alerts of the gateway, errors that a plugin caught or answered.
    pub because: Vec<String>,
}

impl Side {
    /// Counts what came of one question, while the Applications of `truth` should exist.
    pub(crate) fn add(&mut self, reconciled: &Reconciled, truth: &BTreeSet<String>) {
        self.created += reconciled.created.len();
        self.deleted_wrongly += reconciled.deleted.intersection(truth).count();
        self.deleted.extend(reconciled.deleted.iter().cloned());
        if let Reading::Error(condition) = &reconciled.reading {
            self.errors += 1;
            self.explain([condition.clone()]);
        }
        self.explain(reconciled.stale.iter().cloned());
    }

    /// Adds `reasons` that are not there yet.
    pub(crate) fn explain(&mut self, reasons: impl IntoIterator<Item = String>) {
        for reason in reasons {
            if !self.because.contains(&reason) {
                self.because.push(reason);
            }
        }
    }
}

impl SceneReport {
    pub(crate) fn new(scene: &Scene) -> Self {
        let side = Side::default;
        Self {
            scene: scene.name,
            title: scene.title,
            minutes: 0,
            applications: 0,
            without_gateway: side(),
            errors_passed_on: side(),
            gateway: side(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_deletion_is_wrong_if_the_application_should_exist() {
        let mut side = Side::default();
        let reading = Reading::Sets(1);
        let reconciled = Reconciled { reading, created: names(&["d"]), deleted: names(&["a", "b"]), stale: Vec::new() };
        side.add(&reconciled, &names(&["a", "c", "d"]));
        assert_eq!((side.created, side.deleted.len(), side.deleted_wrongly, side.errors), (1, 2, 1, 0));
    }

    #[test]
    fn an_error_is_counted_and_its_reason_stands_once() {
        let mut side = Side::default();
        let reading = Reading::Error("API error with status code 502: gone".to_owned());
        let none = BTreeSet::new;
        let reconciled = Reconciled { reading, created: none(), deleted: none(), stale: Vec::new() };
        side.add(&reconciled, &names(&["a"]));
        side.add(&reconciled, &names(&["a"]));
        assert_eq!((side.errors, side.deleted_wrongly, side.because.len()), (2, 0, 1));
    }
}

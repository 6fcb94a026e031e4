//! What operators do to the model's engine, and what they see.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::FutureExt as _;

use crate::{
    guard::Decision,
    model::{
        expect::Why,
        oracle::{Finished, Worth},
        rules::{ModelQuery, ROUTES, Slot},
        world::{Checked, Operator, World, operator},
    },
};
use domain::{
    clock::Clock,
    generator::{Parameters, Selector},
};

impl World<'_> {
    /// Checks that each operator got the effect of the decision.
    pub(super) async fn answer_operators(&mut self) -> Checked {
        let mut waiting = Vec::new();
        for mut operator in std::mem::take(&mut self.operators) {
            let finished = operator.run.map(|run| self.finished.get(&run));
            if finished.is_some_and(|finished| finished.is_none()) {
                if operator.task.is_finished() {
                    return Err("an operator did not wait for the run".to_owned());
                }
                waiting.push(operator);
                continue;
            }
            if !operator.task.is_finished() {
                return Err("an operator waits on".to_owned());
            }
            let answer = (&mut operator.task).await.map_err(|error| error.to_string())?;
            let answer = answer.ok().map(|answer| (answer.is.is_some(), answer.unknown.as_ref().map(Why::of)));
            let unknown = match finished.flatten() {
                Some(Finished::Bad(why)) => Some(Why(why, false)),
                Some(Finished::Good(_)) | None => None,
            };
            let expected = operator.was_held.then(|| (self.oracle.held.contains_key(&operator.lineage), unknown));
            if answer != expected {
                return Err(format!("an operator is answered {answer:?} instead of {expected:?}"));
            }
        }
        self.operators = waiting;
        Ok(())
    }

    pub(super) fn invalidate(&mut self, route: Option<usize>, branch: Option<u8>, commit: Option<u8>) -> Checked {
        let is_meant = |query: ModelQuery| {
            route.is_none_or(|route| route == query.route)
                && branch.is_none_or(|branch| branch == query.branch)
                && commit.is_none_or(|commit| commit == query.commit)
        };
        let mut parameters = Parameters::new();
        parameters.extend(branch.map(|branch| ("branch".to_owned(), branch.into())));
        parameters.extend(commit.map(|commit| ("commit".to_owned(), commit.into())));
        let route = route.map(|route| ROUTES[route].name.to_owned());
        let selector = Selector { route, parameters, ..Selector::default() };
        if let Some(Err(error)) = self.engine.publish_invalidation(&selector).now_or_never() {
            return Err(error.to_string());
        }
        let met = self.engine.invalidate(&self.stage.routes, &selector, &operator());
        self.stage.source.cut(ModelQuery::all().filter(|query| is_meant(*query)).collect());
        let expected = self.oracle.invalidate(is_meant, self.wall.now());
        if expected.1 > 0 {
            self.see("cut off");
        }
        if (met.answers, met.runs) == expected { Ok(()) } else { Err(format!("{met:?} instead of {expected:?}")) }
    }

    pub(super) async fn decide(&mut self, lineage: Slot, decision: Decision) -> Checked {
        let held = self.oracle.decide(lineage, decision, self.wall.now());
        let (mut run, mut started) = (None, None);
        if let Some(query) = held {
            self.watch.decided(lineage, decision);
            let is_fresh = self.oracle.own_worth(query, self.wall.now()) == Worth::Fresh;
            let wants_run = decision == Decision::Released && !(is_fresh && self.oracle.flight(query).is_none());
            let is_new;
            (run, is_new) = self.run_for(query, wants_run);
            started = is_new.then_some(query);
        }
        let (engine, routes) = (Arc::clone(&self.engine), Arc::clone(&self.stage.routes));
        let id = self.stage.key(lineage).into();
        let task = tokio::spawn(async move { engine.decide(&routes, &id, None, decision, &operator()).await });
        self.operators.push(Operator { lineage, was_held: held.is_some(), run, task });
        self.compare(&Vec::from_iter(started), true).await
    }

    /// Checks that operators see the stored answers.
    pub(super) fn list(&mut self) -> Checked {
        let now = self.wall.now();
        self.engine.observe();
        self.oracle.forget(now);
        let listed = self.engine.list(&self.stage.routes, &Selector::default()).into_iter().map(|overview| {
            let why = overview.failing.map(|(failure, _)| failure.as_str());
            (ModelQuery::of(&overview.question.parameters), (overview.state, why, overview.held.is_some()))
        });
        let expected = ModelQuery::all().filter_map(|query| {
            let why = self.oracle.backoffs.get(&query).map(|backoff| backoff.why);
            let is_known = self.oracle.known.contains_key(&Slot::Own(query));
            let state = match self.oracle.worth(Slot::Own(query), now) {
                _ if !is_known => "failing",
                Worth::Fresh => "fresh",
                Worth::WhileRevalidate => "stale_while_revalidate",
                Worth::IfError => "stale_if_error",
                Worth::Nothing => "expired",
            };
            let is_held = self.oracle.held.contains_key(&query.lineage());
            (is_known || why.is_some()).then_some((query, (state, why, is_held)))
        });
        let (listed, expected): (BTreeMap<_, _>, BTreeMap<_, _>) = (listed.collect(), expected.collect());
        if listed == expected { Ok(()) } else { Err(format!("listed is {listed:?} instead of {expected:?}")) }
    }
}

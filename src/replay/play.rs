//! Plays a case: asks its question of the configuration, with the case's replies in place of the sources.

use std::{path::Path as FilePath, sync::Arc, time::Duration};

use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};

use super::{
    ask::{Answered, CallToRoute, answer_of, ask},
    case::{Case, Expected, ReplyConfig},
    clock::CaseClock,
    replies::Replies,
    secrets::redact_answer,
};
use crate::{
    app::App,
    config::{Loaded, Report},
};
use domain::{
    clock::{Clock, SystemClock},
    difference::Difference,
    generator::ParameterSet,
    replay::Sources,
    secret::Secrets,
};
use launcher::own_program;

/// Time that passes is cut into so many parts. After each, the gateway does the work that is due, such as runs for held answers.
const PARTS: u32 = 60;

/// The result of a case.
#[derive(Debug)]
pub(crate) struct Played {
    /// The steps, the first question included.
    pub(crate) steps: Vec<PlayedStep>,
    /// Replies that no request used.
    pub(crate) unused: Vec<String>,
}

/// The result of a step.
#[derive(Debug)]
pub(crate) struct PlayedStep {
    /// The answer.
    pub(crate) answer: Answered,
    /// Requests without a reply.
    pub(crate) missing: Vec<String>,
    /// Why the answer is not the expected one, one difference a line. Empty if it is.
    pub(crate) differences: Vec<String>,
}

/// A configuration that is read once, for all cases.
#[derive(Debug)]
pub(crate) struct Stage(Loaded);

impl Stage {
    /// Reads and checks the configuration `config`.
    ///
    /// # Errors
    /// When it is wrong.
    pub(crate) fn read(config: &FilePath) -> Result<Self, Box<Report>> {
        let stage = Self(Loaded::read(config)?.offline());
        stage.build(Arc::new(SystemClock), Arc::default())?;
        Ok(stage)
    }

    fn build(&self, clock: Arc<dyn Clock>, replies: Arc<Replies>) -> Result<App, Box<Report>> {
        Ok(App::build_with(self.0.clone(), clock, own_program(), Some(replies as Arc<dyn Sources>))?.0)
    }

    /// Plays `case`.
    ///
    /// # Errors
    /// When the configuration became wrong, since a file that belongs to it changed meanwhile.
    pub(crate) async fn play(&self, case: &Case) -> Result<Played, Box<Report>> {
        let (clock, replies) = (Arc::new(CaseClock::at(case.now)), Arc::new(Replies::default()));
        let app = self.build(Arc::clone(&clock) as Arc<dyn Clock>, Arc::clone(&replies))?;
        let scene = Scene { app, case, clock, replies };
        let mut steps = vec![scene.step(None, &case.replies, case.expect.as_ref()).await];
        for step in &case.then {
            steps.push(scene.step(step.after.map(|after| after.0), &step.replies, step.expect.as_ref()).await);
        }
        scene.app.launchers.close().await;
        Ok(Played { steps, unused: scene.replies.unused() })
    }
}

struct Scene<'a> {
    app: App,
    case: &'a Case,
    clock: Arc<CaseClock>,
    replies: Arc<Replies>,
}

impl Scene<'_> {
    async fn step(&self, after: Option<Duration>, replies: &[ReplyConfig], expected: Option<&Expected>) -> PlayedStep {
        self.replies.add(replies);
        if let Some(after) = after {
            pass(&self.app, &self.clock, after).await;
        }
        let answer = self.ask().await;
        rest(&self.app).await;
        let differences = expected.map_or_else(
            || vec![format!("nothing is expected, got {answer}; `--update` writes the answer there")],
            |expected| differences(expected, &answer),
        );
        PlayedStep { missing: self.replies.take_missing(), answer, differences }
    }

    async fn ask(&self) -> Answered {
        let case = self.case;
        let call = CallToRoute {
            route: case.route.as_deref(),
            application_set: &case.application_set,
            namespace: case.application_set_namespace.as_deref(),
            parameters: Arc::new(case.parameters.clone()),
            watch: None,
        };
        let resolved = ask(&self.app, call).await;
        // A script that runs for real may print a secret.
        redact_answer(answer_of(&self.app, resolved).await, &Secrets::default())
    }
}

/// Lets `time` pass at `app`, whose clock is `clock`.
pub(crate) async fn pass(app: &App, clock: &CaseClock, time: Duration) {
    for _ in 0..PARTS {
        clock.advance(time / PARTS);
        app.engine.confirm_due(&app.setup().routes);
        rest(app).await;
    }
}

/// Waits for the runs in the background.
async fn rest(app: &App) {
    let until = Instant::now() + app.setup().server.deadline.0;
    while !app.engine.is_idle() && Instant::now() < until {
        sleep(Duration::from_millis(1)).await;
    }
}

/// How `answer` differs from the expected one.
fn differences(expected: &Expected, answer: &Answered) -> Vec<String> {
    let mut found = Vec::new();
    match answer {
        Answered::Sets { sets, cache, because } => {
            if let Some(code) = &expected.error {
                found.push(format!("expected the error {code}, got {} parameter sets", sets.len()));
            } else if let Some(wanted) = &expected.parameters {
                differing_sets(wanted, sets, &mut found);
            }
            if let Some(wanted) = expected.cache.filter(|wanted| wanted != cache) {
                found.push(format!("expected cache: {}, got {}", wanted.as_str(), cache.as_str()));
            }
            if let Some(wanted) = expected.because.as_deref().filter(|wanted| Some(*wanted) != *because) {
                found.push(format!("expected because: {wanted}, got {}", because.unwrap_or("no older answer")));
            }
        }
        Answered::Error(code, message) => {
            if expected.error.as_ref() != Some(code) {
                let wanted =
                    expected.error.as_deref().map_or("parameter sets".to_owned(), |code| format!("the error {code}"));
                found.push(format!("expected {wanted}, got the error {code}: {message}"));
            } else if let Some(part) = expected.message.as_ref().filter(|part| !message.contains(*part)) {
                found.push(format!("expected a message with `{part}`, got: {message}"));
            }
        }
    }
    found
}

/// The missing sets with `-`, the unexpected ones with `+`.
fn differing_sets(wanted: &[Map<String, Value>], got: &[Map<String, Value>], found: &mut Vec<String>) {
    let normal = |sets: &[Map<String, Value>]| sets.iter().map(as_text).map(ParameterSet).collect::<Vec<_>>();
    let (wanted, got) = (normal(wanted), normal(got));
    if wanted == got {
        return;
    }
    let Difference { added, removed, changed } = Difference::of(&wanted, &got, &[]);
    if added.is_empty() && removed.is_empty() && changed.is_empty() {
        found.push("the parameter sets are the same, in another order".to_owned());
    }
    let line = |sign: char, set: &ParameterSet| format!("{sign} {}", Value::Object(set.0.clone()));
    let (before, after): (Vec<_>, Vec<_>) = changed.into_iter().unzip();
    found.extend(before.iter().chain(&removed).map(|set| line('-', set)));
    found.extend(after.iter().chain(&added).map(|set| line('+', set)));
}

/// `set` with numbers as texts, which is how Argo CD gets them.
fn as_text(set: &Map<String, Value>) -> Map<String, Value> {
    set.iter().map(|(name, value)| (name.clone(), value_as_text(value))).collect()
}

fn value_as_text(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.to_string().into(),
        Value::Array(items) => items.iter().map(value_as_text).collect(),
        Value::Object(fields) => as_text(fields).into(),
        other => other.clone(),
    }
}

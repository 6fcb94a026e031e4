//! `appset-gateway call`: runs a route once, with the same engine and without a server. It prints the answer, and what each backend found
//! before the route shaped it.

mod event;

use std::{process::ExitCode, sync::Arc};

use clap::Args;
use serde_json::{Value, json};

use self::event::EventArgs;
use super::{
    ConfigFile, Output, exit, explain::show_elements, parameters::QuestionArgs, print_json, progress::Progress, steps,
    terminal::note,
};
use crate::{
    app::App,
    config::Loaded,
    http::server::error::ApiError,
    overview::{self, elements::AnswerElements, steps::StepView},
    replay::ask::{CallToRoute, ask},
};
use domain::{
    clock::SystemClock,
    generator::{Evidence, watch::Watch},
    units::plural,
};
use engine::{
    answer::{Answer, Unknown},
    guard::Baseline,
    route::ResolvedQuery,
};
use launcher::own_program;
use telemetry::log::{self, Format, LogConfig, LogLevel, LogStream};

/// The arguments of `call`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  appset-gateway call pr-digests -p branch=main
  appset-gateway call --application-set fb-matrix --json '{\"branch\":\"main\",\"list\":[1,2]}'

The answer goes to standard output. Everything else goes to standard error: what each backend found before the route shaped it, what \
programs wrote to stderr, and the time that each step took.
Exit codes: 0 answered (also with an empty list), 1 no answer, 78 the configuration is wrong.")]
pub(crate) struct CallArgs {
    /// The route. Without it, the first route whose `match` accepts the call.
    route: Option<String>,
    #[command(flatten)]
    question: QuestionArgs,
    /// The output format: the answer with a summary, or everything as one JSON object.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    event: EventArgs,
    #[command(flatten)]
    file: ConfigFile,
}

/// Runs the route once and prints the answer.
pub(crate) fn run(arguments: &CallArgs) -> anyhow::Result<ExitCode> {
    let _flush = log::init(LogConfig { format: Format::Text, level: LogLevel::Warn }, LogStream::Stderr);
    let built =
        Loaded::read(&arguments.file.path).and_then(|loaded| App::build(loaded, Arc::new(SystemClock), own_program()));
    let app = match built {
        Ok((app, _)) => app,
        Err(report) => {
            eprint!("{report}");
            return Ok(ExitCode::from(exit::CONFIG));
        }
    };
    let parameters = arguments.question.parameters.read()?;
    let (namespace, application_set) = arguments.question.requester();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let watch = Watch::default();
        let call = CallToRoute {
            route: arguments.route.as_deref(),
            application_set,
            namespace,
            parameters: Arc::new(parameters),
            watch: Some(watch.clone()),
        };
        let resolved = ask(&app, call).await;
        let resolved = resolved.map_err(|(_, message)| anyhow::anyhow!(message))?;
        let answer = {
            let _progress = Progress::begin("asking the sources");
            app.engine.answer(&resolved).await
        };
        let steps = overview::steps::steps(&watch.steps(), &resolved.route.backend.secrets());
        let evidence =
            answer.as_ref().map_or_else(|unknown| unknown.failure.evidence(), |answer| &answer.entry.evidence);
        let concerned = arguments.event.concerns(&app.setup(), &resolved, evidence).await?;
        let elements = app.engine.elements(&resolved).map(|elements| AnswerElements::of(&elements, usize::MAX));
        let shown = Shown { resolved: &resolved, steps: &steps, elements, concerned, output: arguments.output };
        let shown = match answer {
            Ok(answer) => shown.answer(&answer),
            Err(unknown) => shown.unknown(unknown),
        };
        app.launchers.close().await;
        shown
    })
}

/// The output about a call.
struct Shown<'a> {
    resolved: &'a ResolvedQuery,
    steps: &'a [StepView],
    /// The elements of the answer, if it is made of elements and its list is known.
    elements: Option<AnswerElements>,
    /// Whether the event of the arguments concerns it.
    concerned: Option<bool>,
    output: Output,
}

impl Shown<'_> {
    fn answer(&self, answer: &Answer) -> anyhow::Result<ExitCode> {
        let (route, key) = (&self.resolved.route, self.resolved.key.to_string());
        let entry = &answer.entry;
        let body: Value = serde_json::from_slice(entry.encoded.body())?;
        let outcome = if entry.encoded.sets() == 0 { "absent" } else { "present" };
        let milliseconds = entry.took.as_secs_f64() * 1000.0;
        let baseline = Baseline::of(route.guard.config(), &entry.encoded.decode());
        if self.output == Output::Json {
            return self.print(json!({
                "route": *route.name, "backend": route.kind, "key": key, "outcome": outcome,
                "evidence": entry.evidence, "steps": self.steps,
                "backendMilliseconds": milliseconds, "identity": baseline.keys(), "answer": body,
            }));
        }
        print_json(&body)?;
        let sets = entry.encoded.sets();
        note(&format!("route     {} ({})", route.name, route.kind));
        note(&format!("outcome   {outcome}, {sets} parameter set{}", plural(sets)));
        match baseline.keys() {
            [] => note("identity  none: the guard counts the parameter sets"),
            keys => note(&format!("identity  `{}` identifies the parameter sets", keys.join("`, `"))),
        }
        self.show_details(&entry.evidence, "");
        note(&format!("backend   {milliseconds:.1} ms"));
        note(&format!("key       {key}, fresh for {} s", route.policy.ttl().as_secs()));
        Ok(ExitCode::SUCCESS)
    }

    fn unknown(&self, unknown: Unknown) -> anyhow::Result<ExitCode> {
        let (route, key) = (&self.resolved.route, self.resolved.key.to_string());
        let evidence = unknown.failure.evidence().to_vec();
        let error = ApiError::of_nothing(unknown, self.resolved);
        let status = error.code.status().as_u16();
        if self.output == Output::Json {
            let error = json!({ "code": error.code.as_str(), "status": status, "message": error.message });
            self.print(json!({
                "route": *route.name, "backend": route.kind, "key": key, "outcome": "unknown", "evidence": evidence,
                "steps": self.steps, "error": error,
            }))?;
        } else {
            note(&format!("error: {}", error.message));
            note(&format!("outcome   unknown: Argo CD gets {status} {}", error.code.as_str()));
            self.show_details(&evidence, &error.message);
            note(&format!("key       {key}"));
        }
        Ok(ExitCode::from(exit::FAILED))
    }

    fn print(&self, mut whole: Value) -> anyhow::Result<ExitCode> {
        if let Some(elements) = &self.elements {
            whole["elements"] = serde_json::to_value(elements)?;
        }
        if let Some(concerned) = self.concerned {
            whole["concernedByEvent"] = concerned.into();
        }
        print_json(&whole)
    }

    /// Prints what led to the answer, but for errors that `message` quotes.
    fn show_details(&self, evidence: &[Evidence], message: &str) {
        for each in evidence {
            note(&format!("evidence  {each}"));
        }
        for line in steps::lines(self.steps, message) {
            note(&line);
        }
        show_elements(self.elements.as_ref());
        match self.concerned {
            Some(true) => note("event     concerns this call: it would be rechecked"),
            Some(false) => note("event     does not concern this call"),
            None => {}
        }
    }
}

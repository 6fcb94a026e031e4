//! `appset-gateway explain`: what a running gateway would answer now, and why.

use std::process::ExitCode;

use clap::{Args, builder::NonEmptyStringValueParser};
use serde_json::{Map, Value};

use super::{
    Output, exit,
    gateway::{GatewayArgs, HELP, view},
    parameters::QuestionArgs,
    print_json,
    progress::Progress,
    steps,
    terminal::note,
};
use crate::overview::{answers::RememberedAnswer, elements::AnswerElements, explain::Explanation};
use domain::units::plural;

/// The arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = format!("{HELP}

Examples:
  appset-gateway explain pr-digests -a fb-matrix -p branch=main
  kubectl exec deploy/appset-gateway -- appset-gateway explain pr-digests -a fb-matrix -p branch=main -o json

The gateway asks the sources of the route once, and stores nothing. The answer that Argo CD gets afterwards goes to standard output, \
and everything else to standard error.
Exit codes: 0 the source answered, and its answer would be served; 1 the last good answer or an error would be served, or the gateway cannot \
be reached."))]
pub(crate) struct ExplainArgs {
    /// The route.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    route: String,
    #[command(flatten)]
    question: QuestionArgs,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    gateway: GatewayArgs,
}

/// Asks the gateway, and prints its reply.
pub(crate) fn run(arguments: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let gateway = arguments.gateway.find()?;
    let mut question = Map::new();
    question.insert("route".to_owned(), arguments.route.clone().into());
    question.insert("applicationSet".to_owned(), arguments.question.application_set.clone().into());
    question.insert("input".to_owned(), arguments.question.parameters.read()?.into());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reply = {
        let _progress = Progress::begin("asking the sources");
        runtime.block_on(gateway.post(&["explain"], &[], Some(&Value::Object(question))))?
    };
    let explanation: Explanation = view(reply.clone())?;
    if arguments.output == Output::Json {
        print_json(&reply)?;
    } else {
        show(&explanation)?;
    }
    Ok(if explanation.because.is_none() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

fn show(explanation: &Explanation) -> anyhow::Result<()> {
    let Explanation { answer, remembered, .. } = explanation;
    if let Some(body) = &answer.body {
        print_json(body)?;
    }
    note(&format!("route     {} ({})", explanation.route, explanation.backend));
    note(&format!("outcome   {}, {:.1} ms", explanation.outcome.as_str(), explanation.milliseconds));
    match &explanation.identity[..] {
        [] => {}
        keys => note(&format!("identity  `{}` identifies the parameter sets", keys.join("`, `"))),
    }
    explanation.evidence.iter().for_each(|each| note(&format!("evidence  {each}")));
    let because = explanation.because.as_ref().map_or("", |because| &because.message);
    for line in steps::lines(&explanation.steps, because) {
        note(&line);
    }
    show_elements(explanation.elements.as_ref());
    if let Some(because) = &explanation.because {
        note(&format!("because   {} {}: {}", because.status, because.code, because.message));
    }
    match explanation.gets_now() {
        Some(now) => note(&format!("Argo CD   gets now {now}, afterwards {}", explanation.gets_afterwards())),
        None => note(&format!("Argo CD   gets {}", explanation.gets_afterwards())),
    }
    show_remembered(remembered, because);
    if remembered.depends_on_unnamed_set() {
        note("note      the answer may depend on the ApplicationSet, and none was named: name the one that asks by -a");
    }
    note(&format!("key       {}", explanation.key));
    Ok(())
}

/// Prints the elements of an answer, if it is made of elements.
pub(super) fn show_elements(elements: Option<&AnswerElements>) {
    let Some(elements) = elements else { return };
    note(&format!("elements  {}", elements.in_words()));
    elements.lines().iter().for_each(|line| note(line));
}

/// Prints the records of a question. A message that is a part of `said`, which is printed above, is not printed once more.
pub(super) fn show_remembered(remembered: &RememberedAnswer, said: &str) {
    note(&format!("cache     {}", cached(remembered)));
    let mut said = said.to_owned();
    let mut once = |message: &str| {
        if said.contains(message) {
            return String::new();
        }
        said.push_str(message);
        format!(": {message}")
    };
    if let Some(failing) = &remembered.failing {
        let why = once(&failing.message);
        note(&format!("failing   {}{why}; {}", failing.kind, failing.again()));
    }
    if let Some(held) = &remembered.held {
        let why = once(&held.message);
        note(&format!("held      since {}, id {}{why}", held.since, held.id));
    }
}

/// The state of a record.
fn cached(remembered: &RememberedAnswer) -> String {
    let stored = remembered.stored.as_ref().map(|stored| {
        format!(
            ", stored at {}, {} s old, {} parameter set{}",
            stored.stored_at,
            stored.age_seconds,
            stored.parameter_sets,
            plural(stored.parameter_sets)
        )
    });
    let fresh = remembered.fresh_for_seconds.map(|left| format!(", fresh for {left} s"));
    format!("{}{}{}", remembered.state.replace('_', " "), stored.unwrap_or_default(), fresh.unwrap_or_default())
}

//! `appset-gateway answers`: lists, shows and invalidates the answers that a running gateway remembers, through its admin listener.

use std::{process::ExitCode, time::Duration};

use anyhow::ensure;
use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};
use serde_json::{Map, Value};

use super::{
    Output,
    explain::{show_elements, show_remembered},
    gateway::{Gateway, GatewayArgs, HELP, requesters, text, view},
    parameters::{ParameterArgs, parse_id},
    print, print_json,
    terminal::{Colour, Row, Terminal, note},
};
use crate::overview::answers::WholeAnswer;
use domain::visible::visible;

/// How much of a key a terminal shows.
const KEY_CHARS: usize = 12;

/// The arguments of `answers`.
#[derive(Debug, Args)]
#[command(after_help = format!("{HELP}

Examples:
  appset-gateway answers list --route pr-digests
  appset-gateway answers show 0b6d1c
  appset-gateway answers invalidate --route pr-digests -p branch=main
  kubectl exec deploy/appset-gateway -- appset-gateway answers list -o json

Exit codes: 0 done, 1 not done, 2 the command line is wrong."))]
pub(crate) struct AnswersArgs {
    #[command(subcommand)]
    command: AnswersCommand,
    #[command(flatten)]
    gateway: GatewayArgs,
}

#[derive(Debug, Subcommand)]
enum AnswersCommand {
    /// List the remembered answers, each with its state, its age and the ApplicationSets that requested it.
    List {
        #[command(flatten)]
        selector: Selector,
        /// The number of answers to print.
        #[arg(long, value_name = "COUNT", default_value_t = 1000)]
        limit: usize,
        /// The output format.
        #[arg(long, short, value_enum, default_value_t)]
        output: Output,
    },
    /// Show one remembered answer: its parameter sets, and how they were found.
    Show {
        /// The key that `answers list` prints, or the beginning of it: at least 6 digits.
        #[arg(value_parser = parse_id)]
        key: String,
        /// The number of elements to print, if the answer is made of elements. The unknown ones come first.
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        elements: usize,
        /// The output format.
        #[arg(long, short, value_enum, default_value_t)]
        output: Output,
    },
    /// Run the backend again before any of these answers is served. They remain as last good answers.
    Invalidate {
        #[command(flatten)]
        selector: Selector,
        #[command(flatten)]
        parameters: ParameterArgs,
        /// Invalidate all answers of all routes.
        #[arg(long)]
        all: bool,
        /// The output format.
        #[arg(long, short, value_enum, default_value_t)]
        output: Output,
    },
}

/// Selects answers.
#[derive(Debug, Args)]
struct Selector {
    /// Only answers of this route.
    #[arg(long, short, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    route: Option<String>,
    /// Only answers for this ApplicationSet, and answers that do not depend on the ApplicationSet.
    #[arg(long, short, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    application_set: Option<String>,
}

/// Runs the command and prints its result.
pub(crate) fn run(arguments: &AnswersArgs) -> anyhow::Result<ExitCode> {
    let gateway = arguments.gateway.find()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &arguments.command {
        AnswersCommand::List { selector, limit, output } => runtime.block_on(list(&gateway, selector, *limit, *output)),
        AnswersCommand::Show { key, elements, output } => runtime.block_on(show(&gateway, key, *elements, *output)),
        AnswersCommand::Invalidate { selector, parameters, all, output } => {
            let mut selection = Map::new();
            selection.extend(selector.route.clone().map(|name| ("route".to_owned(), name.into())));
            selection.extend(selector.application_set.clone().map(|name| ("applicationSet".to_owned(), name.into())));
            let input = parameters.read()?;
            if !input.is_empty() {
                selection.insert("input".to_owned(), input.into());
            }
            ensure!(*all == selection.is_empty(), "name a route, an ApplicationSet or parameters, or give --all");
            if *all {
                selection.insert("all".to_owned(), true.into());
            }
            runtime.block_on(invalidate(&gateway, &selection.into(), *output))
        }
    }
}

async fn list(gateway: &Gateway, selector: &Selector, limit: usize, output: Output) -> anyhow::Result<ExitCode> {
    let limit = limit.to_string();
    let mut query = vec![("limit", limit.as_str())];
    query.extend(selector.route.as_deref().map(|name| ("route", name)));
    query.extend(selector.application_set.as_deref().map(|name| ("applicationSet", name)));
    let reply = gateway.get(&["answers"], &query).await?;
    if output == Output::Json {
        return print_json(&reply);
    }
    let answers = reply["answers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !answers.is_empty() {
        print(&shown(answers, Terminal::of_stdout()).join("\n"))?;
    }
    match reply["total"].as_u64().unwrap_or_default() {
        0 => print("nothing is remembered"),
        total if total > answers.len() as u64 => print(&format!("{} of {total}; --limit prints more", answers.len())),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The answers as a table, with the reason below each one that is failing or held.
fn shown(answers: &[Value], terminal: Terminal) -> Vec<String> {
    let rows: Vec<Row> = answers.iter().map(|answer| row(answer, terminal)).collect();
    let mut lines = terminal.table(&["KEY", "ROUTE", "STATE", "SETS", "AGE", "REQUESTED BY", "QUESTION"], &rows, 6);
    for (index, answer) in answers.iter().enumerate().rev() {
        // A held answer is a failure too.
        let why = answer["failing"]["message"].as_str().or_else(|| answer["held"]["message"].as_str());
        if let Some(why) = why {
            lines.insert(index + 2, format!("    {}", visible(why)));
        }
    }
    lines
}

fn row(answer: &Value, terminal: Terminal) -> Row {
    let key = text(answer, "key");
    // Its beginning is enough for `answers show`.
    let key = if terminal.is_limited() { key.chars().take(KEY_CHARS).collect() } else { key };
    let (is_held, state) = (!answer["held"].is_null(), text(answer, "state"));
    let state = if is_held { "held".to_owned() } else { state.replace('_', " ") };
    let number = |name: &str| answer[name].as_u64();
    let age = number("ageSeconds").map(|age| humantime::format_duration(Duration::from_secs(age)).to_string());
    let sets = number("parameterSets").map(|sets| sets.to_string());
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let colour = match &*state {
        "held" | "failing" => Some(Colour::Red),
        "stale if error" | "expired" => Some(Colour::Yellow),
        _ => None,
    };
    let cells = vec![
        key,
        text(answer, "route"),
        state,
        or_none(sets),
        or_none(age),
        requesters(answer),
        visible(&answer["input"].to_string()),
    ];
    Row { cells, colour }
}

async fn show(gateway: &Gateway, key: &str, elements: usize, output: Output) -> anyhow::Result<ExitCode> {
    let reply = gateway.get(&["answers", key], &[("elements", &elements.to_string())]).await?;
    if output == Output::Json {
        return print_json(&reply);
    }
    let WholeAnswer { about, answer } = view(reply)?;
    if let Some(answer) = answer {
        print_json(&answer)?;
    }
    note(&format!("route     {}", about.route));
    note(&format!("input     {}", Value::Object(about.input.clone())));
    if !about.requesters.is_empty() {
        note(&format!("requested by  {}", about.requesters.join(", ")));
    }
    if let Some(stored) = &about.stored {
        stored.evidence.iter().for_each(|each| note(&format!("evidence  {each}")));
        note(&format!("backend   {:.1} ms", stored.backend_milliseconds));
    }
    show_elements(about.elements.as_ref());
    show_remembered(&about, "");
    note(&format!("key       {}", about.key));
    note(&format!("lineage   {}", about.lineage));
    Ok(ExitCode::SUCCESS)
}

async fn invalidate(gateway: &Gateway, selection: &Value, output: Output) -> anyhow::Result<ExitCode> {
    let reply = gateway.post(&["answers", "invalidate"], &[], Some(selection)).await?;
    if output == Output::Json {
        return print_json(&reply);
    }
    print(&format!("answers to ask for again: {}; runs cut off: {}", reply["answers"], reply["runs"]))
}

//! `appset-gateway answers`: lists, shows and invalidates the answers that a running gateway remembers, through its admin listener.

use std::process::ExitCode;

use anyhow::ensure;
use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::{
    ConfigFile, Output,
    explain::show_remembered,
    gateway::{AdminArgs, Gateway, HELP, asked_by, text, view},
    parameters::ParameterArgs,
    print,
    terminal::note,
};
use crate::{domain::units::plural, overview::answers::WholeAnswer};

/// The arguments of `answers`.
#[derive(Debug, Args)]
#[command(after_help = format!("{HELP}

Examples:
  appset-gateway answers list --route pr-digests
  appset-gateway answers show 0b6d1c
  appset-gateway answers invalidate --route pr-digests -p branch=main
  kubectl exec deploy/appset-gateway -- appset-gateway answers list -o json

Exit codes: 0 done, 1 not done."))]
pub(crate) struct AnswersArgs {
    #[command(subcommand)]
    command: AnswersCommand,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    file: ConfigFile,
}

#[derive(Debug, Subcommand)]
enum AnswersCommand {
    /// List the remembered answers, each with its state, its age and the ApplicationSets that asked.
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
        /// The key that `answers list` prints, or the beginning of it.
        key: String,
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
    #[arg(long, short, value_name = "NAME")]
    route: Option<String>,
    /// Only answers for this ApplicationSet, and answers that do not depend on the ApplicationSet.
    #[arg(long, short, value_name = "NAME")]
    application_set: Option<String>,
}

/// Runs the command and prints its result.
pub(crate) fn run(arguments: &AnswersArgs) -> anyhow::Result<ExitCode> {
    let gateway = Gateway::find(&arguments.admin, &arguments.file.path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &arguments.command {
        AnswersCommand::List { selector, limit, output } => runtime.block_on(list(&gateway, selector, *limit, *output)),
        AnswersCommand::Show { key, output } => runtime.block_on(show(&gateway, key, *output)),
        AnswersCommand::Invalidate { selector, parameters, all, output } => {
            let mut selection = Map::new();
            selection.extend(selector.route.clone().map(|name| ("route".to_owned(), name.into())));
            selection.extend(selector.application_set.clone().map(|name| ("applicationSet".to_owned(), name.into())));
            let input = parameters.read()?;
            if !input.is_empty() {
                selection.insert("input".to_owned(), input.into());
            }
            ensure!(*all == selection.is_empty(), "name a route, an ApplicationSet or parameters, or give --all");
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
        return print(&format!("{reply:#}"));
    }
    let answers = reply["answers"].as_array().map(Vec::as_slice).unwrap_or_default();
    answers.iter().try_for_each(|answer| print(&shown(answer)).map(drop))?;
    match reply["total"].as_u64().unwrap_or_default() {
        0 => print("nothing is remembered"),
        total if total > answers.len() as u64 => print(&format!("{} of {total}; --limit prints more", answers.len())),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// An answer as text: one line, and a second one if the answer is failing or held.
fn shown(answer: &Value) -> String {
    let age = answer["ageSeconds"].as_u64().zip(answer["parameterSets"].as_u64()).map(|(age, sets)| {
        let s = plural(sets);
        format!(", {age} s old, {sets} parameter set{s}")
    });
    // A held answer is a failure too.
    let why = answer["failing"]["message"].as_str().or_else(|| answer["held"]["message"].as_str());
    format!(
        "{}  {} {}: {}{}{}{}",
        text(answer, "key"),
        text(answer, "route"),
        answer["input"],
        text(answer, "state").replace('_', " "),
        age.unwrap_or_default(),
        asked_by(answer),
        why.map(|why| format!("\n    {why}")).unwrap_or_default()
    )
}

async fn show(gateway: &Gateway, key: &str, output: Output) -> anyhow::Result<ExitCode> {
    ensure!(!key.is_empty(), "give the key, or the beginning of it");
    let reply = gateway.get(&["answers", key], &[]).await?;
    if output == Output::Json {
        return print(&format!("{reply:#}"));
    }
    let WholeAnswer { about, answer } = view(reply)?;
    if let Some(answer) = answer {
        print(&format!("{answer:#}"))?;
    }
    note(&format!("route     {}", about.route));
    note(&format!("input     {}", Value::Object(about.input.clone())));
    if !about.asked_by.is_empty() {
        note(&format!("asked by  {}", about.asked_by.join(", ")));
    }
    if let Some(stored) = &about.stored {
        stored.evidence.iter().for_each(|each| note(&format!("evidence  {each}")));
        note(&format!("backend   {:.1} ms", stored.backend_milliseconds));
    }
    show_remembered(&about);
    note(&format!("key       {}", about.key));
    note(&format!("lineage   {}", about.lineage));
    Ok(ExitCode::SUCCESS)
}

async fn invalidate(gateway: &Gateway, selection: &Value, output: Output) -> anyhow::Result<ExitCode> {
    let reply = gateway.post(&["answers", "invalidate"], &[], Some(selection)).await?;
    if output == Output::Json {
        return print(&format!("{reply:#}"));
    }
    print(&format!("answers to ask for again: {}; runs cut off: {}", reply["answers"], reply["runs"]))
}

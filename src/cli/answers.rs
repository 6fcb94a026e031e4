//! `appset-gateway answers`: what a running gateway remembers, and how to make it ask again. Speaks to the admin listener.

use std::process::ExitCode;

use anyhow::ensure;
use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::{
    ConfigFile, Output,
    gateway::{AdminArgs, Gateway, HELP, asked_by, text},
    parameters::ParameterArgs,
    print,
};

/// What to do.
#[derive(Debug, Args)]
#[command(after_help = format!("{HELP}

Examples:
  appset-gateway answers list --route pr-digests
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
    /// List what is remembered: each question with its state, its age, and the ApplicationSets that asked.
    List {
        #[command(flatten)]
        of: Of,
        /// The number of answers to print.
        #[arg(long, value_name = "COUNT", default_value_t = 1000)]
        limit: usize,
        /// How to print.
        #[arg(long, short, value_enum, default_value_t)]
        output: Output,
    },
    /// Ask the source again before any of these answers is served. They stay as last good answers.
    Invalidate {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        parameters: ParameterArgs,
        /// All answers of all routes.
        #[arg(long)]
        all: bool,
        /// How to print.
        #[arg(long, short, value_enum, default_value_t)]
        output: Output,
    },
}

/// Which answers are meant.
#[derive(Debug, Args)]
struct Of {
    /// Only those of this route.
    #[arg(long, short, value_name = "NAME")]
    route: Option<String>,
    /// Only those of this ApplicationSet, and those that do not depend on the ApplicationSet.
    #[arg(long, short, value_name = "NAME")]
    application_set: Option<String>,
}

/// Does it and prints what came of it.
pub(crate) fn run(arguments: &AnswersArgs) -> anyhow::Result<ExitCode> {
    let gateway = Gateway::find(&arguments.admin, &arguments.file.path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &arguments.command {
        AnswersCommand::List { of, limit, output } => runtime.block_on(list(&gateway, of, *limit, *output)),
        AnswersCommand::Invalidate { of, parameters, all, output } => {
            let mut what = Map::new();
            what.extend(of.route.clone().map(|name| ("route".to_owned(), name.into())));
            what.extend(of.application_set.clone().map(|name| ("applicationSet".to_owned(), name.into())));
            let input = parameters.read()?;
            if !input.is_empty() {
                what.insert("input".to_owned(), input.into());
            }
            ensure!(*all == what.is_empty(), "name a route, an ApplicationSet or parameters, or give --all");
            runtime.block_on(invalidate(&gateway, &what.into(), *output))
        }
    }
}

async fn list(gateway: &Gateway, of: &Of, limit: usize, output: Output) -> anyhow::Result<ExitCode> {
    let limit = limit.to_string();
    let mut query = vec![("limit", limit.as_str())];
    query.extend(of.route.as_deref().map(|name| ("route", name)));
    query.extend(of.application_set.as_deref().map(|name| ("applicationSet", name)));
    let told = gateway.get(&["answers"], &query).await?;
    if output == Output::Json {
        return print(&format!("{told:#}"));
    }
    let answers = told["answers"].as_array().map(Vec::as_slice).unwrap_or_default();
    answers.iter().try_for_each(|answer| print(&shown(answer)).map(drop))?;
    match told["total"].as_u64().unwrap_or_default() {
        0 => print("nothing is remembered"),
        total if total > answers.len() as u64 => print(&format!("{} of {total}; --limit prints more", answers.len())),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// An answer for people: a line, and one for what is wrong with it.
fn shown(answer: &Value) -> String {
    let age = answer["ageSeconds"].as_u64().zip(answer["parameterSets"].as_u64()).map(|(age, sets)| {
        let s = if sets == 1 { "" } else { "s" };
        format!(", {age} s old, {sets} parameter set{s}")
    });
    // A held answer is a failure, too.
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

async fn invalidate(gateway: &Gateway, what: &Value, output: Output) -> anyhow::Result<ExitCode> {
    let told = gateway.post(&["answers", "invalidate"], Some(what)).await?;
    if output == Output::Json {
        return print(&format!("{told:#}"));
    }
    print(&format!("answers to ask for again: {}; runs cut off: {}", told["answers"], told["runs"]))
}

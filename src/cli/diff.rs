//! `appset-gateway diff`: what the next configuration would change. It asks remembered questions of it, without a server and without a cache.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde_json::json;

use super::{
    ConfigFile, Output, exit,
    gateway::{Gateway, TokenArgs, parse_admin},
    print, print_json,
    progress::Progress,
};
use crate::{
    app::App,
    config::{Loaded, Report},
    diff::{
        ask::{DEFAULT_LIMIT, recorded_by},
        compare::{Comparison, compare},
        recording::{self, Recording},
        report,
    },
};
use domain::clock::{Clock as _, SystemClock};
use launcher::own_program;
use telemetry::log::{self, Format, LogConfig, LogLevel, LogStream};

/// Nothing was compared.
const NOT_COMPARED: u8 = 2;
/// The largest file that is read, in MiB. A gateway lists at most 32 MiB of answers.
const MAX_FILE_MIB: u64 = 128;
/// The largest `--limit`: a gateway lists no more questions.
const MAX_LIMIT: usize = 1000;
/// Something is not known, and nothing would be removed as far as is known.
const NO_ANSWER: u8 = 3;

/// The arguments of `diff`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  appset-gateway diff -c next.yaml --against http://gateway:4356 --token-file operators-token
  appset-gateway diff -c next.yaml --against http://gateway:4356 --save questions.json
  appset-gateway diff -c next.yaml --against questions.json
  appset-gateway diff -c next.yaml --against current.yaml --questions questions.json

At most {DEFAULT_LIMIT} questions are sent unless --limit says otherwise, the most recent first, 4 at a time. Sources are only read, and nothing is stored.
Without --token-file the token is the first one with `role: admin` of the configuration that has a `file` or `env`.

Exit codes: 0 nothing would be removed; 1 parameter sets would be removed, at once or when the guard lets them; 2 nothing was compared; 3 \
nothing would be removed as far as is known, but some questions were not sent, have no answer on one side, sets that no key identifies, or \
no last good answer any more for the guard; 78 the configuration is wrong."))]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    file: ConfigFile,
    /// What the configuration is compared with: the admin listener's URL of a running gateway, a file of recorded questions, or another
    /// configuration.
    #[arg(long, value_name = "URL|FILE")]
    against: String,
    /// The questions for both configurations: a file of recorded questions.
    #[arg(long, value_name = "FILE")]
    questions: Option<PathBuf>,
    /// How many questions are sent, at most.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT, value_parser = limit)]
    limit: usize,
    /// Also write the questions and their answers to this file.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    #[command(flatten)]
    token: TokenArgs,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

/// Why there is no comparison.
enum Stopped {
    /// A configuration is wrong.
    Config(Box<Report>),
    /// Something else.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Stopped {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

/// Compares, and prints the result.
pub(crate) fn run(arguments: &DiffArgs) -> anyhow::Result<ExitCode> {
    let _flush = log::init(LogConfig { format: Format::Text, level: LogLevel::Warn }, LogStream::Stderr);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let progress = Progress::begin("asking the sources");
    let compared = runtime.block_on(comparison(arguments));
    drop(progress);
    match compared {
        Ok(comparison) => show(&comparison, arguments.output),
        Err(Stopped::Config(report)) => {
            eprint!("{report}");
            Ok(ExitCode::from(exit::CONFIG))
        }
        Err(Stopped::Other(error)) => {
            eprintln!("error: {error:#}");
            Ok(ExitCode::from(NOT_COMPARED))
        }
    }
}

/// Prints `comparison`, and returns the exit code.
fn show(comparison: &Comparison, output: Output) -> anyhow::Result<ExitCode> {
    match output {
        Output::Text => print(report::text(comparison).trim_end())?,
        Output::Json => print_json(&report::json(comparison))?,
    };
    let counts = report::count(comparison);
    Ok(match (counts.removes(), counts.is_unclear() || comparison.skipped > 0) {
        (true, _) => ExitCode::from(exit::FAILED),
        (false, false) => ExitCode::SUCCESS,
        (false, true) => ExitCode::from(NO_ANSWER),
    })
}

/// The last questions that `gateway` remembers, `limit` at most.
async fn remembered(gateway: &Gateway, limit: usize) -> anyhow::Result<Recording> {
    let limit = limit.to_string();
    let answer = gateway.get_known(&["questions"], &[("limit", &limit)]).await?;
    Recording::of(answer).context("the gateway's list of questions")
}

/// Asks `next` the questions of `recording`, `limit` at most.
async fn ask_next(next: &App, recording: &Recording, limit: usize) -> Comparison {
    let comparison = compare(&next.setup(), recording, limit, SystemClock.now()).await;
    next.launchers.close().await;
    comparison
}

async fn comparison(arguments: &DiffArgs) -> Result<Comparison, Stopped> {
    let next = build(&arguments.file.path)?;
    let recording = against(arguments).await?;
    if let Some(file) = &arguments.save {
        let written = std::fs::write(file, format!("{:#}\n", json!(recording)));
        written.with_context(|| format!("cannot write {}", file.display()))?;
    }
    if recording.questions.is_empty() {
        return Err(Stopped::Other(anyhow!("no question is known, so nothing was compared")));
    }
    Ok(ask_next(&next, &recording, arguments.limit).await)
}

fn build(file: &Path) -> Result<App, Stopped> {
    let of_routes = |loaded: Loaded| App::build(loaded.for_routes_only(), Arc::new(SystemClock), own_program());
    let built = Loaded::read(file).and_then(of_routes);
    built.map(|(app, _)| app).map_err(|report| Stopped::Config(Box::new(report)))
}

/// The questions, and the answers that callers got.
async fn against(arguments: &DiffArgs) -> Result<Recording, Stopped> {
    let DiffArgs { against, questions, limit, token, file, .. } = arguments;
    if against.contains("://") {
        if questions.is_some() {
            return Err(anyhow!("--questions goes with another configuration; a gateway has its own questions").into());
        }
        let url = parse_admin(against).map_err(|why| anyhow!("{against}: {why}"))?;
        return Ok(remembered(&Gateway::open(Some(&url), token, &file.path)?, *limit).await?);
    }
    let path = Path::new(against);
    let text =
        read(path).with_context(|| format!("a gateway's address begins with http://, and a file `{against}`"))?;
    let document = recording::parse(&text).ok().filter(Recording::is_meant_by);
    match (document, questions) {
        (Some(_), Some(_)) => {
            Err(anyhow!("{against} has questions itself; --questions goes with another configuration").into())
        }
        (Some(document), None) => {
            let recording = Recording::of(document).with_context(|| against.clone())?;
            let is_answered = recording.questions.iter().any(|question| question.sets.is_some());
            let advice =
                "it has questions without answers; give --against a configuration, and this file as --questions";
            if !is_answered && !recording.questions.is_empty() {
                return Err(anyhow!("{against}: {advice}").into());
            }
            Ok(recording)
        }
        (None, None) => {
            Err(anyhow!("{against} has no `questions`; if it is a configuration, say with --questions what to ask")
                .into())
        }
        (None, Some(file)) => {
            let current = build(path)?;
            let document = recording::parse(&read(file)?).map_err(|why| anyhow!("{}: {why}", file.display()))?;
            let questions = Recording::of(document).with_context(|| file.display().to_string())?;
            let recording = recorded_by(&current.setup(), &questions, *limit).await;
            current.launchers.close().await;
            Ok(recording)
        }
    }
}

/// The number of questions in `text`.
fn limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| format!("it is a number from 1 to {MAX_LIMIT}"))
}

fn read(file: &Path) -> anyhow::Result<String> {
    domain::file::read_up_to(file, MAX_FILE_MIB).map_err(|why| anyhow!("cannot read {}: {why}", file.display()))
}

//! `appset-gateway conformance`.

mod incidents;

use std::{
    io::{IsTerminal as _, stderr},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use reqwest::Url;

use self::incidents::IncidentArgs;
use super::{ReportFormat, exit, print, print_json};
use conformance::{
    cases, report,
    rules::{Results, printable},
    suite,
    target::{TIMEOUT, Target},
    upstream::Upstream,
};
use domain::{file::base_dir::BaseDir, secret::SecretRef};

/// The plugin, and the questions.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the plugin conforms, 1 a MUST or HAZARD rule failed, the plugin was unreachable, or some rules were not checked.\n\
                  With `--incident`: 0 Argo CD would keep all Applications, 1 it would delete some, or an incident was not played."
)]
pub(crate) struct ConformanceArgs {
    /// The plugin's URL, as `baseUrl` of its ConfigMap.
    #[arg(long, value_name = "URL", required_unless_present = "incidents")]
    url: Option<Url>,
    /// A file with the token of its ConfigMap.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Questions, and what is known of their answers. One question without parameters unless set.
    #[arg(value_name = "CASES")]
    cases: Option<PathBuf>,
    /// Also play faults of the plugin's source: listen on this port, at which the plugin must ask for its source.
    #[arg(long, value_name = "PORT", requires = "source")]
    break_upstream: Option<u16>,
    /// The source behind that port.
    #[arg(long, value_name = "URL", requires = "break_upstream")]
    source: Option<Url>,
    /// How long an answer may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=300))]
    timeout: u64,
    /// How long the whole run may take, in seconds. Questions that were not sent by then are skipped.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    max_time: u64,
    #[command(flatten)]
    incident: IncidentArgs,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: ReportFormat,
}

/// Runs the suite, and prints the report.
pub(crate) fn run(arguments: &ConformanceArgs) -> anyhow::Result<ExitCode> {
    let Some(url) = arguments.url.as_ref().filter(|_| !arguments.incident.incidents) else {
        return incidents::list(arguments.output);
    };
    let token = arguments.token_file.clone().map(|file| SecretRef::File(file).read(&BaseDir::default()));
    let token = token.transpose().map_err(anyhow::Error::msg)?;
    let target = Target::new(url, token, Duration::from_secs(arguments.timeout))?;
    let cases = cases::read(arguments.cases.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let upstream = match (arguments.break_upstream, &arguments.source) {
            (Some(port), Some(source)) => {
                let started = Upstream::start(port, source.clone()).await;
                Some(started.with_context(|| format!("cannot listen on port {port}"))?)
            }
            _ => None,
        };
        let max_time = Duration::from_secs(arguments.max_time);
        if arguments.incident.are_chosen() {
            return arguments.incident.run(&target, &cases, upstream.as_ref(), max_time, arguments.output).await;
        }
        let results = suite::run(&target, &cases, upstream.as_ref(), max_time, &show_progress).await?;
        show_progress("");
        print_report(&results, arguments.output)
    })
}

fn print_report(results: &Results, output: ReportFormat) -> anyhow::Result<ExitCode> {
    match output {
        ReportFormat::Text => print(report::text(results).trim_end())?,
        ReportFormat::Markdown => print(report::markdown(results).trim_end())?,
        ReportFormat::Junit => print(report::junit(results).trim_end())?,
        ReportFormat::Json => print_json(&report::json(results))?,
    };
    Ok(if results.conforms() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

/// Shows the current question, in place of the one before. Only on a terminal.
fn show_progress(question: &str) {
    if stderr().is_terminal() {
        eprint!("\r\x1b[K{}", printable(question));
    }
}

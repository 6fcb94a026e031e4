//! `appset-gateway test`: plays files of cases against a configuration, without its sources.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{ConfigFile, ReportFormat, exit, print};
use crate::{
    config::{Decoded, Report},
    domain::problem::Path,
    replay::{
        case::{CaseFile, Expected},
        play::{PlayedStep, play},
        read::{files, read},
        report::{self, Result as CaseResult},
        update::{self, Change, expected_lines},
    },
    telemetry::log::{self, Format, LogConfig, LogLevel, LogStream},
};

/// Which cases are played.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  appset-gateway test -c gateway.yaml
  appset-gateway test -c gateway.yaml -o junit tests/ > report.xml

Scripts run for real unless a case has a reply for them. No source is asked over the network, no secret is read, and nothing is stored.
Exit codes: 0 all cases passed, 1 a case failed, 78 the configuration or a file of cases is wrong.")]
pub(crate) struct TestArgs {
    /// Files of cases, or folders with them. The folder `tests` beside the configuration unless given.
    paths: Vec<PathBuf>,
    /// Write the answers into the files where they differ from what is expected there, and print the differences.
    #[arg(long)]
    update: bool,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: ReportFormat,
    #[command(flatten)]
    file: ConfigFile,
}

/// Plays the cases and prints the report.
pub(crate) fn run(arguments: &TestArgs) -> anyhow::Result<ExitCode> {
    let _flush = log::init(LogConfig { format: Format::Text, level: LogLevel::Error }, LogStream::Stderr);
    let config = &arguments.file.path;
    let usual = [config.with_file_name("tests")];
    let paths = if arguments.paths.is_empty() { &usual[..] } else { &arguments.paths };
    let files = files(paths)?;
    anyhow::ensure!(!files.is_empty(), "there are no files of cases; `appset-gateway record` writes one");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (mut results, mut is_wrong) = (Vec::new(), false);
    for file in files {
        let played = match read(&file) {
            Ok(decoded) => runtime.block_on(play_file(&file, &decoded, arguments)),
            Err(report) => Err(Box::new(report)),
        };
        match played {
            Ok(played) => results.extend(played?),
            Err(report) => {
                eprint!("{report}");
                is_wrong = true;
            }
        }
    }
    match arguments.output {
        ReportFormat::Text => print(report::text(&results).trim_end())?,
        ReportFormat::Markdown => print(report::markdown(&results).trim_end())?,
        ReportFormat::Junit => print(report::junit(&results).trim_end())?,
        ReportFormat::Json => print(&format!("{:#}", report::json(&results)))?,
    };
    Ok(match report::failed(&results) {
        _ if is_wrong => ExitCode::from(exit::CONFIG),
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(exit::FAILED),
    })
}

/// Plays all cases of `file`, and writes the answers into it if that is wanted. `Err` when the configuration is wrong.
async fn play_file(
    file: &std::path::Path,
    decoded: &Decoded<CaseFile>,
    arguments: &TestArgs,
) -> Result<anyhow::Result<Vec<CaseResult>>, Box<Report>> {
    let (mut results, mut changes, is_updated) = (Vec::new(), Vec::new(), arguments.update);
    for (index, case) in decoded.value.cases.iter().enumerate() {
        let played = play(case, &arguments.file.path).await.map_err(Box::new)?;
        let path = Path::root().key("cases").index(index);
        let steps = case.then.iter().enumerate().map(|(n, step)| (path.key("then").index(n), step.expect.as_ref()));
        let places = std::iter::once((path.clone(), case.expect.as_ref())).chain(steps);
        changes.extend(
            places.zip(&played.steps).filter_map(|((path, before), step)| change(decoded, &path, before, step)),
        );
        let line = decoded.place(&path).line;
        results.push(CaseResult {
            file: file.display().to_string(),
            line,
            name: case.name.clone(),
            played,
            is_updated,
        });
    }
    if is_updated && !changes.is_empty() {
        let text = update::apply(decoded.source(), changes);
        if let Err(error) = std::fs::write(file, text) {
            return Ok(Err(anyhow::anyhow!("cannot write {}: {error}", file.display())));
        }
    }
    Ok(Ok(results))
}

/// The change that makes a step expect what was answered, if that differs.
fn change(decoded: &Decoded<CaseFile>, path: &Path, before: Option<&Expected>, step: &PlayedStep) -> Option<Change> {
    if step.differences.is_empty() {
        return None;
    }
    let begin = decoded.place(path);
    let expect = before.map(|_| decoded.place(&path.key("expect")));
    let as_number = |number: u64| usize::try_from(number).unwrap_or_default();
    Some(Change {
        begin: as_number(begin.line),
        // In the line `- expect: …` both begin at the same column.
        column: as_number(expect.map_or(begin.column, |expect| expect.column)),
        expect: expect.map(|expect| as_number(expect.line)),
        lines: expected_lines(&step.answer, before),
    })
}

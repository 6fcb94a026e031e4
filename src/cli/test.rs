//! `appset-gateway test`: plays files of cases against a configuration, without its sources.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;

use super::{ConfigFile, ReportFormat, exit, print, print_json, progress::Progress};
use crate::{
    config::{Decoded, Report},
    replay::{
        case::CaseFile,
        play::Stage,
        read::{case_path, files, read},
        report::{self, CaseResult},
        update::{NewAnswer, expected_lines, write},
    },
};
use telemetry::log::{self, Format, LogConfig, LogLevel, LogStream};

/// Which cases are played.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  appset-gateway test -c gateway.yaml
  appset-gateway test -c gateway.yaml -o junit tests/ > report.xml

Scripts run for real unless a case has a reply for them. No source is called over the network, no secret is read, and nothing is stored.
Exit codes: 0 all cases passed, 1 a case failed, 78 the configuration or a file of cases is wrong.")]
pub(crate) struct TestArgs {
    /// Files of cases, or folders with them. The folder `tests` beside the configuration unless set.
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
    let found = files(paths).and_then(|files| {
        anyhow::ensure!(!files.is_empty(), "there are no files of cases; `appset-gateway record` writes one");
        Ok(files)
    });
    let files = match found {
        Ok(files) => files,
        Err(error) => {
            eprintln!("error: {error:#}");
            return Ok(ExitCode::from(exit::CONFIG));
        }
    };
    let stage = match Stage::read(config) {
        Ok(stage) => stage,
        Err(report) => {
            eprint!("{report}");
            return Ok(ExitCode::from(exit::CONFIG));
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (mut results, mut is_wrong) = (Vec::new(), false);
    for file in files {
        let played = match read(&file) {
            Ok(decoded) => {
                let _progress = Progress::begin("playing the cases");
                runtime.block_on(play_file(&stage, &file, &decoded, arguments.update))
            }
            Err(report) => Err(report),
        };
        match played {
            Ok(played) => results.extend(played),
            Err(report) => {
                eprint!("{report}");
                results.push(CaseResult::unreadable(&file, &report.lines()));
                is_wrong = true;
            }
        }
    }
    match arguments.output {
        ReportFormat::Text => print(report::text(&results).trim_end())?,
        ReportFormat::Markdown => print(report::markdown(&results).trim_end())?,
        ReportFormat::Junit => print(report::junit(&results).trim_end())?,
        ReportFormat::Json => print_json(&report::json(&results))?,
    };
    Ok(match report::failed(&results) {
        _ if is_wrong => ExitCode::from(exit::CONFIG),
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(exit::FAILED),
    })
}

/// Plays all cases of `file`, and writes the answers into it if that is wanted.
///
/// # Errors
/// When the configuration is wrong.
async fn play_file(
    stage: &Stage,
    file: &Path,
    decoded: &Decoded<CaseFile>,
    update: bool,
) -> Result<Vec<CaseResult>, Box<Report>> {
    let (mut results, mut changes) = (Vec::new(), Vec::new());
    for (index, case) in decoded.value.cases.iter().enumerate() {
        let played = stage.play(case).await?;
        let steps = case.then.iter().map(|step| step.expect.as_ref());
        let expected = std::iter::once(case.expect.as_ref()).chain(steps);
        for (step, (before, played)) in expected.zip(&played.steps).enumerate() {
            // An answer without the replies is not kept.
            if !played.differences.is_empty() && played.missing.is_empty() {
                changes.push(NewAnswer { case: index, step, lines: expected_lines(&played.answer, before) });
            }
        }
        let line = decoded.place(&case_path(index)).line;
        let file = file.display().to_string();
        results.push(CaseResult { file, line, name: case.name.clone(), played, is_updated: update });
    }
    if update
        && !changes.is_empty()
        && let Err(why) = write(file, decoded, changes)
    {
        eprintln!("error: {}: no answer was written: {why}", file.display());
        for result in &mut results {
            result.is_updated = false;
        }
    }
    Ok(results)
}

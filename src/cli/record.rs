//! `appset-gateway record`: asks the live sources once, and writes a case for `appset-gateway test`.

use std::{fs, io::Write as _, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use clap::Args;

use super::{ConfigFile, exit, parameters::ParameterArgs, print};
use crate::{
    app::App,
    clients::launcher::own_program,
    config::Loaded,
    domain::{
        clock::{Clock as _, SystemClock, Timestamp},
        replay::Sources,
        secret::Secrets,
    },
    replay::{
        ask::{answer_of, ask},
        record::{Recorded, Recorder},
    },
    telemetry::log::{self, Format, LogConfig, LogLevel, LogStream},
};

/// The question that is recorded.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  appset-gateway record -c gateway.yaml pr-digests -p branch=main --name 'main is built' --to tests/digests.yaml

Known secrets, and what looks like one, are replaced by `[redacted]`. Read the case before you commit it.
Exit codes: 0 recorded (also an error), 1 not recorded, 78 the configuration is wrong.")]
pub(crate) struct RecordArgs {
    /// The route. Without it, the first route whose `match` accepts the call.
    route: Option<String>,
    #[command(flatten)]
    parameters: ParameterArgs,
    /// The name of the ApplicationSet that asks.
    #[arg(long, short, value_name = "NAME", default_value = "")]
    application_set: String,
    /// The name of the case. The route and the time unless given.
    #[arg(long, short, value_name = "TEXT")]
    name: Option<String>,
    /// The file to which the case is added. Standard output unless given.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    file: ConfigFile,
}

/// Asks the route once and writes the case.
pub(crate) fn run(arguments: &RecordArgs) -> anyhow::Result<ExitCode> {
    let _flush = log::init(LogConfig { format: Format::Text, level: LogLevel::Warn }, LogStream::Stderr);
    let recorder = Arc::new(Recorder::default());
    let sources = Some(Arc::clone(&recorder) as Arc<dyn Sources>);
    let built = Loaded::read(&arguments.file.path)
        .and_then(|loaded| App::build_with(loaded.unstored(), Arc::new(SystemClock), own_program(), sources));
    let app = match built {
        Ok((app, _)) => app,
        Err(report) => {
            eprint!("{report}");
            return Ok(ExitCode::from(exit::CONFIG));
        }
    };
    let (parameters, now) = (arguments.parameters.read()?, SystemClock.now());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (answer, secrets) = runtime.block_on(async {
        let asked = ask(&app, arguments.route.as_deref(), &arguments.application_set, &parameters, None).await;
        let secrets = asked.as_ref().map_or_else(|_| Secrets::default(), |asked| asked.route.backend.secrets());
        let answer = answer_of(&app, asked).await;
        app.launchers.close().await;
        (answer, secrets)
    });
    // To the second, as the file has it.
    let now = Timestamp(now.0 / 1000 * 1000);
    let usual = format!("{} at {}", arguments.route.as_deref().unwrap_or("a call"), now.to_date());
    let question = Recorded {
        name: arguments.name.as_deref().unwrap_or(&usual),
        route: arguments.route.as_deref(),
        application_set: &arguments.application_set,
        parameters: &parameters,
        now,
        answer: &answer,
    };
    let case = recorder.write(&question, &secrets)?;
    let Some(file) = &arguments.to else { return print(format!("cases:\n{case}").trim_end()) };
    add(file, &case).with_context(|| format!("cannot add the case to {}", file.display()))?;
    eprintln!("added a case to {}", file.display());
    Ok(ExitCode::SUCCESS)
}

/// Adds `case` at the end of `file`, which has the list `cases` at its end.
fn add(file: &PathBuf, case: &str) -> anyhow::Result<()> {
    let before = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error.into()),
    };
    let text = match before.trim_end() {
        "" => format!("cases:\n{case}"),
        before => {
            let last = before.lines().rfind(|line| !line.starts_with([' ', '#']) && !line.is_empty());
            anyhow::ensure!(
                last == Some("cases:"),
                "it does not end with the list `cases`, two spaces before each `-`"
            );
            format!("{before}\n{case}")
        }
    };
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    fs::File::create(file)?.write_all(text.as_bytes())?;
    Ok(())
}

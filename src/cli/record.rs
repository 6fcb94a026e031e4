//! `appset-gateway record`: asks the live sources once, and writes a case for `appset-gateway test`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use clap::Args;

use super::{ConfigFile, exit, parameters::ParameterArgs, print};
use crate::{
    app::App,
    config::{Loaded, Report},
    replay::{
        ask::{Answered, CallToRoute, answer_of, ask},
        read::{case_path, read},
        record::{Recorded, Recorder},
    },
};
use domain::{
    clock::{Clock as _, SystemClock, Timestamp},
    file::replace::replace,
    replay::Sources,
};
use launcher::own_program;
use telemetry::log::{self, Format, LogConfig, LogLevel, LogStream};

/// The question that is recorded.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  appset-gateway record -c gateway.yaml pr-digests -p branch=main --name 'main is built' --to tests/digests.yaml

Known secrets, and texts that look like one, are replaced by `[redacted]`. Read the case before you commit it.
Exit codes: 0 recorded (also an error), 1 not recorded, 78 the configuration is wrong.")]
pub(crate) struct RecordArgs {
    /// The route. Without it, the first route whose `match` accepts the call.
    route: Option<String>,
    #[command(flatten)]
    parameters: ParameterArgs,
    /// The name of the ApplicationSet that asks.
    #[arg(long, short, value_name = "NAME", default_value = "")]
    application_set: String,
    /// The name of the case. The route and the time unless set.
    #[arg(long, short, value_name = "TEXT")]
    name: Option<String>,
    /// The file to which the case is added. Standard output unless set.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    file: ConfigFile,
}

/// Asks the route once and writes the case.
pub(crate) fn run(arguments: &RecordArgs) -> anyhow::Result<ExitCode> {
    let target = arguments.to.as_deref().map(Target::open).transpose()?;
    let _flush = log::init(LogConfig { format: Format::Text, level: LogLevel::Warn }, LogStream::Stderr);
    let loaded = match Loaded::read(&arguments.file.path) {
        Ok(loaded) => loaded.unstored().for_routes_only(),
        Err(report) => return Ok(wrong(&report)),
    };
    let of_plugins = loaded.plugins.iter().flat_map(|plugin| &plugin.routes).map(|(_, values)| values);
    let recorder = Arc::new(Recorder::new([&loaded.raw].into_iter().chain(of_plugins)));
    let sources = Some(Arc::clone(&recorder) as Arc<dyn Sources>);
    let app = match App::build_with(loaded, Arc::new(SystemClock), own_program(), sources) {
        Ok((app, _)) => app,
        Err(report) => return Ok(wrong(&report)),
    };
    let (parameters, now) = (arguments.parameters.read()?, SystemClock.now());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (answer, secrets) = runtime.block_on(async {
        let call = CallToRoute {
            route: arguments.route.as_deref(),
            application_set: &arguments.application_set,
            parameters: Arc::new(parameters.clone()),
            ..CallToRoute::default()
        };
        let resolved = ask(&app, call).await;
        let route = resolved.as_ref().ok().map(|resolved| Arc::clone(&resolved.route));
        let secrets = || route.as_ref().map(|route| route.backend.secrets()).unwrap_or_default();
        // A secret may be renewed meanwhile, and a token is fetched by the call.
        let mut all = secrets();
        let answer = answer_of(&app, resolved).await;
        all.extend(secrets());
        app.launchers.close().await;
        (answer, all)
    });
    if let Answered::Error(code, message) = &answer
        && code == "unknown_route"
    {
        anyhow::bail!("{message}");
    }
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
    let Some(target) = target else { return print(format!("cases:\n{case}").trim_end()) };
    target.add(&case)?;
    eprintln!("added a case to {}", target.file.display());
    Ok(ExitCode::SUCCESS)
}

/// Prints the problems of the configuration.
fn wrong(report: &Report) -> ExitCode {
    eprint!("{report}");
    ExitCode::from(exit::CONFIG)
}

/// A file of cases to which one is added.
struct Target<'a> {
    file: &'a Path,
    /// Its text; empty if it is not there yet.
    before: String,
    /// How far the cases in it are indented.
    indent: usize,
}

impl<'a> Target<'a> {
    /// # Errors
    /// When the file has another form. Then no question is sent.
    fn open(file: &'a Path) -> anyhow::Result<Self> {
        if file.symlink_metadata().is_err() {
            return Ok(Self { file, before: String::new(), indent: 2 });
        }
        let cases = read(file).map_err(|report| anyhow::anyhow!("{report}"))?;
        let first = cases.place(&case_path(0));
        let before = cases.source().to_owned();
        let line =
            usize::try_from(first.line).ok().and_then(|number| before.lines().nth(number - 1)).unwrap_or_default();
        let indent = line.len() - line.trim_start().len();
        let is_list = line.trim_start().starts_with("- ");
        let last = before.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with([' ', '#', '-']));
        anyhow::ensure!(
            is_list && last.is_some_and(|line| line.starts_with("cases:")),
            "{}: a case can only be added at the end of a list `cases` whose items begin with `- `",
            file.display()
        );
        Ok(Self { file, before, indent })
    }

    /// Adds `case`, whose lines are indented for a list at two spaces.
    fn add(&self, case: &str) -> anyhow::Result<()> {
        let indent = " ".repeat(self.indent);
        let case: Vec<String> = case.lines().map(|line| format!("{indent}{}", &line[2..])).collect();
        let before = if self.before.is_empty() { "cases:" } else { self.before.trim_end() };
        let gap = if self.before.is_empty() { "\n" } else { "\n\n" };
        let shown = self.file.display();
        replace(self.file, &format!("{before}{gap}{}\n", case.join("\n")))
            .with_context(|| format!("cannot write {shown}"))
    }
}

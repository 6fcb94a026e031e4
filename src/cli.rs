//! The command line.

mod answers;
mod call;
mod check;
mod conformance;
mod demo;
mod diff;
mod explain;
mod gateway;
mod held;
mod hook;
mod init;
mod parameters;
mod progress;
mod record;
mod serve;
mod status;
mod steps;
mod terminal;
mod test;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use serde_json::Value;

use crate::config;
use auth::hash_token;
use domain::visible::visible_json;
use lang::evaluator;
use telemetry::crash;

/// Exit codes, of which 64 and above are sysexits.
mod exit {
    /// The work failed.
    pub(crate) const FAILED: u8 = 1;
    /// `EX_CONFIG`: the configuration is wrong.
    pub(crate) const CONFIG: u8 = 78;
}

/// The server behind Argo CD's ApplicationSet plugin generator.
///
/// It answers `POST /api/v1/getparams.execute` from scripts, HTTP services and image registries. If it cannot find out the
/// parameter sets, it answers with an error and never with an empty list.
#[derive(Debug, Parser)]
#[command(name = "appset-gateway", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Play a story of bad days in this process: what Argo CD would delete without the gateway, and with it. Needs no cluster.
    Demo(demo::DemoArgs),
    /// Write a small configuration with a test case.
    Init(init::InitArgs),
    /// Serve Argo CD's calls until SIGTERM.
    Serve(serve::ServeArgs),
    /// Check the configuration and report all problems at once. Opens no socket without `--connect`.
    #[command(
        after_help = "Exit codes: 0 the configuration is good (it may have warnings, unless `--strict` is set), 1 `--connect` found a \
                      problem, 78 the configuration is wrong."
    )]
    Check {
        #[command(flatten)]
        file: ConfigFile,
        #[command(flatten)]
        options: check::CheckOptions,
    },
    /// Run a route once, without a server, and print the answer that Argo CD would get.
    Call(call::CallArgs),
    /// Say what is wrong with a running gateway, the most dangerous first.
    Status(status::StatusArgs),
    /// Ask a running gateway what it would answer now, and why. Nothing is stored.
    Explain(explain::ExplainArgs),
    /// List, show or invalidate the answers that a running gateway remembers.
    Answers(answers::AnswersArgs),
    /// List, release or reject the answers that the guard holds in a running gateway.
    Held(held::HeldArgs),
    /// Send a test event to a hook, or show what an event would concern.
    Hook(hook::HookArgs),
    /// Show what the configuration would change: for each ApplicationSet, the parameter sets that are added, removed and changed.
    Diff(diff::DiffArgs),
    /// Test any plugin server against the contract of Argo CD's plugin generator.
    Conformance(conformance::ConformanceArgs),
    /// Play recorded questions and replies against the configuration, without its sources.
    Test(test::TestArgs),
    /// Ask the sources once, and write a case for `test`.
    Record(record::RecordArgs),
    /// Print the JSON Schema of the configuration, for editors and CI.
    Schema,
    /// Read a token from standard input and print its SHA-256 for `auth.tokens[].sha256`.
    #[command(after_help = "Example: printf %s \"$TOKEN\" | appset-gateway hash-token")]
    HashToken,
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// Where the configuration is.
#[derive(Debug, Args)]
struct ConfigFile {
    /// The configuration file.
    #[arg(
        long = "config",
        short = 'c',
        value_name = "FILE",
        env = "APPSET_GATEWAY_CONFIG",
        default_value = "/etc/appset-gateway/gateway.yaml",
        global = true
    )]
    path: PathBuf,
}

/// The output format of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// The format of a report about several cases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum ReportFormat {
    /// For people.
    #[default]
    Text,
    /// A table in Markdown.
    Markdown,
    /// `JUnit` XML, for CI.
    Junit,
    /// For programs.
    Json,
}

/// Runs the command that the arguments name.
#[must_use]
pub fn run() -> ExitCode {
    crash::tell_on_stderr();
    // First of all: the gateway starts these two often.
    match std::env::args_os().nth(1) {
        Some(argument) if argument == launcher::ARGUMENT => return launcher::run(),
        Some(argument) if argument == evaluator::ARGUMENT => return evaluator::run(),
        _ => {}
    }
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Init(arguments) => init::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Check { file, options } => check::run(&file.path, options),
        Command::Call(arguments) => call::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Answers(arguments) => answers::run(&arguments),
        Command::Held(arguments) => held::run(&arguments),
        Command::Hook(arguments) => hook::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Schema => print(&format!("{:#}", config::schema().to_value())),
        Command::HashToken => print_token_hash(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "appset-gateway", &mut script);
            print(String::from_utf8_lossy(&script).trim_end())
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(exit::FAILED)
    })
}

/// A token that nobody can guess.
fn new_token() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| anyhow::anyhow!("there are no random bytes"))?;
    Ok(base16ct::lower::encode_string(&bytes))
}

fn print_token_hash() -> anyhow::Result<ExitCode> {
    let token = std::io::read_to_string(std::io::stdin())?;
    let token = token.strip_suffix('\n').unwrap_or(&token);
    let token = token.strip_suffix('\r').unwrap_or(token);
    anyhow::ensure!(!token.trim().is_empty(), "standard input holds no token");
    anyhow::ensure!(token == token.trim(), "the token begins or ends with white space, which no header can carry");
    print(&hash_token(token))
}

/// Prints a document. Its texts come from outside, and may not steer a terminal.
fn print_json(document: &Value) -> anyhow::Result<ExitCode> {
    print(&visible_json(&format!("{document:#}")))
}

/// Prints a line. It is not an error if the reader has gone, as `head` does.
fn print(text: &str) -> anyhow::Result<ExitCode> {
    use std::io::Write as _;
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

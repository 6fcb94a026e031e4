//! The command line. Without a command, the program is a drop-in for `argocd-cmp-server`.

use std::{
    fmt,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};

use crate::{
    askpass,
    author::{
        check::{self, Report},
        render::{self, RenderError, Rendered, Request},
    },
    config::{ConfigError, PluginSettings, ServeConfig},
    relay::{RelayConfig, status},
    server::{Server, ServerError, sockets_of_environment},
    traces::TracesConfig,
};
use domain::{file::base_dir::BaseDir, units::ByteSize};
use telemetry::{
    crash,
    log::{self, Format, LogConfig, LogLevel, LogStream},
};

/// The most open files that the server asks for.
const MAX_FILES: u64 = 65_536;
/// The folder of `plugin.yaml` (`DefaultPluginConfigFilePath`).
const CONFIG: &str = "/home/argocd/cmp-server/config";
/// The trees that a sidecar keeps: its disk is that of the repo-server's pod.
const SIDECAR_TREES: ByteSize = ByteSize::mib(512);

#[derive(Debug, Parser)]
#[command(
    name = "cmp-gateway",
    version,
    about = "Serves Argo CD's config management plugins",
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    sidecar: Sidecar,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve several plugins, with limits.
    Serve {
        /// The configuration.
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Serve remote plugins, as sockets for Argo CD.
    Relay {
        /// The configuration.
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Print which remotes and replicas a relay reaches, and what failed last.
    Status {
        /// The relay's `admin` address.
        #[arg(default_value = "127.0.0.1:8090", value_name = "ADDRESS")]
        admin: std::net::SocketAddr,
    },
    /// Check a plugin.yaml: what Argo CD will make of it, and what will surprise you.
    Check {
        /// The file, or its folder.
        #[arg(default_value = ".")]
        path: PathBuf,
    },
    /// Print the manifests of a folder as Argo CD would get them, without Argo CD.
    Render(Render),
}

#[derive(Debug, Args)]
struct Render {
    /// The repository.
    repository: PathBuf,
    /// The Application's folder in the repository.
    #[arg(long, default_value = ".", value_name = "PATH")]
    app: String,
    /// The plugin.yaml, or its folder.
    #[arg(long, default_value = ".", value_name = "PATH")]
    plugin: PathBuf,
    /// A variable, as `NAME=value`. May be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Print what another server gives differently: a socket's path such as `./kpt-v1.0.sock`, or an address without TLS. Exits 1 if anything
    /// differs.
    #[arg(long, value_name = "SOCKET|ADDRESS")]
    against: Option<String>,
}

/// The flags of `argocd-cmp-server`.
#[derive(Debug, Args)]
struct Sidecar {
    /// The folder of plugin.yaml.
    #[arg(long, default_value = CONFIG, value_name = "FOLDER")]
    config_dir_path: PathBuf,
    /// The form of log lines: json or text.
    #[arg(long, env = "ARGOCD_CMP_SERVER_LOGFORMAT", default_value = "json")]
    logformat: String,
    /// The lowest severity to log: trace, debug, info, warn or error.
    #[arg(long, env = "ARGOCD_CMP_SERVER_LOGLEVEL", default_value = "info")]
    loglevel: String,
    /// The address of probes and metrics.
    #[arg(long, env = "CMP_GATEWAY_ADMIN", value_name = "ADDRESS")]
    admin: Option<std::net::SocketAddr>,
    /// How many work folders of failed runs are kept.
    #[arg(long, env = "CMP_GATEWAY_KEEP_FAILED", default_value_t = 0, value_name = "COUNT")]
    keep_failed: usize,
    #[command(flatten)]
    traces: Traces,
}

/// The collector of spans.
#[derive(Debug, Args)]
struct Traces {
    /// The OpenTelemetry collector to send spans to: OTLP over gRPC.
    #[arg(long = "otlp-address", env = "ARGOCD_CMP_SERVER_OTLP_ADDRESS", value_name = "HOST:PORT")]
    address: Option<String>,
    /// Whether the collector is reached without TLS. It must be.
    #[arg(long = "otlp-insecure", env = "ARGOCD_CMP_SERVER_OTLP_INSECURE", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true")]
    insecure: String,
    /// Metadata for the collector, as `NAME=VALUE`, separated by commas.
    #[arg(
        long = "otlp-headers",
        env = "ARGOCD_CMP_SERVER_OTLP_HEADERS",
        hide_env_values = true,
        value_name = "NAME=VALUE"
    )]
    headers: Vec<String>,
    /// Attributes of all spans, as `NAME:VALUE`, separated by commas.
    #[arg(long = "otlp-attrs", env = "ARGOCD_CMP_SERVER_OTLP_ATTRS", value_name = "NAME:VALUE")]
    attrs: Vec<String>,
    /// The share of calls to trace, from 0 to 1, when the caller has not decided it.
    #[arg(
        long = "otlp-sample-ratio",
        env = "ARGOCD_CMP_SERVER_OTLP_SAMPLE_RATIO",
        default_value_t = 1.0,
        value_name = "SHARE"
    )]
    sample_ratio: f64,
}

/// Runs the program, and returns its exit status: 0 if all is good, 1 if not, 2 for a wrong command line.
#[must_use]
pub fn run() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|argument| argument == launcher::ARGUMENT) {
        return launcher::run();
    }
    let question = std::env::args().nth(1);
    if askpass::is_asked(question.as_deref()) {
        return askpass::run(&question.unwrap_or_default());
    }
    let Cli { command, sidecar } = Cli::parse();
    match command {
        None => serve(|| Ok(sidecar.config())),
        Some(Command::Serve { config }) => serve(|| ServeConfig::read(&config)),
        Some(Command::Relay { config }) => relay(&config),
        Some(Command::Status { admin }) => match status::ask(admin) {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(error) => fail(&error),
        },
        Some(Command::Check { path }) => check(&path),
        Some(Command::Render(render)) => render.run(),
    }
}

impl Traces {
    fn config(&self) -> Option<TracesConfig> {
        let address = self.address.clone().filter(|address| !address.is_empty())?;
        if !matches!(self.insecure.as_str(), "true" | "1" | "t" | "T" | "TRUE" | "True" | "") {
            eprintln!(
                "warning: no traces are sent, since the collector would have to be reached by TLS (--otlp-insecure)"
            );
            return None;
        }
        Some(TracesConfig { sample: self.sample_ratio, ..TracesConfig::of_flags(address, &self.headers, &self.attrs) })
    }
}

impl Sidecar {
    fn config(&self) -> ServeConfig {
        let level = match self.loglevel.to_ascii_lowercase().as_str() {
            "trace" | "debug" => LogLevel::Debug,
            "warn" | "warning" => LogLevel::Warn,
            "error" | "fatal" | "panic" => LogLevel::Error,
            _ => LogLevel::Info,
        };
        let format = if self.logformat.eq_ignore_ascii_case("text") { Format::Text } else { Format::Json };
        ServeConfig {
            sockets: sockets_of_environment(),
            admin: self.admin,
            listen: None,
            base: BaseDir::default(),
            work: std::env::var_os("ARGOCD_CMP_WORKDIR").filter(|path| !path.is_empty()).map(PathBuf::from),
            log: LogConfig { format, level },
            traces: self.traces.config(),
            trees: SIDECAR_TREES,
            concurrency: None,
            plugins: vec![PluginSettings {
                keep_failed: self.keep_failed,
                ..PluginSettings::as_sidecar(self.config_dir_path.clone())
            }],
        }
    }
}

fn serve(read: impl FnOnce() -> Result<ServeConfig, ConfigError>) -> ExitCode {
    run_server(read, |config| config.log, |config| async { Server::new(config)?.run().await })
}

fn relay(file: &Path) -> ExitCode {
    run_server(|| RelayConfig::read(file), |config| config.log, |config| crate::relay::serve(file, config))
}

/// Reads a configuration, and runs a server with it to its end.
fn run_server<C, E: fmt::Display, F: Future<Output = Result<(), ServerError>>>(
    read: impl FnOnce() -> Result<C, E>,
    log: impl FnOnce(&C) -> LogConfig,
    server: impl FnOnce(C) -> F,
) -> ExitCode {
    // Before the first secret is read.
    let no_core_dump = crash::leave_no_memory();
    let config = match read() {
        Ok(config) => config,
        Err(error) => return fail(&error),
    };
    let _flush = log::init(log(&config), LogStream::Stdout);
    if let Err(error) = no_core_dump {
        tracing::warn!(%error, "a crash may write this process's memory, with its secrets, to a disk");
    }
    // As Go's programs do. At the limit, no connection is accepted, and Argo CD waits for ever.
    if let Err(error) = launcher::raise_open_files(MAX_FILES) {
        tracing::warn!(%error, "the number of open files stays limited, and with it that of connections");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    let ended = runtime.block_on(server(config));
    // Extractions that nobody waits for end with the process.
    runtime.shutdown_background();
    ended.map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS)
}

/// Prints what is known of a plugin. Warnings do not fail.
fn check(path: &Path) -> ExitCode {
    match check::check(path) {
        Ok(Report { lines, warnings }) => {
            for line in lines {
                println!("{line}");
            }
            for warning in warnings {
                println!("warning: {warning}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

impl Render {
    fn run(self) -> ExitCode {
        let Self { repository, app, plugin, env, against } = self;
        let work = std::env::temp_dir().join(format!("cmp-gateway-render-{}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&work).map_err(RenderError::Work);
        let _flush = log::init(LogConfig { format: Format::Text, level: LogLevel::Error }, LogStream::Stderr);
        let request = Request { plugin, repository, app, env, against };
        let runtime = made.and_then(|()| tokio::runtime::Runtime::new().map_err(RenderError::Work));
        let rendered = runtime.and_then(|runtime| runtime.block_on(render::render(request, &work)));
        let _ = std::fs::remove_dir_all(&work);
        match rendered {
            Ok(Rendered { manifests, notes, differences }) => {
                for note in notes {
                    eprintln!("{note}");
                }
                for text in manifests {
                    print!("{text}");
                }
                let differences = differences.unwrap_or_default();
                for line in &differences {
                    println!("{line}");
                }
                if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
            }
            Err(error) => fail(&error),
        }
    }
}

fn fail(error: &dyn fmt::Display) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

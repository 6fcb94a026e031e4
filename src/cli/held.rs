//! `appset-gateway held`: what the guard holds in a running gateway, and what an operator says to it. Speaks to the
//! admin listener.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{
    ConfigFile, Output, exit,
    gateway::{AdminArgs, Gateway, HELP, asked_by, text},
    print,
};

/// What to do.
#[derive(Debug, Args)]
#[command(after_help = format!("{HELP}

Examples:
  appset-gateway held list
  kubectl exec deploy/appset-gateway -- appset-gateway held release 3f1c0a…

Exit codes: 0 done, 1 not done."))]
pub(crate) struct HeldArgs {
    #[command(subcommand)]
    command: HeldCommand,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    file: ConfigFile,
}

#[derive(Debug, Subcommand)]
enum HeldCommand {
    /// List what is held, the oldest first.
    List {
        /// How to print.
        #[arg(long, short, value_enum, default_value_t)]
        output: Output,
    },
    /// Believe a held answer as soon as the source says it again, which it is asked to do at once.
    Release {
        /// As `held list` prints it.
        id: String,
    },
    /// Never believe a held answer, however often the source says it; the last good one stays.
    Reject {
        /// As `held list` prints it.
        id: String,
    },
}

/// Does it and prints what came of it.
pub(crate) fn run(arguments: &HeldArgs) -> anyhow::Result<ExitCode> {
    let gateway = Gateway::find(&arguments.admin, &arguments.file.path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &arguments.command {
        HeldCommand::List { output } => {
            let told = runtime.block_on(gateway.get(&["held"], &[]))?;
            if *output == Output::Json {
                return print(&format!("{told:#}"));
            }
            let held = told["held"].as_array().map(Vec::as_slice).unwrap_or_default();
            if held.is_empty() {
                return print("nothing is held");
            }
            held.iter().try_for_each(|held| print(&shown(held)).map(drop))?;
            print("Release or reject one by its id, or a beginning of it: `appset-gateway held release ID`.")
        }
        HeldCommand::Release { id } => runtime.block_on(decide(&gateway, id, "release")),
        HeldCommand::Reject { id } => runtime.block_on(decide(&gateway, id, "reject")),
    }
}

fn shown(held: &Value) -> String {
    let decision = held["decision"].as_str().map(|decision| format!(", {decision}")).unwrap_or_default();
    format!(
        "{}  {} {}, since {}{}{decision}\n    {}",
        text(held, "id"),
        text(held, "route"),
        held["input"],
        text(held, "since"),
        asked_by(held),
        held["message"].as_str().unwrap_or_default()
    )
}

async fn decide(gateway: &Gateway, id: &str, decision: &str) -> anyhow::Result<ExitCode> {
    let told = gateway.post(&["held", id, decision], None).await?;
    print(told["message"].as_str().unwrap_or_default())?;
    let is_done = decision == "reject" || told["isHeld"] == Value::Bool(false);
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

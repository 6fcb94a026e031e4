//! `appset-gateway held`: lists, releases and rejects the answers that the guard holds in a running gateway, through its admin listener.

use std::process::ExitCode;

use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};
use serde_json::{Value, json};

use super::{
    Output, exit,
    gateway::{Gateway, GatewayArgs, HELP, requested_by, text},
    parameters::parse_id,
    print, print_json,
};

use domain::visible::visible;

/// The arguments of `held`.
#[derive(Debug, Args)]
#[command(after_help = format!("{HELP}

Examples:
  appset-gateway held list
  kubectl exec deploy/appset-gateway -- appset-gateway held release 3f1c0a… --reason 'the team has closed these'

Exit codes: 0 done, 1 not done, 2 the command line is wrong."))]
pub(crate) struct HeldArgs {
    #[command(subcommand)]
    command: HeldCommand,
    #[command(flatten)]
    gateway: GatewayArgs,
}

#[derive(Debug, Subcommand)]
enum HeldCommand {
    /// List the held answers, the oldest first.
    List {
        /// The output format.
        #[arg(long, short, value_enum, default_value_t)]
        output: Output,
    },
    /// Accept a held answer as soon as the backend gives it again. The backend runs at once.
    Release(Decided),
    /// Never accept a held answer, however often the backend gives it. The last good answer stays.
    Reject(Decided),
}

#[derive(Debug, Args)]
struct Decided {
    /// The id that `held list` prints, or the beginning of it: at least 6 digits.
    #[arg(value_parser = parse_id)]
    id: String,
    /// The fingerprint that `held list` prints. The command fails if another answer is held by now.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    fingerprint: Option<String>,
    /// Why, for the gateway's log: one line of at most 500 characters.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Runs the command and prints its result.
pub(crate) fn run(arguments: &HeldArgs) -> anyhow::Result<ExitCode> {
    let gateway = arguments.gateway.find()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &arguments.command {
        HeldCommand::List { output } => {
            let reply = runtime.block_on(gateway.get(&["held"], &[]))?;
            if *output == Output::Json {
                return print_json(&reply);
            }
            let held = reply["held"].as_array().map(Vec::as_slice).unwrap_or_default();
            if held.is_empty() {
                return print("nothing is held");
            }
            held.iter().try_for_each(|held| print(&shown(held)).map(drop))?;
            print(
                "Release or reject one by its id, or the first 6 or more digits of it: `appset-gateway held release ID`, with the options of this command.",
            )
        }
        HeldCommand::Release(decided) => runtime.block_on(decide(&gateway, decided, "release")),
        HeldCommand::Reject(decided) => runtime.block_on(decide(&gateway, decided, "reject")),
    }
}

fn shown(held: &Value) -> String {
    let decision = held["decision"].as_str().map(|decision| format!(", {}", visible(decision))).unwrap_or_default();
    let accepted = held["acceptedAt"].as_str().map(visible);
    let accepted = accepted.map(|at| format!("\n    accepted at {at} unless you reject it or the source changes"));
    format!(
        "{}  {} {}, since {}{}{decision}, fingerprint {}\n    {}{}",
        text(held, "id"),
        text(held, "route"),
        visible(&held["input"].to_string()),
        text(held, "since"),
        requested_by(held),
        text(held, "fingerprint"),
        text(held, "message"),
        accepted.unwrap_or_default()
    )
}

async fn decide(gateway: &Gateway, decided: &Decided, decision: &str) -> anyhow::Result<ExitCode> {
    let query: Vec<_> = decided.fingerprint.iter().map(|fingerprint| ("fingerprint", &**fingerprint)).collect();
    let body = decided.reason.as_ref().map(|reason| json!({ "reason": reason }));
    let reply = gateway.post(&["held", &decided.id, decision], &query, body.as_ref()).await?;
    print(&text(&reply, "message"))?;
    let is_done = decision == "reject" || reply["isHeld"] == Value::Bool(false);
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

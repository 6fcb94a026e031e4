//! `appset-gateway held`: what the guard holds in a running gateway, and what an operator says to it. Speaks to the
//! admin listener.

use std::{net::IpAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use http::{HeaderMap, HeaderValue, Method, header};
use reqwest::Url;
use serde_json::Value;
use tokio::time::Instant;

use super::{ConfigFile, Output, exit, print};
use crate::{
    auth::Role,
    clock::SystemClock,
    config::Loaded,
    outbound::{Call, Outbound, Terms},
    secret::{Secret, SecretRef},
};

/// How long the gateway may take: a release asks the backend.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The largest answer that is read, in bytes.
const LARGEST: usize = 64 * 1024 * 1024;

/// What to do.
#[derive(Debug, Args)]
#[command(after_help = "\
The gateway is found by `server.admin` of the configuration, and the token is the first with `role: admin` there whose \
value the configuration names (`file` or `env`); --admin and --token-file say otherwise, for a gateway elsewhere.

Examples:
  appset-gateway held list
  kubectl exec deploy/appset-gateway -- appset-gateway held release 3f1c0a…

Exit codes: 0 done, 1 not done.")]
pub struct HeldArgs {
    #[command(subcommand)]
    command: HeldCommand,
    /// The admin listener's URL or address, such as `http://localhost:4356`.
    #[arg(long, global = true, value_name = "URL", env = "APPSET_GATEWAY_ADMIN", value_parser = parse_admin)]
    admin: Option<Url>,
    /// A file with a token that has the role `admin`.
    #[arg(long, global = true, value_name = "FILE", env = "APPSET_GATEWAY_ADMIN_TOKEN_FILE")]
    token_file: Option<PathBuf>,
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

fn parse_admin(text: &str) -> Result<Url, String> {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&url).map_err(|error| error.to_string())?;
    if matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err("it begins with http:// or https://".to_owned())
    }
}

/// Does it and prints what came of it.
pub fn run(arguments: &HeldArgs) -> anyhow::Result<ExitCode> {
    let gateway = Gateway::find(arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &arguments.command {
        HeldCommand::List { output } => {
            let told = runtime.block_on(gateway.call(Method::GET, &["held"]))?;
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
        HeldCommand::Release { id } => runtime.block_on(gateway.decide(id, "release")),
        HeldCommand::Reject { id } => runtime.block_on(gateway.decide(id, "reject")),
    }
}

fn shown(held: &Value) -> String {
    let text = |name: &str| held[name].as_str().unwrap_or_default().to_owned();
    let of = held["applicationSet"].as_str().map(|name| format!(" for {name}")).unwrap_or_default();
    let decision = held["decision"].as_str().map(|decision| format!(", {decision}")).unwrap_or_default();
    format!(
        "{}  {}{of} {}, since {}{decision}\n    {}",
        text("id"),
        text("route"),
        held["input"],
        text("since"),
        text("message")
    )
}

/// A gateway that runs.
struct Gateway {
    admin: Url,
    token: Secret,
}

impl Gateway {
    fn find(arguments: &HeldArgs) -> anyhow::Result<Self> {
        let from_file = arguments.token_file.clone().map(SecretRef::File);
        let (admin, token) = match (&arguments.admin, from_file) {
            (Some(admin), Some(token)) => (admin.clone(), token.read(&crate::base_dir::BaseDir::default())),
            (admin, token) => {
                let path = &arguments.file.path;
                let loaded = Loaded::read(path).map_err(|report| anyhow::anyhow!("{report}"))?;
                let config = loaded.config.as_ref().with_context(|| format!("{} cannot be used", path.display()))?;
                let mut address = config.server.admin;
                if address.ip().is_unspecified() {
                    address.set_ip(IpAddr::from([127, 0, 0, 1]));
                }
                let own = Url::parse(&format!("http://{address}"));
                let mut tokens = config.auth.tokens.iter().filter(|token| token.role == Role::Admin);
                let own_token = tokens.find_map(|token| match (&token.file, &token.env) {
                    (Some(file), _) => Some(SecretRef::File(file.clone())),
                    (None, Some(name)) => Some(SecretRef::Env(name.clone())),
                    (None, None) => None,
                });
                let is_given = token.is_some();
                let Some(token) = token.or(own_token) else {
                    bail!(
                        "{} has no token with `role: admin` and a `file` or `env`; name one there, or give --token-file",
                        path.display()
                    )
                };
                let base = if is_given { &crate::base_dir::BaseDir::default() } else { &loaded.base };
                (admin.clone().map_or(own, Ok)?, token.read(base))
            }
        };
        Ok(Self { admin, token: token.map_err(anyhow::Error::msg)? })
    }

    async fn call(&self, method: Method, path: &[&str]) -> anyhow::Result<Value> {
        let mut url = self.admin.clone();
        let mut segments =
            url.path_segments_mut().map_err(|()| anyhow::anyhow!("{} is no base for a path", self.admin))?;
        segments.pop_if_empty().push("admin").extend(path);
        drop(segments);
        let mut authorization = HeaderValue::try_from(format!("Bearer {}", self.token.expose()))
            .context("the token holds characters that no header can carry")?;
        authorization.set_sensitive(true);
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, authorization)]);
        let deadline = Instant::now() + TIMEOUT;
        let call = Call { method, headers, may_repeat: false, ..Call::get(url, LARGEST, deadline) };
        let line = Outbound::new(Arc::new(SystemClock)).line(Terms::default()).map_err(anyhow::Error::msg)?;
        let reply = line.fetch(call).await?;
        let told: Value = serde_json::from_slice(&reply.body)
            .with_context(|| format!("{} answered {}, and no JSON", self.admin, reply.status))?;
        if !reply.status.is_success() {
            bail!("{}", told["message"].as_str().unwrap_or("it failed and did not say why"));
        }
        Ok(told)
    }

    async fn decide(&self, id: &str, decision: &str) -> anyhow::Result<ExitCode> {
        let told = self.call(Method::POST, &["held", id, decision]).await?;
        print(told["message"].as_str().unwrap_or_default())?;
        let is_done = decision == "reject" || told["isHeld"] == Value::Bool(false);
        Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
    }
}

//! `appset-gateway hook`: sends a test event to a hook of a running gateway, or shows what an event would concern.

use std::{fmt::Write as _, net::IpAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use reqwest::Url;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Output, exit,
    gateway::{GatewayArgs, HELP, requested_by, text},
    parameters::parse_header,
    print, print_json,
};
use crate::{
    app::{App, Setup},
    config::Loaded,
};
use domain::{
    clock::{Clock as _, SystemClock},
    file::base_dir::BaseDir,
    secret::{Secret, SecretRef},
    visible::visible,
};
use hooks::SentProof;
use launcher::own_program;
use outbound::{Call, ClientOptions, Outbound, Tls};

/// How long the gateway may take to answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// The arguments of `hook`.
#[derive(Debug, Args)]
#[command(after_help = format!("`explain` asks the admin listener. {HELP}

Examples:
  appset-gateway hook explain registry --event push.json
  appset-gateway hook send github --event workflow-run.json --header 'X-GitHub-Delivery: test-1'
  appset-gateway hook send github --event workflow-run.json --url https://hooks.example.com

Exit codes: 0 the event was taken or explained, 1 it was not, 78 the configuration is wrong."))]
pub(crate) struct HookArgs {
    #[command(subcommand)]
    command: HookCommand,
    #[command(flatten)]
    gateway: GatewayArgs,
}

#[derive(Debug, Subcommand)]
enum HookCommand {
    /// Send an event to a hook, signed as its sender would sign it.
    Send {
        #[command(flatten)]
        event: EventArgs,
        /// Where the hooks are, if not at `server.hooks` of the configuration on this machine.
        #[arg(long, value_name = "URL")]
        url: Option<Url>,
        /// A PEM file with the certificate authority of the gateway's certificate.
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
        /// A file with the sender's token, for hooks with `caller`.
        #[arg(long, value_name = "FILE")]
        sender_token_file: Option<PathBuf>,
    },
    /// Show which questions an event would concern. Nothing is rechecked.
    Explain {
        #[command(flatten)]
        event: EventArgs,
        /// The output format.
        #[arg(long, short, value_enum, default_value_t)]
        output: Output,
    },
}

#[derive(Debug, Args)]
struct EventArgs {
    /// The hook.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// The file with the event's body, or `-` for standard input.
    #[arg(long, value_name = "FILE")]
    event: PathBuf,
    /// A header of the event, such as `X-GitHub-Event: push`. May be used several times.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl EventArgs {
    fn body(&self) -> anyhow::Result<Bytes> {
        if self.event.as_os_str() == "-" {
            let mut body = Vec::new();
            std::io::Read::read_to_end(&mut std::io::stdin(), &mut body)?;
            return Ok(body.into());
        }
        Ok(std::fs::read(&self.event).with_context(|| format!("cannot read {}", self.event.display()))?.into())
    }

    fn headers(&self) -> HeaderMap {
        let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut headers = HeaderMap::from_iter([json]);
        headers.extend(self.headers.iter().cloned());
        headers
    }
}

/// Runs the command and prints its result.
pub(crate) fn run(arguments: &HookArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &arguments.command {
        HookCommand::Explain { event, output } => {
            let gateway = arguments.gateway.find()?;
            let path = ["hooks", &event.name, "concerns"];
            let reply = runtime.block_on(gateway.post_bytes(&path, event.headers(), event.body()?))?;
            explain(&reply, *output)
        }
        HookCommand::Send { event, url, ca, sender_token_file } => {
            let built = Loaded::read(&arguments.gateway.file.path)
                .and_then(|loaded| App::build(loaded, Arc::new(SystemClock), own_program()));
            let app = match built {
                Ok((app, _)) => app,
                Err(report) => {
                    eprint!("{report}");
                    return Ok(ExitCode::from(exit::CONFIG));
                }
            };
            let token = sender_token_file.clone().map(|file| SecretRef::File(file).read(&BaseDir::default()));
            let token = token.transpose().map_err(anyhow::Error::msg)?;
            let body = event.body()?;
            let delivery = Delivery::of(&app.setup(), event, body.clone(), url.as_ref(), token.as_ref())?;
            let Answered { status, mut said } = runtime.block_on(delivery.send(ca.clone()))?;
            // The gateway at another URL may have another admin listener than the one of this configuration.
            if said == "taken" && (url.is_none() || arguments.gateway.names_admin()) {
                match runtime.block_on(concerned(&arguments.gateway, event, body)) {
                    Ok(1) => said.push_str("; concerns 1 question"),
                    Ok(count) => write!(said, "; concerns {count} questions")?,
                    Err(error) => eprintln!("which questions it concerns is not known: {error:#}"),
                }
            }
            print(&format!("{status}: {}", visible(&said)))?;
            Ok(if status.is_success() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
        }
    }
}

/// A delivery, ready to be sent.
struct Delivery {
    url: Url,
    headers: HeaderMap,
    body: Bytes,
}

/// The gateway's reply to a delivery.
struct Answered {
    status: StatusCode,
    said: String,
}

/// How many known questions the event with this `body` concerns.
async fn concerned(gateway: &GatewayArgs, event: &EventArgs, body: Bytes) -> anyhow::Result<u64> {
    let path = ["hooks", &event.name, "concerns"];
    let reply = gateway.find()?.post_bytes(&path, event.headers(), body).await?;
    reply["count"].as_u64().context("the gateway is of another version")
}

impl Delivery {
    fn of(
        setup: &Setup,
        event: &EventArgs,
        body: Bytes,
        url: Option<&Url>,
        token: Option<&Secret>,
    ) -> anyhow::Result<Self> {
        let names = setup.hooks.iter().map(|hook| &*hook.name).collect::<Vec<_>>().join(", ");
        let hook = setup.hooks.by_name(&event.name);
        let hook = hook.with_context(|| format!("there is no hook `{}`; there are: {names}", event.name))?;
        let mut headers = event.headers();
        let proof = match token {
            Some(token) => {
                let header = ("authorization".to_owned(), format!("Bearer {}", token.expose()));
                SentProof { headers: vec![header], path_token: None }
            }
            None => hook.sign(&body, SystemClock.now()).map_err(|why| anyhow!("the hook `{}`: {why}", hook.name))?,
        };
        for (name, value) in proof.headers {
            let mut value =
                HeaderValue::try_from(value).context("the secret has characters that no header can carry")?;
            value.set_sensitive(true);
            headers.insert(HeaderName::try_from(name)?, value);
        }
        let mut url = url.cloned().map_or_else(|| own_url(setup), Ok)?;
        let mut segments = url.path_segments_mut().map_err(|()| anyhow!("the URL cannot have a path"))?;
        segments.pop_if_empty().extend(["hooks", &event.name]).extend(proof.path_token);
        drop(segments);
        Ok(Self { url, headers, body })
    }

    async fn send(self, ca: Option<PathBuf>) -> anyhow::Result<Answered> {
        let options = ClientOptions { tls: Tls { ca, ..Tls::default() }, ..ClientOptions::default() };
        let client = Outbound::new(Arc::new(SystemClock)).client(options).map_err(anyhow::Error::msg)?;
        let call = Call {
            method: Method::POST,
            headers: self.headers,
            body: Some(self.body),
            may_repeat: false,
            ..Call::get(self.url, MAX_ANSWER_BYTES, Instant::now() + TIMEOUT)
        };
        let reply = client.fetch(call).await?;
        let answer: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let said = ["result", "message"].iter().find_map(|key| answer[*key].as_str());
        Ok(Answered { status: reply.status, said: said.unwrap_or("no explanation").to_owned() })
    }
}

/// Where the hooks of this configuration are on this machine.
fn own_url(setup: &Setup) -> anyhow::Result<Url> {
    let mut address = setup.server.hooks.context("the configuration has no `server.hooks`; give --url")?;
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::from([127, 0, 0, 1]));
    }
    let scheme = if setup.server.tls.is_some() { "https" } else { "http" };
    Ok(Url::parse(&format!("{scheme}://{address}"))?)
}

fn explain(reply: &Value, output: Output) -> anyhow::Result<ExitCode> {
    if output == Output::Json {
        return print_json(reply);
    }
    let list = |name: &str| reply[name].as_array().cloned().unwrap_or_default();
    for subject in list("subjects") {
        print(&format!("about      {}", visible(&subject.to_string())))?;
    }
    for question in list("questions") {
        let input = visible(&question["input"].to_string());
        print(&format!("concerns   {} {input}{}", text(&question, "route"), requested_by(&question)))?;
    }
    let (all, listed) = (reply["count"].as_u64().unwrap_or_default(), list("questions").len());
    match all.saturating_sub(listed as u64) {
        0 if all == 0 => print("it concerns no known question"),
        0 => Ok(ExitCode::SUCCESS),
        more => print(&format!("… and {more} more questions")),
    }
}

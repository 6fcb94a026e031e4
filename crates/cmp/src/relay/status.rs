//! `/status` at the admin address of a relay, and `cmp-gateway status`, which asks there and prints it.

use std::{
    fmt::Write as _,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, SystemTime},
};

use serde_json::Value;

use super::{link::Kind, remote::Remote};

/// How long the relay may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The status of the relay at `address`, as lines.
///
/// # Errors
/// When nothing listens there, or it is not a relay.
pub(crate) fn ask(address: SocketAddr) -> io::Result<String> {
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
    let asking = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET /status HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body =
            answer.split_once("\r\n\r\n").filter(|(head, _)| head.starts_with("HTTP/1.1 200")).map(|(_, body)| body);
        let found = body.and_then(|body| serde_json::from_str(body).ok());
        found.ok_or_else(|| io::Error::other("it is not the admin address of `cmp-gateway relay`"))
    };
    asking().map(|found| shown(&found)).map_err(failed)
}

fn shown(found: &Value) -> String {
    let mut text = String::new();
    for remote in found["remotes"].as_array().into_iter().flatten() {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}: {}, discovery {}; sent {} bytes, spared {}",
            word(&remote["plugin"]),
            word(&remote["kind"]),
            word(&remote["discover"]),
            remote["sentBytes"],
            remote["sparedBytes"]
        );
        for key in ["socketProblem", "problem"] {
            if let Some(why) = remote[key].as_str() {
                let _ = writeln!(text, "  problem: {why}");
            }
        }
        for replica in remote["replicas"].as_array().into_iter().flatten() {
            let state = if replica["isUp"] == true { "up" } else { "down" };
            let _ = write!(text, "  {} {state}, {} calls", word(&replica["address"]), replica["calls"]);
            if let Some(why) = replica["lastFailure"]["why"].as_str() {
                let _ = write!(text, "; {} s ago: {why}", replica["lastFailure"]["secondsAgo"]);
            }
            text.push('\n');
        }
    }
    text
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Remote {
    /// What is known, for people.
    pub(super) fn status(&self) -> Value {
        let seconds = |at: SystemTime| at.elapsed().map_or(0, |elapsed| elapsed.as_secs());
        let replicas: Vec<_> = self
            .replicas
            .all()
            .iter()
            .map(|replica| {
                let state = replica.state();
                serde_json::json!({
                    "address": replica.address.to_string(),
                    "host": replica.host,
                    "isUp": state.trouble.is_none() && replica.link().is_some(),
                    "calls": replica.calls(),
                    "lastFailure": state.last_failure.map(|(at, why)| serde_json::json!({ "secondsAgo": seconds(at), "why": why })),
                })
            })
            .collect();
        let known = self.memory.known.load();
        let kind = match known.as_deref() {
            None => "unknown",
            Some(Kind::Ours(_)) => "cmp-gateway",
            Some(Kind::Plain(_)) => "plain",
        };
        serde_json::json!({
            "plugin": self.name,
            "kind": kind,
            "discover": self.rules().map_or("unknown".to_owned(), |rules| rules.to_string()),
            "problem": self.replicas.problem(),
            "sentBytes": self.own.sent.get(),
            "sparedBytes": self.own.spared.get(),
            "replicas": replicas,
        })
    }
}

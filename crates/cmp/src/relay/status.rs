//! `cmp-gateway status`: asks the admin address of a relay, and prints what it knows.

use std::{
    fmt::Write as _,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;

/// How long the relay may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the relay at `address` says, as lines.
///
/// # Errors
/// When nobody answers there, or no relay.
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

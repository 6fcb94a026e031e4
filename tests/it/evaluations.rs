//! Expressions and templates that take too much time or memory: evaluator processes run them, and limits end them.

mod battery;
mod evaluators;
mod hostile;

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{TOKEN, TestApp, binary::Gateway, wire::argo_request};

/// A gateway in a process of its own with these routes, each as JSON, and a `deadline` such as `2s`.
fn serve(folder: &Path, deadline: &str, routes: &[Value]) -> Gateway {
    let file = folder.join("gateway.yaml");
    let routes = Value::Array(routes.to_vec());
    let server = format!("server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", deadline: {deadline} }}\n");
    std::fs::write(&file, format!("{server}{}routes: {routes}\n", TestApp::auth())).unwrap();
    Gateway::serve(&file)
}

/// The request for the route `name`.
fn request(name: &str, parameters: &Value) -> Vec<u8> {
    let body = json!({"applicationSetName": "set", "input": {"parameters": parameters}});
    argo_request(&format!("/{name}/api/v1/getparams.execute"), TOKEN, body.to_string().as_bytes())
}

/// The ids of the evaluators that the process `gateway` started.
fn evaluators(gateway: u32) -> Vec<u32> {
    let (found, _) = crate::support::processes::held(gateway);
    let is_evaluator = |process: &u32| {
        let arguments = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).nth(1) == Some(b"evaluate".as_slice())
    };
    found.into_iter().map(|(process, _)| process).filter(is_evaluator).collect()
}

/// The resident memory of a process, in bytes.
fn resident(process: u32) -> u64 {
    status(process, "VmRSS:")
}

/// The resident memory without the program's pages, which the gateway and its evaluators share.
fn resident_of_its_own(process: u32) -> u64 {
    status(process, "RssAnon:") + status(process, "RssShmem:")
}

/// A size in `/proc/<process>/status`, in bytes; 0 when the process is gone.
fn status(process: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let arguments = status.lines().find_map(|arguments| arguments.strip_prefix(name));
    let kib: Option<u64> = arguments.and_then(|arguments| arguments.trim().strip_suffix(" kB")?.parse().ok());
    kib.unwrap_or(0) * 1024
}

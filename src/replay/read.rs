//! Reads files of cases, and reports all their problems at once.

use std::path::{Path as FilePath, PathBuf};

use anyhow::Context as _;

use super::{
    case::{Case, CaseFile, Expected, ReplyConfig},
    replies::header,
    secrets,
};
use crate::{
    config::{Decoded, Report},
    http::server::error::Code,
};
use domain::{
    problem::{Path, Problems},
    spelling::advice,
};

/// Reads and checks a file of cases.
///
/// # Errors
/// A report with all its problems, also secrets in the sources' replies.
pub(crate) fn read(file: &FilePath) -> Result<Decoded<CaseFile>, Box<Report>> {
    Ok(checked(Decoded::<CaseFile>::read(file)?)?)
}

pub(super) fn checked(decoded: Decoded<CaseFile>) -> Result<Decoded<CaseFile>, Report> {
    let mut problems = Problems::default();
    let path = Path::root().key("cases");
    if decoded.value.cases.is_empty() {
        problems.error(&path, "there are no cases");
    }
    for (index, case) in decoded.value.cases.iter().enumerate() {
        check(case, &path.index(index), &mut problems);
    }
    decoded.finish(problems)
}

/// The place of the case with this index.
pub(crate) fn case_path(index: usize) -> Path {
    Path::root().key("cases").index(index)
}

fn check(case: &Case, path: &Path, problems: &mut Problems) {
    secrets::check_text(&case.name, &path.key("name"), problems);
    secrets::check_text(&case.application_set, &path.key("applicationSet"), problems);
    let namespace = case.application_set_namespace.as_deref().unwrap_or_default();
    secrets::check_text(namespace, &path.key("applicationSetNamespace"), problems);
    secrets::check_values(&case.parameters, &path.key("parameters"), problems);
    let steps = case.then.iter().enumerate().map(|(n, step)| (path.key("then").index(n), &step.replies, &step.expect));
    for (path, replies, expected) in std::iter::once((path.clone(), &case.replies, &case.expect)).chain(steps) {
        for (index, reply) in replies.iter().enumerate() {
            check_reply(reply, &path.key("replies").index(index), problems);
        }
        if let Some(expected) = expected {
            check_expected(expected, &path.key("expect"), problems);
        }
    }
}

fn check_expected(expected: &Expected, path: &Path, problems: &mut Problems) {
    let Expected { parameters, error, message, cache, because } = expected;
    for (index, set) in parameters.iter().flatten().enumerate() {
        secrets::check_values(set, &path.key("parameters").index(index), problems);
    }
    check_code("error", error.as_deref(), path, problems);
    check_code("because", because.as_deref(), path, problems);
    if let Some(message) = message {
        secrets::check_text(message, &path.key("message"), problems);
    }
    if parameters.is_some() && (error.is_some() || message.is_some()) {
        problems.error(path, "an answer has either `parameters` or an `error`");
    } else if message.is_some() && error.is_none() {
        let help =
            "without `error`, any list would pass: write the code of the error too, such as `error: backend_failed`";
        problems.error_with_help(&path.key("message"), "only an `error` has a message", help);
    } else if parameters.is_none() && error.is_none() && cache.is_none() && because.is_none() {
        let help = "write `parameters`, `error`, `cache` or `because`. Without `expect`, `test --update` writes the answer there";
        problems.error_with_help(path, "nothing is expected, so any list would pass", help);
    }
    for (key, is_set) in [("cache", cache.is_some()), ("because", because.is_some())] {
        if is_set && error.is_some() {
            problems.error(&path.key(key), "an error does not come from the cache");
        }
    }
}

/// Notes a problem if `code` is not the code of an error.
fn check_code(key: &str, code: Option<&str>, path: &Path, problems: &mut Problems) {
    let known: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    if let Some(code) = code.filter(|code| !known.contains(code)) {
        let message = format!("`{code}` is not the code of an error");
        problems.error_with_help(&path.key(key), message, advice(code, &known));
    }
}

fn check_reply(reply: &ReplyConfig, path: &Path, problems: &mut Problems) {
    let has_http = reply.status.is_some() || reply.body.is_some() || !reply.headers.is_empty();
    match (&reply.request, &reply.script) {
        (Some(request), None) => {
            if !request.split_once(' ').is_some_and(|(method, url)| !method.is_empty() && !url.is_empty()) {
                let help =
                    "for example `GET https://inventory.example.com/v1/apps`, or `* https://inventory.example.com/*`";
                problems.error_with_help(&path.key("request"), "a request has a method and a URL", help);
            }
            if reply.items.is_some() {
                problems.error(&path.key("items"), "only a `script` gives items; a request has a `body`");
            }
            if reply.fails.as_deref().is_some_and(|fails| !["connect", "timeout", "broken"].contains(&fails)) {
                problems.error(&path.key("fails"), "a request fails with `connect`, `timeout` or `broken`");
            }
            if reply.status.is_some_and(|status| !(200..600).contains(&status)) {
                problems.error(&path.key("status"), "a status is a number from 200 to 599");
            }
            if reply.kind.is_some() {
                problems.error(&path.key("kind"), "only a `script` that fails has a kind of failure");
            }
            for (name, value) in &reply.headers {
                problems.note(&path.key("headers").key(name), header(name, value));
            }
            if has_http && reply.fails.is_some() {
                problems.error(&path.key("fails"), "a request that fails has no status, headers or body");
            }
        }
        (None, Some(_)) => {
            if has_http {
                problems.error(path, "a `script` has no status, headers or body, only `items` or `fails`");
            }
            if reply.items.is_some() == reply.fails.is_some() {
                problems.error(path, "a script has either `items` or `fails`");
            }
            if reply.kind.is_some() && reply.fails.is_none() {
                problems.error(&path.key("kind"), "only a `script` that fails has a kind of failure");
            }
        }
        _ => problems.error(path, "a reply has either a `request` or a `script`"),
    }
    secrets::check_reply(reply, path, problems);
}

/// The files with cases at `paths`: the files themselves, and all `.yaml` and `.yml` files in folders and below them, by name. Hidden
/// folders and links to folders are left out.
///
/// # Errors
/// When a path cannot be read. The text names it.
pub(crate) fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in paths {
        let shown = path.display();
        if !path.metadata().with_context(|| format!("cannot read {shown}"))?.is_dir() {
            found.push(path.clone());
            continue;
        }
        let entries = path.read_dir().with_context(|| format!("cannot read {shown}"))?;
        let mut within = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
        within.sort();
        let is_yaml = |file: &PathBuf| file.extension().is_some_and(|end| end == "yaml" || end == "yml");
        let is_hidden = |file: &PathBuf| file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        within.retain(|file| !is_hidden(file) && if file.is_dir() { !file.is_symlink() } else { is_yaml(file) });
        found.extend(files(&within)?);
    }
    Ok(found)
}

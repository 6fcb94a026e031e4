//! Reads the first line of a program's file, which names the interpreter, and explains why an existing program does not start.

use std::{
    fs::OpenOptions,
    io::Read,
    path::{Path as FilePath, PathBuf},
};

use nix::errno::Errno;

use domain::{
    document::excerpt,
    error::BackendError,
    problem::{Path, Problems},
};
use launcher::StartFailure;

/// How much of a file the kernel reads to choose the interpreter, in bytes.
const HEAD_BYTES: u64 = 256;
/// How much of an interpreter's name a message shows, in characters.
const SHOWN_NAME: usize = 120;

/// Notes at `path` if the first line of `program` prevents a start in `folder`.
pub(super) fn check(program: &FilePath, folder: &FilePath, path: &Path, problems: &mut Problems) {
    if let Some((why, help)) = start(program).and_then(|start| trouble(&start, folder)) {
        problems.warning(path, format!("{}: {why}", program.display()), help);
    }
}

/// Programs whose first argument is the file that they run.
const INTERPRETERS: [&str; 11] = ["bash", "dash", "lua", "node", "perl", "php", "python", "ruby", "sh", "tclsh", "zsh"];

/// A command that may interpret a file.
pub(crate) struct Interpreting<'a> {
    /// The program.
    pub(crate) program: &'a FilePath,
    /// Its arguments. One may name the file.
    pub(crate) arguments: &'a [String],
    /// The folder to which the file's name is relative.
    pub(crate) folder: &'a FilePath,
    /// Whether another command may make the file.
    pub(crate) is_made: bool,
}

/// Notes at `path` if the command interprets a file that does not exist.
pub(crate) fn check_script(command: &Interpreting<'_>, path: &Path, problems: &mut Problems) {
    let Interpreting { program, arguments, folder, is_made } = *command;
    let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some((name, script)) = interpreted(&name, arguments).filter(|(_, script)| !folder.join(script).exists()) else {
        return;
    };
    let file = folder.join(script.strip_prefix("./").unwrap_or(script));
    let message = format!("{} does not exist, and `{name}` cannot run it", file.display());
    // Node.js adds endings, shells look in `PATH`, and another command may make the file first.
    let may_be_found = kind_of(name) == "node" || !script.contains(['/', '.']) || is_made;
    if FilePath::new(script).is_absolute() || may_be_found {
        problems.warning(path, message, "it must be there when the gateway runs it, for example in its image");
    } else {
        let help = format!("a relative path starts from {}, the folder of the configuration", folder.display());
        problems.mistake(path, message, help);
    }
}

/// The interpreter's name and the file that it runs, if a program called `name` gets these `arguments`. With an option that is not known
/// here, an argument may be something else, such as the code itself.
fn interpreted<'a>(name: &'a str, arguments: &'a [String]) -> Option<(&'a str, &'a str)> {
    let kind = kind_of(name);
    if kind == "env" {
        let rest = &arguments[arguments.iter().take_while(|word| is_setting_of_env(word)).count()..];
        let (program, rest) = rest.split_first()?;
        let name = FilePath::new(program).file_name()?.to_str()?;
        return if kind_of(name) == "env" { None } else { interpreted(name, rest) };
    }
    // Options of one letter that may stand together, and options with a value.
    let (letters, with_value) = match kind {
        "bash" | "dash" | "sh" | "zsh" => ("abefhiklmnprtuvxBCEHP", &["-o", "+o", "-O", "+O"][..]),
        "python" => ("bBdEiIOPqsSuvx", &["-W", "-X"][..]),
        "perl" => ("tTuUwWX", &[][..]),
        "ruby" => ("wWv", &["-I", "-r"][..]),
        _ if INTERPRETERS.contains(&kind) => ("", &[][..]),
        _ => return None,
    };
    let mut words = arguments.iter().map(String::as_str);
    loop {
        let word = words.next()?;
        let is_flag = |word: &str| {
            word.strip_prefix(['-', '+'])
                .is_some_and(|flags| !flags.is_empty() && flags.chars().all(|c| letters.contains(c)))
        };
        // `set -eo pipefail` has its value after the letters.
        let ends_with_value = kind.ends_with("sh") && word.strip_suffix('o').is_some_and(is_flag);
        if with_value.contains(&word) || ends_with_value {
            words.next()?;
        } else if word == "--" {
            return Some((name, words.next()?));
        } else if !word.starts_with('-') && !word.starts_with('+') {
            return Some((name, word));
        } else if !is_flag(word) {
            return None;
        }
    }
}

/// The name of a program without its version.
fn kind_of(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

/// The error for `failure`. Names the first line of `program` if it is the reason.
#[must_use]
pub(super) fn explain(failure: &StartFailure, program: &FilePath, folder: &FilePath) -> BackendError {
    let cause = cause(failure, program, folder).map(|cause| format!("; {cause}")).unwrap_or_default();
    BackendError::unavailable(format!("{failure}{cause}"))
}

/// The part of `program` that made it fail to start.
fn cause(failure: &StartFailure, program: &FilePath, folder: &FilePath) -> Option<String> {
    let start = start(program)?;
    let is_unknown_format = failure.errno == Some(Errno::ENOEXEC as i32);
    match trouble(&start, folder) {
        Some((why, help)) => Some(format!("{why}; {help}")),
        None if start.starts_with(b"\x7fELF") => Some("it is a binary for another system".to_owned()),
        None if is_unknown_format && interpreter(&start).is_none() => {
            Some("its first line names no interpreter, such as `#!/bin/sh`".to_owned())
        }
        None => None,
    }
}

/// The problem of the first line of a file that begins with `start`, and advice.
fn trouble(start: &[u8], folder: &FilePath) -> Option<(String, &'static str)> {
    let line = first_line(start)?;
    let interpreter = interpreter(start)?;
    let shown = || excerpt(interpreter.as_os_str().as_encoded_bytes(), SHOWN_NAME);
    if line.ends_with(b"\r") {
        return Some(("its first line ends with a carriage return".to_owned(), "save it with Unix line ends"));
    }
    let is_missing = !folder.join(&interpreter).exists();
    let why = || format!("its first line names the interpreter `{}`, which does not exist", shown());
    is_missing.then(|| (why(), "install it, or write `#!/usr/bin/env` before its name"))
}

/// The programs that run `program` by its first line: the interpreter that it names, and the one that `env` finds for it.
pub(crate) fn interpreters_of(program: &FilePath) -> Vec<PathBuf> {
    let Some(start) = start(program) else { return Vec::new() };
    let Some(named) = interpreter(&start).filter(|named| named.is_absolute()) else { return Vec::new() };
    let words = String::from_utf8_lossy(first_line(&start).unwrap_or_default()).into_owned();
    let is_env = named.file_name().is_some_and(|name| name == "env");
    let found = is_env.then(|| words.split_ascii_whitespace().skip(1).find(|word| !is_setting_of_env(word))).flatten();
    [Some(named), found.and_then(super::executable::in_search_path)].into_iter().flatten().collect()
}

/// Whether `env` takes this word for itself, before the program's name.
fn is_setting_of_env(word: &str) -> bool {
    matches!(word, "-i" | "-S" | "--") || word.contains('=')
}

/// The first line after `#!`.
fn first_line(start: &[u8]) -> Option<&[u8]> {
    start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()
}

/// The interpreter that the first line names.
fn interpreter(start: &[u8]) -> Option<PathBuf> {
    let name = first_line(start)?.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
    Some(String::from_utf8_lossy(name).into_owned().into())
}

fn start(program: &FilePath) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    domain::file::open(program, OpenOptions::new().read(true)).ok()?.take(HEAD_BYTES).read_to_end(&mut start).ok()?;
    Some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_an_interpreter_must_exist() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("there.py"), "").unwrap();
        for (program, arguments, found) in [
            ("/usr/bin/python3", &["there.py"][..], 0),
            ("/usr/bin/python3.11", &["gone.py"], 1),
            ("/usr/bin/python3", &["-m", "gone"], 0),
            ("/bin/sh", &["-c", "gone.sh"], 0),
            ("/bin/sh", &["/no/such/script.sh"], 1),
            ("/usr/bin/jq", &["gone"], 0),
            ("/bin/sh", &[], 0),
            ("/bin/bash", &["-e", "gone.sh"], 1),
            ("/bin/bash", &["-euo", "pipefail", "gone.sh"], 1),
            ("/bin/bash", &["-ec", "gone.sh"], 0),
            ("/bin/bash", &["-s", "gone.sh"], 0),
            ("/bin/bash", &["--login", "gone.sh"], 0),
            ("/usr/bin/python3", &["-u", "-W", "error", "gone.py"], 1),
            ("/usr/bin/python3", &["-um", "gone.py"], 0),
            ("/usr/bin/env", &["python3", "gone.py"], 1),
            ("/usr/bin/env", &["A=b", "python3", "-u", "gone.py"], 1),
            ("/usr/bin/env", &["-S", "python3", "there.py"], 0),
            ("/usr/bin/env", &["-u", "A", "python3", "gone.py"], 0),
            ("/usr/bin/env", &["jq", "gone.jq"], 0),
        ] {
            let (mut problems, arguments) = (Problems::default(), arguments.iter().map(|text| (*text).to_owned()));
            let arguments: Vec<String> = arguments.collect();
            let (program, folder) = (FilePath::new(program), folder.path());
            let command = Interpreting { program, arguments: &arguments, folder, is_made: false };
            check_script(&command, &Path::root(), &mut problems);
            assert_eq!(problems.into_vec().len(), found, "{} {arguments:?}", program.display());
        }
    }

    #[test]
    fn a_first_line_names_its_interpreters() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let sh = super::super::executable::in_search_path("sh").unwrap();
        let env = FilePath::new("/usr/bin/env");
        for (text, found) in [
            ("#!/opt/tool/bin/run -x\n", &[FilePath::new("/opt/tool/bin/run")][..]),
            ("#! /usr/bin/env sh\n", &[env, &sh]),
            ("#!/usr/bin/env -S A=b sh -e\n", &[env, &sh]),
            ("#!/usr/bin/env no-such-program\n", &[env]),
            ("#!/usr/bin/env\n", &[env]),
            ("#!sh\n", &[]),
            ("\x7fELF", &[]),
        ] {
            std::fs::write(&program, text).unwrap();
            assert_eq!(interpreters_of(&program), found, "{text}");
        }
        assert!(interpreters_of(&folder.path().join("missing")).is_empty());
    }

    #[test]
    fn a_failed_start_is_explained_by_the_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let none = "its first line names no interpreter, such as `#!/bin/sh`";
        let absent = "its first line names the interpreter `/no/such/sh`, which does not exist; install it, or write \
                      `#!/usr/bin/env` before its name";
        let cr = "its first line ends with a carriage return; save it with Unix line ends";
        for (text, errno, says) in [
            ("#!/no/such/sh -e\nexit", 2, Some(absent)),
            ("#! /no/such/sh", 2, Some(absent)),
            (
                "#!sh\n",
                2,
                Some(
                    "its first line names the interpreter `sh`, which does not exist; install it, or write \
                                `#!/usr/bin/env` before its name",
                ),
            ),
            ("#!/bin/sh\r\nexit", 2, Some(cr)),
            ("#!/usr/bin/env python3\r\n", 2, Some(cr)),
            ("echo '[]'\r\n", 8, Some(none)),
            ("", 8, Some(none)),
            ("\x7fELF\x02", 8, Some("it is a binary for another system")),
            ("\x7fELF\x02", 2, Some("it is a binary for another system")),
            // The first line is not the reason. The work folder may be gone.
            ("#!/bin/sh\n", 2, None),
            ("echo\n", 2, None),
        ] {
            let program = folder.path().join("program");
            std::fs::write(&program, text).unwrap();
            let failure = StartFailure::from(std::io::Error::from_raw_os_error(errno));
            let expected = says.map_or(failure.to_string(), |says| format!("{failure}; {says}"));
            assert_eq!(explain(&failure, &program, folder.path()).message, expected, "{text:?}");
        }
    }
}

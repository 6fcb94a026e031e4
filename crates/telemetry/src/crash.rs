//! How panics are reported. A panic's text is logged only if it is a literal of the program: a text made at run time may hold a
//! secret. No memory is written to disk.

use std::{
    any::Any,
    io::{self, Write as _},
    panic::{self, PanicHookInfo},
    thread,
};

use nix::sys::resource::{Resource, setrlimit};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Replaces a text that was made at run time.
const WITHHELD: &str = "a panic, whose text is withheld because it may hold a secret";

/// Reports panics on standard error, until there is a log.
pub fn tell_on_stderr() {
    panic::set_hook(Box::new(|panic| {
        let (text, place) = (text_of(panic.payload()), place_of(panic));
        let thread = thread::current();
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "panic: {text} (thread {}, {place})", thread.name().unwrap_or("without a name"));
    }));
}

/// Logs panics as errors.
pub(crate) fn tell_in_log() {
    panic::set_hook(Box::new(|panic| {
        let (text, location) = (text_of(panic.payload()), place_of(panic));
        tracing::error!(target: "panic", thread = thread::current().name(), location, "{text}");
    }));
}

/// Only root may read this process's memory from now on, by a core dump or a debugger.
///
/// # Errors
/// When the system refuses.
pub fn leave_no_memory() -> io::Result<()> {
    // The limit alone has no effect where the system pipes cores to a program (core(5)), but children inherit it.
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// The text of a panic, if it is a literal. A text made at run time is a `String`.
fn text_of(payload: &(dyn Any + Send)) -> &'static str {
    payload.downcast_ref::<&'static str>().copied().unwrap_or(WITHHELD)
}

/// File, line and column.
fn place_of(panic: &PanicHookInfo<'_>) -> String {
    panic.location().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sys::resource::getrlimit;
    use rustix::process::dumpable_behavior;

    use super::*;
    use crate::log::{self, LogConfig, LogStream};

    /// Selects how a child process of these tests crashes.
    const CRASH: &str = "APPSET_GATEWAY_TEST_CRASH";

    #[test]
    #[ignore = "the tests below start it in a process of its own"]
    fn crash() {
        let _flush = match std::env::var(CRASH).as_deref() {
            Ok("log") => Some(log::init(LogConfig::default(), LogStream::Stdout)),
            Ok(_) => {
                tell_on_stderr();
                None
            }
            Err(_) => return,
        };
        leave_no_memory().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_CORE).unwrap(), (0, 0));
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
        let secret = String::from_utf8(vec![b'c', b'4', b'n', b'4', b'r', b'y']).unwrap();
        for formatted in [true, false] {
            let secret = secret.clone();
            let work = move || if formatted { panic!("the token is {secret}") } else { panic!("compiled in") };
            let thread = thread::Builder::new().name("worker".to_owned()).spawn(work).unwrap();
            assert!(thread.join().is_err());
        }
    }

    /// The lines on standard output and standard error of a process that crashes so.
    fn crashed(how: &str) -> [Vec<String>; 2] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "crash::tests::crash", "--ignored", "--nocapture", "--format=terse"]);
        let output = command.env(CRASH, how).env("RUST_BACKTRACE", "full").output().unwrap();
        assert!(output.status.success());
        [output.stdout, output.stderr].map(|output| {
            let output = String::from_utf8(output).unwrap();
            assert!(!output.contains("c4n4ry"), "{output}");
            output.lines().map(str::to_owned).collect()
        })
    }

    #[test]
    fn a_panic_in_the_log_says_where_and_no_secret() {
        let [log, stderr] = crashed("log");
        let lines = log.iter().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let panics: Vec<_> = lines.filter(|line| line["target"] == "panic").collect();
        assert_eq!((panics.len(), stderr.len()), (2, 0), "{log:#?} {stderr:#?}");
        assert_eq!([&panics[0]["message"], &panics[1]["message"]], [WITHHELD, "compiled in"]);
        for panic in panics {
            assert_eq!((&panic["level"], &panic["thread"]), (&"ERROR".into(), &"worker".into()));
            assert!(panic["location"].as_str().unwrap().starts_with("crates/telemetry/src/crash.rs:"), "{panic}");
        }
    }

    #[test]
    fn a_panic_before_there_is_a_log_says_no_more() {
        let [_, stderr] = crashed("stderr");
        assert_eq!(stderr.len(), 2, "{stderr:#?}");
        for (line, text) in stderr.iter().zip([WITHHELD, "compiled in"]) {
            let output = format!("panic: {text} (thread worker, crates/telemetry/src/crash.rs:");
            assert!(line.starts_with(&output), "{line}");
        }
    }
}

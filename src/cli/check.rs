//! `appset-gateway check`.

use std::{path::Path, process::ExitCode, sync::Arc};

use super::{Output, exit, print};
use crate::{app::App, clock::SystemClock, config::Loaded};

/// Checks `file` as a start would, and prints what was found.
pub fn run(file: &Path, output: Output) -> anyhow::Result<ExitCode> {
    let checked = Loaded::read(file).and_then(|loaded| App::build(loaded, Arc::new(SystemClock)));
    let (report, routes) = match checked {
        Ok((app, report)) => (report, app.routes.iter().count()),
        Err(report) => (report, 0),
    };
    if output == Output::Json {
        print(&format!("{:#}", report.to_json()))?;
    } else {
        eprint!("{report}");
    }
    if report.has_errors() {
        eprintln!("{}: {}", file.display(), report.summary());
        return Ok(ExitCode::from(exit::CONFIG));
    }
    if output == Output::Text {
        let plural = if routes == 1 { "" } else { "s" };
        let found = if report.is_empty() { String::new() } else { format!(", {}", report.summary()) };
        print(&format!("{}: good, {routes} route{plural}{found}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

//! `appset-gateway check`.

use std::{path::Path, process::ExitCode, sync::Arc};

use super::{Output, exit, print};
use crate::{
    app::App, clients::launcher::own_program, config::Loaded, domain::clock::SystemClock, engine::route::Route,
};

/// What this machine's kernel cannot take from scripts.
fn lacks(app: &App) -> anyhow::Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(app.launchers.lacks()).unwrap_or_else(|why| vec![format!("none can be started: {why}")]))
}

/// Checks `file` as a start would, and prints what was found.
pub(crate) fn run(file: &Path, output: Output) -> anyhow::Result<ExitCode> {
    let checked = Loaded::read(file).and_then(|loaded| App::build(loaded, Arc::new(SystemClock), own_program()));
    let (report, routes, lacks) = match checked {
        Ok((app, report)) => {
            let setup = app.setup();
            let identities = setup.routes.iter().map(|route| identity(route)).collect();
            (report, identities, lacks(&app)?)
        }
        Err(report) => (report, Vec::new(), Vec::new()),
    };
    for lack in lacks {
        eprintln!("note: on this machine scripts are not wholly contained: {lack}");
    }
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
        let plural = if routes.len() == 1 { "" } else { "s" };
        let found = if report.is_empty() { String::new() } else { format!(", {}", report.summary()) };
        print(&format!("{}: good, {} route{plural}{found}", file.display(), routes.len()))?;
        print("By what the guard tells the parameter sets of each route apart (`guard.identity`):")?;
        routes.iter().try_for_each(|line| print(line).map(drop))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// By what the guard tells the parameter sets of `route` apart.
fn identity(route: &Route) -> String {
    format!("  {}: {}", route.name, route.guard.config().identity.describe(route.shape.keys().as_deref()))
}

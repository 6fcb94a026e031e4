//! `appset-gateway check`.

use std::{path::Path, process::ExitCode, sync::Arc};

use super::{Output, exit, print};
use crate::{
    app::App,
    clients::{launcher::own_program, store::StoreConfig},
    config::Loaded,
    domain::clock::SystemClock,
    engine::route::Route,
    file::base_dir::BaseDir,
};

/// The containment of scripts that this machine's kernel lacks.
fn lacks(app: &App) -> anyhow::Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(app.launchers.lacks()).unwrap_or_else(|why| vec![format!("no script can be started: {why}")]))
}

/// Checks `file` as a start would, and prints the report.
pub(crate) fn run(file: &Path, connect: bool, output: Output) -> anyhow::Result<ExitCode> {
    let checked = Loaded::read(file).and_then(|loaded| {
        let (store, base) =
            (loaded.config.as_ref().and_then(|config| config.cache.shared.clone()), loaded.base.clone());
        App::build(loaded, Arc::new(SystemClock), own_program()).map(|built| (built, store.map(|store| (store, base))))
    });
    let (report, routes, lacks, exposed, store) = match checked {
        Ok(((app, report), store)) => {
            let setup = app.setup();
            let identities = setup.routes.iter().map(|route| identity(route)).collect();
            (report, identities, lacks(&app)?, app.exposed_secrets(), store.filter(|_| connect))
        }
        Err(report) => (report, Vec::new(), Vec::new(), Vec::new(), None),
    };
    for lack in lacks {
        eprintln!("note: on this machine scripts are not completely contained: {lack}");
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
    if !exposed.is_empty() {
        for why in exposed {
            eprintln!("error: scripts can read a secret: {why}");
        }
        return Ok(ExitCode::from(exit::CONFIG));
    }
    if output == Output::Text {
        let plural = if routes.len() == 1 { "" } else { "s" };
        let found = if report.is_empty() { String::new() } else { format!(", {}", report.summary()) };
        print(&format!("{}: good, {} route{plural}{found}", file.display(), routes.len()))?;
        print("How the guard identifies the parameter sets of each route (`guard.identity`):")?;
        routes.iter().try_for_each(|line| print(line).map(drop))?;
    }
    let is_good = store.map_or(Ok(true), |(store, base)| try_store(&store, &base))?;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

/// Tries the shared store, and prints to standard error what it says of itself. Returns whether nothing is wrong.
fn try_store(store: &StoreConfig, base: &BaseDir) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(store.probe(base)) {
        Ok(probe) => {
            eprintln!("cache.shared: {}, {}", probe.server, probe.persistence);
            probe.problems.iter().for_each(|problem| eprintln!("cache.shared: {problem}"));
            Ok(probe.problems.is_empty())
        }
        Err(error) => {
            eprintln!("cache.shared: the store cannot be used: {error}");
            Ok(false)
        }
    }
}

/// How the guard identifies the parameter sets of `route`.
fn identity(route: &Route) -> String {
    format!("  {}: {}", route.name, route.guard.config().identity.describe(route.shape.keys().as_deref()))
}

//! `appset-gateway check`.

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tokio::time::Instant;

mod identities;
mod missing;

use self::{identities::Wanted, missing::with_missing};
use super::{exit, print, print_json};
use crate::{
    app::{App, Setup},
    config::{Loaded, report::Strictness},
};
use domain::{clock::SystemClock, file::base_dir::BaseDir, units::plural};
use engine::route::Route;
use launcher::own_program;
use source::Reached;
use store::StoreConfig;

/// The containment of scripts that this machine's kernel lacks.
fn lacks(app: &App) -> anyhow::Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(app.launchers.lacks()).unwrap_or_else(|why| vec![format!("no script can be started: {why}")]))
}

/// How long a source may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The options of `check`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct CheckOptions {
    /// Warnings are errors too.
    #[arg(long)]
    strict: bool,
    /// Check only the form of references to secrets, keys and certificates: they need not be on this machine.
    #[arg(long)]
    no_secrets: bool,
    /// Try the sources of the routes and the shared store (`cache.shared`) too. Only reads.
    #[arg(long)]
    connect: bool,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: CheckOutput,
}

impl CheckOptions {
    /// Warnings are errors too, and secrets need not be there.
    pub(super) const fn strict_without_secrets() -> Self {
        Self { strict: true, no_secrets: true, connect: false, output: CheckOutput::Text }
    }
}

/// The output format of `check`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum CheckOutput {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
    /// SARIF, for code hosts.
    Sarif,
}

/// Checks `file`, and prints the report. Mistakes that a start only warns of are errors.
pub(crate) fn run(file: &Path, options: CheckOptions) -> anyhow::Result<ExitCode> {
    let CheckOptions { strict, no_secrets, connect, output } = options;
    let checked = Loaded::read(file).and_then(|loaded| {
        let loaded = if no_secrets { loaded.without_secrets() } else { loaded };
        let (store, base) =
            (loaded.config.as_ref().and_then(|config| config.cache.shared.clone()), loaded.base.clone());
        let wanted = Wanted::of(&loaded);
        let built = App::build(loaded, Arc::new(SystemClock), own_program());
        built.map(|built| (built, store.map(|store| (store, base)), wanted))
    });
    let (report, routes, at_clouds, lacks, exposed, tried) = match checked {
        Ok(((app, report), store, wanted)) => {
            let setup = app.setup();
            let identities = setup.routes.iter().map(|route| identity(route)).collect();
            let at_clouds = wanted.lines(setup.outbound().0.identities(), setup.registries());
            let tried = connect.then(|| (app.setup(), store, wanted));
            (report, identities, at_clouds, lacks(&app)?, app.exposed_secrets(), tried)
        }
        Err(report) => (report, Vec::new(), Vec::new(), Vec::new(), Vec::new(), None),
    };
    let report = report.counted(if strict { Strictness::Strict } else { Strictness::Check });
    for lack in lacks {
        eprintln!("note: on this machine scripts are not completely contained: {lack}");
    }
    match output {
        CheckOutput::Text => eprint!("{report}"),
        CheckOutput::Json => drop(print_json(&with_identities(report.to_json(), file, &at_clouds))?),
        CheckOutput::Sarif => drop(print_json(&report.to_sarif())?),
    }
    if report.has_errors() {
        eprintln!("{}: {}", file.display(), report.summary());
        return Ok(ExitCode::from(exit::CONFIG));
    }
    if !exposed.is_empty() {
        for why in exposed {
            eprintln!("error: {why}");
        }
        return Ok(ExitCode::from(exit::CONFIG));
    }
    if output == CheckOutput::Text {
        let s = plural(routes.len());
        let found = if report.is_empty() { String::new() } else { format!(", {}", report.summary()) };
        print(&format!("{}: good, {} route{s}{found}", file.display(), routes.len()))?;
        print("How the guard identifies the parameter sets of each route (`guard.identity`):")?;
        routes.iter().try_for_each(|line| print(line).map(drop))?;
        if !at_clouds.is_empty() {
            print("Which identity at a cloud each source uses (`identities`):")?;
            at_clouds.iter().try_for_each(|line| print(line).map(drop))?;
        }
    }
    let is_good = match tried {
        Some((setup, store, wanted)) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let identities_work = runtime.block_on(wanted.ask(setup.outbound().0.identities(), setup.registries()));
            let reaches_sources = try_sources(&setup)? && identities_work;
            store.map_or(Ok(true), |(store, base)| try_store(&store, &base))? && reaches_sources
        }
        None => true,
    };
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

/// The findings, and after them a note for each source that uses an identity at a cloud.
fn with_identities(mut findings: Value, file: &Path, at_clouds: &[String]) -> Value {
    let notes = at_clouds
        .iter()
        .map(|line| json!({"file": file.to_string_lossy(), "severity": "note", "message": line.trim()}));
    findings.as_array_mut().into_iter().for_each(|all| all.extend(notes.clone()));
    findings
}

/// Tries the sources of all routes, and prints the results to standard error. Returns whether all were reached.
fn try_sources(setup: &Setup) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut is_good = true;
    for route in setup.routes.iter() {
        let reached = runtime.block_on(route.backend.reach(Instant::now() + TIMEOUT));
        let of_shadow = route.shadow.as_ref().map(|shadow| runtime.block_on(shadow.reach(Instant::now() + TIMEOUT)));
        let of_shadow = of_shadow.into_iter().flatten().map(|reached| (", shadow", reached));
        for (which, Reached { source, result, needs }) in
            reached.into_iter().map(|reached| ("", reached)).chain(of_shadow)
        {
            is_good &= result.is_ok();
            let said = result.unwrap_or_else(|error| format!("cannot be used: {}", with_missing(&error, needs)));
            eprintln!("route {}{which}: {source} {said}", route.name);
        }
    }
    Ok(is_good)
}

/// Tries the shared store, and prints to standard error its report about itself. Returns whether nothing is wrong.
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
    format!("  {}: {}", route.name, route.guard.config().identity.describe(route.keys().as_deref()))
}

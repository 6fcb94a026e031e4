//! Builds a script from its configuration: finds its programs, and reports all that is wrong.

use std::{
    path::{Path as FilePath, PathBuf},
    sync::Arc,
};

use super::{
    Config, Mode, PUBLIC, Package, Script, confinement,
    confinement::Confinement,
    executable::{in_search_path, is_executable},
    interpreter,
    interpreter::Interpreting,
    names, worker,
    worker::Pool,
};
use crate::{BuildContext, Building, ITEM, ITEMS};
use domain::{
    file::base_dir::BaseDir,
    secret::{PLACEHOLDER, TextOrSecret, literal},
};
use lang::{expression::Expression, scope::ValueType};
use launcher::{First, LaunchOptions, LauncherPool, Program, belongings};

impl Script {
    /// Finds the programs and checks all settings.
    pub fn build(config: &Config, building: &mut Building<'_>) -> Option<Self> {
        let context = building.context;
        check_settings(config, building);
        let parameters = config.parameters.as_deref().map(|source| {
            let scope = context.scope.only(&["params", ITEM]).with(ITEMS, ValueType::List(Box::default()));
            Expression::build_objects(source, &scope, &building.path.key("parameters"), building.problems)
        });
        let help = "name a program: `command: [python3, branches.py]`";
        let main = find_command(&config.command, help, &mut building.key("command"));
        let init = match &config.init {
            Some(init) => {
                let words = if init.command.is_empty() { Vec::new() } else { init.words() };
                let help = "name a program, or leave `init` out";
                find_command(&words, help, &mut building.key("init").key("command")).map(Some)
            }
            None => Some(None),
        };
        let options = launch_options(config, main.as_ref(), building);
        let (main, init, mut options) = (main?, init?, options?);
        if let Some(init) = &init {
            options.readable.extend(confinement::files_of(&init.path, &init.arguments, context.base));
            options.readable.extend(interpreters(&init.path, context));
        }
        let (parameters, item) = match parameters {
            Some(built) => {
                let (expression, item) = built?;
                (Some(Arc::new(expression)), item)
            }
            None => (None, ValueType::Anything),
        };
        let launchers = LauncherPool::new(context.launchers, options, config.concurrency);
        let is_worker = config.mode == Mode::Worker;
        // Offline, a fixed text replaces each value that may be a secret.
        let is_replaced = |name: &str| context.base.is_offline() && !PUBLIC.contains(&name);
        let value = |name: &str| if is_replaced(name) { Some(PLACEHOLDER.into()) } else { std::env::var_os(name) };
        let inherited = config.inherit_env.iter().filter_map(|name| Some((name.clone(), value(name)?)));
        building.note_reads(config.protocol.has_application_set());
        Some(Self {
            workers: is_worker.then(|| Pool::new(&launchers, config.worker.unwrap_or_default())),
            program: Arc::new(program(main, init, context)),
            package: context.package.cloned(),
            protocol: config.protocol,
            parameters,
            inherited: inherited.collect(),
            env: config.env.clone(),
            base: context.base.clone(),
            timeout: config.timeout,
            max_output: config.max_output.as_usize(),
            launchers,
            evaluator: context.evaluator.clone(),
            command: config.command.join(" "),
            sources: context.launchers.sources().cloned(),
            nature: building.nature(item),
        })
    }
}

/// Checks the settings that need no program.
fn check_settings(config: &Config, building: &mut Building<'_>) {
    for (name, value) in &config.env {
        let mut env = building.key("env");
        let mut variable = env.key(name);
        match value {
            TextOrSecret::Secret(secret) => variable.check_secret(secret),
            TextOrSecret::Text(text) => literal::check(name, text, &variable.path, variable.problems),
        }
    }
    names::check(config, building);
    worker::check(config, building);
    let Building { path, problems, .. } = building;
    problems.check_not_zero(&path.key("timeout"), config.timeout.0);
    if config.concurrency == 0 {
        problems.error(&path.key("concurrency"), "with 0 the script would never run");
    }
    literal::check_words(&config.command, &path.key("command"), problems);
    if let Some(init) = &config.init {
        literal::check_words(&init.command, &path.key("init").key("command"), problems);
        literal::check_words(&init.args, &path.key("init").key("args"), problems);
    }
}

/// Finds the program that is the first of `words`, and checks its interpreter.
fn find_command(words: &[String], help: &str, building: &mut Building<'_>) -> Option<First> {
    let BuildContext { base, package, .. } = building.context;
    let Some((program, arguments)) = words.split_first() else {
        building.error_with_help("the command is empty", help);
        return None;
    };
    let program = building.note(find_program(program, base, package))?;
    let folder = package.map_or(base.as_path(), Package::working);
    interpreter::check(&folder.join(&program), folder, &building.path, building.problems);
    // What is copied for each run may be changed by `init`.
    let command = Interpreting { program: &program, arguments, folder, is_made: package.is_some() };
    interpreter::check_script(&command, &building.path, building.problems);
    Some(First { path: program, argv0: None, arguments: arguments.to_vec() })
}

/// The rights of the script. Reports problems even if `main` was not found.
fn launch_options(config: &Config, main: Option<&First>, building: &mut Building<'_>) -> Option<LaunchOptions> {
    let confinement = Confinement {
        allow: &config.allow,
        limits: config.limits,
        user: config.user.as_deref(),
        network: config.network,
    };
    let (program, arguments) = main.map_or((FilePath::new(""), &[][..]), |main| (&main.path, &main.arguments));
    let mut options =
        confinement.terms(program, arguments, building.context.base, &building.path, building.problems)?;
    let BuildContext { package, .. } = building.context;
    options.readable.extend(package.map(Package::readable).unwrap_or_default());
    options.readable.extend(interpreters(program, building.context));
    for program in package.map(Package::programs).unwrap_or_default() {
        options.readable.extend(interpreters(&program, building.context));
    }
    options.readable.sort_unstable();
    options.readable.dedup();
    Some(options)
}

/// The files of the interpreters that the first line of `program` names, as if the command named them.
fn interpreters(program: &FilePath, context: BuildContext<'_>) -> Vec<PathBuf> {
    let folder = context.package.map_or(context.base.as_path(), Package::working);
    let interpreters = interpreter::interpreters_of(&folder.join(program));
    interpreters.iter().flat_map(|interpreter| belongings::of_program(interpreter, context.base)).collect()
}

/// The program as the launcher starts it. A copied package is its folder, else the configuration's folder.
fn program(main: First, first: Option<First>, context: BuildContext<'_>) -> Program {
    let copy = context.package.and_then(Package::copied);
    let folder = if copy.is_none() { Some(context.base.as_path().to_owned()) } else { None };
    Program { path: main.path, argv0: None, arguments: main.arguments, folder, first, copy }
}

/// Why a command has no program.
#[derive(Debug, thiserror::Error)]
enum ProgramError {
    /// The package has it, and it cannot be run.
    #[error("{} is not an executable file", .0.display())]
    NotExecutable(PathBuf),
    /// It is a file that may not be run.
    #[error("{path} is not an executable file; try `chmod +x {path}`", path = .0.display())]
    NoRight(PathBuf),
    /// It is not there.
    #[error("{} does not exist; a relative path starts from {}", .path.display(), .base.display())]
    Missing {
        /// The path.
        path: PathBuf,
        /// The folder from which relative paths start.
        base: PathBuf,
    },
    /// The search path has no program of this name.
    #[error("there is no program `{0}` in PATH; install it where the gateway runs, or write its path")]
    NotInPath(String),
}

/// The program's absolute path. A run has a cleared environment and could not look up a bare name. An unknown program is reported
/// at the start.
fn find_program(name: &str, base: &BaseDir, package: Option<&Package>) -> Result<PathBuf, ProgramError> {
    if let Some(program) = package.and_then(|package| package.find(name)) {
        return program.map_err(ProgramError::NotExecutable);
    }
    if name.contains('/') {
        let path = base.resolve(name);
        let shown = base.resolve(name.strip_prefix("./").unwrap_or(name));
        return match () {
            () if is_executable(&path) => Ok(path),
            () if path.exists() => Err(ProgramError::NoRight(shown)),
            () => Err(ProgramError::Missing { path: shown, base: base.as_path().to_owned() }),
        };
    }
    in_search_path(name).ok_or_else(|| ProgramError::NotInPath(name.to_owned()))
}

//! `cmp-gateway check`: a plugin's file, as Argo CD and this program understand it.

use std::path::{Path, PathBuf};

use crate::{
    plugin::{Command, Discover, Plugin, PluginError},
    run::find_program,
};

/// What `check` says of a plugin.
#[derive(Debug)]
pub(crate) struct Report {
    /// What it is, in lines.
    pub(crate) lines: Vec<String>,
    /// What will not work as its author may think.
    pub(crate) warnings: Vec<String>,
}

/// Checks the file at `path`, or in the folder `path`.
///
/// # Errors
/// When argocd-cmp-server would not start with it.
pub(crate) fn check(path: &Path) -> Result<Report, PluginError> {
    let plugin = Plugin::read(path)?;
    let name = plugin.full_name();
    let mut warnings = plugin.warnings.clone();
    let mut lines =
        vec![format!("{name}: Applications name it by `spec.source.plugin.name: {name}`; socket {name}.sock")];
    lines.push(match &plugin.discover {
        Discover::ByName => "discovery: none, so only Applications that name it use it".to_owned(),
        Discover::FileName(pattern) => format!("discovery: a file `{pattern}` in the Application's folder"),
        Discover::Glob(glob) => format!("discovery: a path that matches `{glob}`, from the Application's folder on"),
        Discover::Command(command) => format!("discovery: `{}` prints something", command.program),
    });
    if let Discover::Command(command) = &plugin.discover {
        warnings.push(format!(
            "`{}` decides for every Application that names no plugin: when it fails, folders of others are claimed. Name the plugin's \
             repositories by `allow.repositories`, or use `fileName` or `find.glob`",
            command.program
        ));
    }
    let discover = if let Discover::Command(command) = &plugin.discover { Some(command) } else { None };
    let commands = [
        ("init", plugin.init.as_ref()),
        ("generate", Some(&plugin.generate)),
        ("discover.find", discover),
        ("parameters.dynamic", plugin.dynamic_parameters.as_ref()),
    ];
    for (key, command) in commands {
        let Some(Command { program, arguments }) = command else { continue };
        lines.push(format!("{key}: {}", [&[program.clone()][..], arguments].concat().join(" ")));
        let path = std::env::var_os("PATH").unwrap_or_default();
        match find_program(program, &path) {
            Ok(found) if found.is_relative() && !plugin.preserve_file_mode => warnings.push(format!(
                "spec.{key}: `{program}` is a file of the repository, which is not executable without `preserveFileMode: true`"
            )),
            Ok(found) if found.is_absolute() && !found.exists() => {
                warnings.push(format!("spec.{key}: there is no {} here", found.display()));
            }
            Ok(_) => {}
            Err(error) => warnings.push(format!("spec.{key}: {error}")),
        }
        if arguments.is_empty() && program.contains(' ') && !PathBuf::from(program).exists() {
            warnings.push(format!(
                "spec.{key}: `{program}` is one word, and no shell splits it: `[sh, -c, \"{program}\"]`"
            ));
        }
    }
    Ok(Report { lines, warnings })
}

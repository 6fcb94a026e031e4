//! `plugin.yaml`, read as argocd-cmp-server reads it: keys match without case, unknown keys are ignored.

pub(crate) mod fields;

use std::{
    fmt,
    path::{Path, PathBuf},
};

use domain::file::{self, FileError};

use self::fields::{Fields, FieldsError};
use crate::grpc::message::ParameterAnnouncement;

/// The kind that the file must name.
const KIND: &str = "ConfigManagementPlugin";
/// The name of the file in its folder.
pub(crate) const FILE: &str = "plugin.yaml";

/// A plugin, as its file describes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plugin {
    /// Its name.
    pub(crate) name: String,
    /// Its version. Empty if it has none.
    pub(crate) version: String,
    /// Runs before `generate`.
    pub(crate) init: Option<Command>,
    /// Prints the manifests.
    pub(crate) generate: Command,
    /// How it recognises its folders.
    pub(crate) discover: Discover,
    /// Parameters that the file lists.
    pub(crate) static_parameters: Vec<ParameterAnnouncement>,
    /// Prints more parameters.
    pub(crate) dynamic_parameters: Option<Command>,
    /// Whether files keep their executable bits.
    pub(crate) preserve_file_mode: bool,
    /// Whether it wants the repository's credentials.
    pub(crate) provide_git_creds: bool,
    /// What the file has that has no effect, or that will surprise its author.
    pub(crate) warnings: Vec<String>,
}

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    /// The program.
    pub(crate) program: String,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
}

/// How a plugin recognises its folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Discover {
    /// It does not: Applications name it.
    ByName,
    /// A file of this name is in the Application's folder. May be a pattern, as of Go's `filepath.Glob`.
    FileName(String),
    /// A path matches, relative to the Application's folder. `**` stands for any folders.
    Glob(String),
    /// The program prints something.
    Command(Command),
}

impl fmt::Display for Discover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByName => f.write_str("none"),
            Self::FileName(pattern) => write!(f, "fileName: {pattern}"),
            Self::Glob(glob) => write!(f, "find.glob: {glob}"),
            Self::Command(command) => write!(f, "find.command: {}", command.program),
        }
    }
}

/// Why a `plugin.yaml` cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PluginError {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(#[from] FileError),
    /// It is not YAML, or a value has the wrong type.
    #[error("{}: {cause}", .file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The mistake, with its line or key.
        #[source]
        cause: FieldsError,
    },
}

impl Plugin {
    /// Reads a file, or `plugin.yaml` in a folder.
    ///
    /// # Errors
    /// When argocd-cmp-server would not start with it.
    pub(crate) fn read(path: &Path) -> Result<Self, PluginError> {
        let file = Self::file(path);
        let text = file::read(&file)?;
        Self::parse(&text).map_err(|cause| PluginError::Invalid { file, cause })
    }

    /// The file for a path that may be a folder.
    pub(crate) fn file(path: &Path) -> PathBuf {
        if path.is_dir() { path.join(FILE) } else { path.to_owned() }
    }

    /// The name by which Applications may call it, and the name of its socket without `.sock`.
    #[must_use]
    pub(crate) fn full_name(&self) -> String {
        if self.version.is_empty() { self.name.clone() } else { format!("{}-{}", self.name, self.version) }
    }

    /// Whether it has rules for which folders it is.
    #[must_use]
    pub(crate) fn has_discovery(&self) -> bool {
        self.discover != Discover::ByName
    }

    fn parse(text: &str) -> Result<Self, FieldsError> {
        let mut root = Fields::parse(text)?;
        let mut warnings = Vec::new();
        let kind = root.text("kind")?;
        if kind != KIND {
            return Err(FieldsError::mistake("kind", format!("must be {KIND}, and is `{kind}`")));
        }
        root.ignore("apiVersion");
        let mut metadata = root.fields("metadata")?;
        let name = metadata.text("name")?;
        check_name(&name, "metadata.name")?;
        if name.is_empty() {
            return Err(FieldsError::mistake("metadata.name", "must not be empty"));
        }
        let mut spec = root.fields("spec")?;
        let version = spec.text("version")?;
        check_name(&version, "spec.version")?;
        let init = command(&mut spec.fields("init")?, &mut warnings)?;
        let generate = command(&mut spec.fields("generate")?, &mut warnings)?;
        let generate = generate.ok_or_else(|| FieldsError::mistake("spec.generate.command", "must not be empty"))?;
        let discover = discover(&mut spec.fields("discover")?, &mut warnings)?;
        let mut parameters = spec.fields("parameters")?;
        let static_parameters = parameters.announcements("static")?;
        let dynamic_parameters = command(&mut parameters.fields("dynamic")?, &mut warnings)?;
        let (preserve_file_mode, provide_git_creds) = (spec.flag("preserveFileMode")?, spec.flag("provideGitCreds")?);
        warnings.extend([&root, &spec, &parameters].into_iter().flat_map(Fields::unknown));
        warnings.append(&mut root.surprises);
        warnings.append(&mut spec.surprises);
        let plugin = Self {
            name,
            version,
            init,
            generate,
            discover,
            static_parameters,
            dynamic_parameters,
            preserve_file_mode,
            provide_git_creds,
            warnings,
        };
        Ok(plugin)
    }
}

/// A name becomes part of a socket's name.
fn check_name(name: &str, key: &str) -> Result<(), FieldsError> {
    if name.contains(['/', '\0']) {
        return Err(FieldsError::mistake(key, "must not contain a slash: it is part of the socket's name"));
    }
    Ok(())
}

/// A command: `command` and `args`, one after the other. `None` if it is empty.
fn command(fields: &mut Fields, warnings: &mut Vec<String>) -> Result<Option<Command>, FieldsError> {
    let (mut words, args) = (fields.texts("command")?, fields.texts("args")?);
    warnings.extend(fields.unknown());
    if words.is_empty() {
        if !args.is_empty() {
            warnings.push(format!("{}.args has no effect without `command`", fields.path));
        }
        return Ok(None);
    }
    words.extend(args);
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    Ok(Some(Command { program, arguments: words.collect() }))
}

/// The rules in the order in which argocd-cmp-server tries them. Only the first that is there counts.
fn discover(fields: &mut Fields, warnings: &mut Vec<String>) -> Result<Discover, FieldsError> {
    let file_name = fields.text("fileName")?;
    let mut find = fields.fields("find")?;
    let glob = find.text("glob")?;
    let command = command(&mut find, warnings)?;
    warnings.extend(fields.unknown());
    let rules = [!file_name.is_empty(), !glob.is_empty(), command.is_some()];
    if rules.iter().filter(|is_there| **is_there).count() > 1 {
        warnings.push(
            "spec.discover has several rules: only the first of `fileName`, `find.glob` and `find.command` counts"
                .to_owned(),
        );
    }
    Ok(match command {
        _ if !file_name.is_empty() => Discover::FileName(file_name),
        _ if !glob.is_empty() => Discover::Glob(glob),
        Some(command) => Discover::Command(command),
        None => Discover::ByName,
    })
}

#[cfg(test)]
mod tests;

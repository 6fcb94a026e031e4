//! Turns the configured rights and limits of a script into launch options.

use std::{
    num::ParseIntError,
    path::{Path as FilePath, PathBuf},
};

use nix::{
    errno::Errno,
    unistd::{Uid, User as SystemUser},
};
use schemars::JsonSchema;
use serde::Deserialize;

use domain::{
    file::base_dir::BaseDir,
    problem::{Path, Problems},
    units::{ByteSize, HumanDuration},
};
use launcher::{LaunchOptions, Network, ProcessLimits, ProgramUser, SYSTEM, belongings};

/// The smallest limit of open files. A launcher needs some itself.
const MIN_OPEN_FILES: u64 = 16;

/// Files and folders that a script may use, in addition to the system's files, its program's folder and its work folder.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowConfig {
    /// Files and folders that the script may read and run.
    #[serde(default)]
    pub read: Vec<PathBuf>,
    /// Files and folders that the script may read, run, change and remove.
    #[serde(default)]
    pub write: Vec<PathBuf>,
}

/// The limits of each process of a script.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Processor time. No limit by default, since `timeout` ends the script anyway.
    pub cpu: Option<HumanDuration>,
    /// Memory.
    pub memory: ByteSize,
    /// The largest file that a process may write.
    pub file_size: ByteSize,
    /// The number of open files.
    #[schemars(range(min = 16))]
    pub open_files: u64,
    /// The number of processes of the script's user. Processes of the gateway and of all others with the same user number count
    /// too. No limit by default. Has no effect on root.
    pub processes: Option<u64>,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self { cpu: None, memory: ByteSize::mib(1024), file_size: ByteSize::mib(64), open_files: 256, processes: None }
    }
}

/// The configured rights, limits, user and network of a script.
#[derive(Debug, Clone, Copy)]
pub(super) struct Confinement<'a> {
    /// Additional files and folders.
    pub allow: &'a AllowConfig,
    /// The limits of each process.
    pub limits: LimitsConfig,
    /// The user that runs the script.
    pub user: Option<&'a str>,
    /// Whether it has a network.
    pub network: Network,
}

impl Confinement<'_> {
    /// The launch options for `program`. Files that `arguments` name may be read too.
    pub(super) fn terms(
        self,
        program: &FilePath,
        arguments: &[String],
        base: &BaseDir,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<LaunchOptions> {
        if self.limits.open_files < MIN_OPEN_FILES {
            let at = path.key("limits").key("openFiles");
            problems.error(&at, format!("with fewer than {MIN_OPEN_FILES} open files few programs start"));
        }
        let allow_path = path.key("allow");
        for (key, listed) in [("read", &self.allow.read), ("write", &self.allow.write)] {
            for (index, one) in listed.iter().enumerate() {
                let (at, one) = (allow_path.key(key).index(index), base.resolve(one));
                if !one.exists() {
                    problems.warning(
                        &at,
                        format!("there is no {}", one.display()),
                        "a missing file or folder cannot be used",
                    );
                }
            }
        }
        if let Some(system) = SYSTEM.iter().map(FilePath::new).find(|system| base.as_path().starts_with(system)) {
            let why =
                format!("every script may read the folder of the configuration, which is in {}", system.display());
            problems.warning(
                path,
                why,
                "move the configuration and its tokens to a folder of their own, such as /etc/appset-gateway",
            );
        }
        let user = self.user.map(|name| problems.note(&path.key("user"), find_user(name)));
        let all = |listed: &[PathBuf]| listed.iter().map(|one| base.resolve(one)).collect::<Vec<_>>();
        let mut readable = all(&self.allow.read);
        readable.extend(files_of(program, arguments, base));
        readable.sort_unstable();
        readable.dedup();
        let limits = ProcessLimits {
            cpu: self.limits.cpu.map(|time| time.0.as_secs().max(1)),
            memory: Some(self.limits.memory.0),
            file_size: Some(self.limits.file_size.0),
            open_files: Some(self.limits.open_files),
            processes: self.limits.processes,
        };
        let (writable, network) = (all(&self.allow.write), self.network);
        Some(LaunchOptions {
            limits,
            readable,
            writable,
            user: user.map_or(Some(None), |user| user.map(Some))?,
            network,
        })
    }
}

/// The files and folders of a program, and those that its arguments name.
pub(crate) fn files_of(program: &FilePath, arguments: &[String], base: &BaseDir) -> Vec<PathBuf> {
    let mut found = belongings::of_program(program, base);
    found.extend(arguments.iter().filter_map(|argument| of_argument(argument, base)));
    found
}

/// The folder that an argument names, or the folder of the file that it names, so that the program finds the files beside it. A
/// folder counts only if the argument has a `/`.
fn of_argument(argument: &str, base: &BaseDir) -> Option<PathBuf> {
    let path = base.resolve(argument);
    let folder = if path.is_dir() { Some(path.as_path()) } else { path.parent() };
    if !path.exists() || (path.is_dir() && !argument.contains('/')) {
        return None;
    }
    let folder = folder.filter(|folder| belongings::is_harmless(folder, base));
    folder.map(FilePath::to_owned).or_else(|| path.is_file().then_some(path))
}

/// Why a script cannot run as a user.
#[derive(Debug, thiserror::Error)]
enum UserError {
    #[error("`{group}` is not a group's number")]
    NotAGroup {
        group: String,
        #[source]
        cause: ParseIntError,
    },
    #[error("there is no user `{0}`")]
    Unknown(String),
    #[error("the user `{name}` cannot be looked up: {cause}")]
    NoLookup {
        name: String,
        #[source]
        cause: Errno,
    },
    #[error("only root can run programs as another user; the gateway runs as user {0}")]
    NotRoot(Uid),
}

/// The user with this name or number: `nobody`, `65534`, `1000:1000`.
fn find_user(name: &str) -> Result<ProgramUser, UserError> {
    let (user, group) = name.split_once(':').map_or((name, None), |(user, group)| (user, Some(group)));
    let group = group.map(|group| {
        let not_a_group = |cause| UserError::NotAGroup { group: group.to_owned(), cause };
        group.parse::<u32>().map_err(not_a_group)
    });
    let group = group.transpose()?;
    let found = if let Ok(uid) = user.parse::<u32>() {
        ProgramUser { uid, gid: group.unwrap_or(uid) }
    } else {
        let found =
            SystemUser::from_name(user).map_err(|cause| UserError::NoLookup { name: user.to_owned(), cause })?;
        let found = found.ok_or_else(|| UserError::Unknown(user.to_owned()))?;
        ProgramUser { uid: found.uid.as_raw(), gid: group.unwrap_or(found.gid.as_raw()) }
    };
    let own = Uid::effective();
    if !own.is_root() && own.as_raw() != found.uid {
        return Err(UserError::NotRoot(own));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_read_only_its_own_folders() {
        let folder = tempfile::tempdir().unwrap();
        let path = |inner: &str| folder.path().join(inner);
        for inner in ["config/secrets", "tool/bin", "tool/lib", "lone"] {
            std::fs::create_dir_all(path(inner)).unwrap();
        }
        for inner in ["tool/bin/run", "lone/run", "config/secrets/token", "config/run", "config/list"] {
            std::fs::write(path(inner), "").unwrap();
        }
        let base = BaseDir::new(path("config"));
        let found = |program: &str, arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
            let mut found = files_of(&path(program), &arguments, &base);
            found.sort();
            found.dedup();
            found
        };
        assert_eq!(found("tool/bin/run", &[]), [path("tool"), path("tool/bin"), path("tool/bin/run")]);
        assert_eq!(found("lone/run", &[]), [path("lone"), path("lone/run")]);
        assert_eq!(found("config/run", &["get", "secrets", "list"]), [path("config/list"), path("config/run")]);
        assert_eq!(found("config/run", &["./secrets"]), [path("config/run"), path("config/./secrets")]);
        assert_eq!(files_of(FilePath::new("/bin/sh"), &[], &base), [FilePath::new("/bin/sh")]);
        // Must be empty wherever the test runs.
        for relative in ["run", "./run", "bin/run", "../run"] {
            assert!(files_of(FilePath::new(relative), &[], &base).is_empty());
        }
        let temporary = tempfile::NamedTempFile::new_in(std::env::temp_dir()).unwrap();
        assert_eq!(files_of(temporary.path(), &[], &base), [temporary.path()]);
    }

    #[test]
    fn a_configuration_that_every_script_may_read_is_a_warning() {
        let confinement = Confinement {
            allow: &AllowConfig::default(),
            limits: LimitsConfig::default(),
            user: None,
            network: Network::Host,
        };
        for (folder, count) in [("/usr/local/etc", 1), ("/etc/appset-gateway", 0)] {
            let mut problems = Problems::default();
            confinement.terms(
                FilePath::new("/bin/sh"),
                &[],
                &BaseDir::new(PathBuf::from(folder)),
                &Path::root(),
                &mut problems,
            );
            assert_eq!(problems.into_vec().len(), count, "{folder}");
        }
    }
}

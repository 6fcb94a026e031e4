//! What a script may do, as the configuration says it.

use std::path::{Path as FilePath, PathBuf};

use nix::unistd::{Uid, User as SystemUser};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    clients::launcher::{LaunchOptions, Network, ProcessLimits, ProgramUser, SYSTEM},
    domain::{
        problem::{Path, Problems},
        units::{ByteSize, HumanDuration},
    },
    file::base_dir::BaseDir,
};

/// The smallest limit of open files: a launcher needs some itself.
const LEAST_FILES: u64 = 16;

/// What the folders are called in which programs are installed, side by side with their libraries (`shims`: pyenv and its kind).
const INSTALLED: [&str; 3] = ["bin", "sbin", "shims"];

/// Files and folders that a script may use besides those of the system, of its program and of its own work folder.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AllowConfig {
    /// It may read and run these, and what is below them.
    #[serde(default)]
    pub(crate) read: Vec<PathBuf>,
    /// It may read, run, change and remove these, and what is below them.
    #[serde(default)]
    pub(crate) write: Vec<PathBuf>,
}

/// What each process of a script may use.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct LimitsConfig {
    /// Processor time; no limit unless set, since `timeout` ends it anyway.
    pub(crate) cpu: Option<HumanDuration>,
    /// Memory.
    pub(crate) memory: ByteSize,
    /// The largest file that it may write.
    pub(crate) file_size: ByteSize,
    /// How many files it may have open.
    #[schemars(range(min = 16))]
    pub(crate) open_files: u64,
    /// How many processes its user may have, those of the gateway and of others with the same number included; no limit
    /// unless set. Has no effect on root.
    pub(crate) processes: Option<u64>,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self { cpu: None, memory: ByteSize::mib(1024), file_size: ByteSize::mib(64), open_files: 256, processes: None }
    }
}

/// Who runs a script and what with, as the configuration says it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Confinement<'a> {
    /// What it may use besides what everybody may.
    pub(crate) allow: &'a AllowConfig,
    /// What each process may use.
    pub(crate) limits: LimitsConfig,
    /// As whom it runs.
    pub(crate) user: Option<&'a str>,
    /// Whether it has a network.
    pub(crate) network: Network,
}

impl Confinement<'_> {
    /// The terms for `program` with `arguments`, which belong to it as far as they name files.
    pub(crate) fn terms(
        self,
        program: &FilePath,
        arguments: &[String],
        base: &BaseDir,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<LaunchOptions> {
        if self.limits.open_files < LEAST_FILES {
            let at = path.key("limits").key("openFiles");
            problems.error(&at, format!("with fewer than {LEAST_FILES} open files few programs start"));
        }
        let allow_path = path.key("allow");
        for (key, listed) in [("read", &self.allow.read), ("write", &self.allow.write)] {
            for (index, one) in listed.iter().enumerate() {
                let (at, one) = (allow_path.key(key).index(index), base.resolve(one));
                if !one.exists() {
                    problems.warning(&at, format!("there is no {}", one.display()), "what is not there cannot be used");
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
        readable.extend(belongings(program, arguments, base));
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

/// What belongs to a program and its arguments, as far as they name files.
pub(crate) fn belongings(program: &FilePath, arguments: &[String], base: &BaseDir) -> Vec<PathBuf> {
    let mut found = of_program(program, base);
    found.extend(arguments.iter().filter_map(|argument| of_argument(argument, base)));
    found
}

/// What belongs to a program: its folder, and where that is the [`INSTALLED`] one of something, as in `/opt/tool/bin`, all of
/// that. Never the folder of the configuration, nor one above it.
fn of_program(program: &FilePath, base: &BaseDir) -> Vec<PathBuf> {
    // One that is named relative to the work folder lies in it.
    if !program.is_absolute() {
        return Vec::new();
    }
    let mut found = vec![program.to_owned()];
    for program in [Some(program.to_owned()), program.canonicalize().ok()].into_iter().flatten() {
        let folder = program.parent();
        let is_bin = |folder: &&FilePath| {
            INSTALLED.iter().any(|name| folder.ends_with(name)) && !folder.starts_with(base.as_path())
        };
        let installed = folder.filter(is_bin).and_then(FilePath::parent);
        let folders = folder.into_iter().chain(installed);
        let folders = folders.filter(|folder| is_harmless(folder, base) && !is_of_system(folder));
        found.extend(folders.map(FilePath::to_owned));
    }
    found
}

/// What an argument names, if it names something: a file's folder, so that it finds what lies beside it. A word is no folder.
fn of_argument(argument: &str, base: &BaseDir) -> Option<PathBuf> {
    let path = base.resolve(argument);
    let folder = if path.is_dir() { Some(path.as_path()) } else { path.parent() };
    if !path.exists() || (path.is_dir() && !argument.contains('/')) {
        return None;
    }
    let folder = folder.filter(|folder| is_harmless(folder, base));
    folder.map(FilePath::to_owned).or_else(|| path.is_file().then_some(path))
}

/// Whether a folder holds neither the configuration, nor somebody's home, nor the folders of other runs.
fn is_harmless(folder: &FilePath, base: &BaseDir) -> bool {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let others = std::env::home_dir().into_iter().chain([std::env::temp_dir()]);
    let holds = |other: &FilePath| other.canonicalize().unwrap_or_else(|_| other.to_owned()).starts_with(&folder);
    folder.parent().is_some() && !holds(base.as_path()) && !others.into_iter().any(|other| holds(&other))
}

/// Whether everybody may read a folder anyway, so that it need not be looked at before each run.
fn is_of_system(folder: &FilePath) -> bool {
    folder.canonicalize().is_ok_and(|folder| SYSTEM.iter().any(|system| folder.starts_with(system)))
}

/// The user called `name`, or numbered so: `nobody`, `65534`, `1000:1000`.
fn find_user(name: &str) -> Result<ProgramUser, String> {
    let (user, group) = name.split_once(':').map_or((name, None), |(user, group)| (user, Some(group)));
    let group = group.map(|group| group.parse::<u32>().map_err(|_| format!("`{group}` is not a group's number")));
    let group = group.transpose()?;
    let found = if let Ok(uid) = user.parse::<u32>() {
        ProgramUser { uid, gid: group.unwrap_or(uid) }
    } else {
        let found = SystemUser::from_name(user).ok().flatten().ok_or_else(|| format!("there is no user `{user}`"))?;
        ProgramUser { uid: found.uid.as_raw(), gid: group.unwrap_or(found.gid.as_raw()) }
    };
    let own = Uid::effective();
    if !own.is_root() && own.as_raw() != found.uid {
        return Err(format!("only root can run programs as another user; the gateway runs as user {own}"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_program_is_little() {
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
            let mut found = belongings(&path(program), &arguments, &base);
            found.sort();
            found.dedup();
            found
        };
        assert_eq!(found("tool/bin/run", &[]), [path("tool"), path("tool/bin"), path("tool/bin/run")]);
        assert_eq!(found("lone/run", &[]), [path("lone"), path("lone/run")]);
        assert_eq!(found("config/run", &["get", "secrets", "list"]), [path("config/list"), path("config/run")]);
        assert_eq!(found("config/run", &["./secrets"]), [path("config/run"), path("config/./secrets")]);
        assert_eq!(belongings(FilePath::new("/bin/sh"), &[], &base), [FilePath::new("/bin/sh")]);
        // The test itself stands in a folder that holds nothing secret, a launcher in the root.
        for relative in ["run", "./run", "bin/run", "../run"] {
            assert!(belongings(FilePath::new(relative), &[], &base).is_empty());
        }
        let temporary = tempfile::NamedTempFile::new_in(std::env::temp_dir()).unwrap();
        assert_eq!(belongings(temporary.path(), &[], &base), [temporary.path()]);
    }

    #[test]
    fn a_configuration_where_everybody_may_read_is_pointed_out() {
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

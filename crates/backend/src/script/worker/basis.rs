//! The program, environment and files with which a worker was started. A worker is outdated when any of these changed.

use std::{borrow::Cow, ffi::OsStr, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use launcher::{Environment, Identities, LauncherPool, Program};

/// A program with its environment, secrets included, and the state of its files.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Basis<'a> {
    program: Arc<Program>,
    environment: Environment<'a>,
    usable: Identities,
    files: Vec<Option<Version>>,
}

/// Identifies a file's content: device, inode, length, and time of change in seconds and nanoseconds.
type Version = (u64, u64, u64, i64, i64);

impl<'a> Basis<'a> {
    /// The basis with which `program` would be started now.
    pub(super) fn now(launchers: &LauncherPool, program: &Arc<Program>, environment: Environment<'a>) -> Self {
        let folder = program.folder.as_deref().unwrap_or(Path::new("/"));
        let version = |path: &Path| {
            let data = folder.join(path).metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some((data.dev(), data.ino(), data.len(), data.mtime(), data.mtime_nsec()))
        };
        // Neither an option nor inline code names a file.
        let may_name = |argument: &&String| !argument.starts_with('-') && !argument.contains('\n');
        let named = program.arguments.iter().filter(may_name).map(Path::new);
        let files = std::iter::once(program.path.as_path()).chain(named).map(version).collect();
        // The program's version says which file it is.
        Self { usable: launchers.identities_but(&program.path), program: Arc::clone(program), environment, files }
    }

    /// The same, without borrowed values.
    pub(super) fn into_owned(self) -> Basis<'static> {
        let Self { program, environment, usable, files } = self;
        let owned =
            |(name, value): (Cow<'_, str>, Cow<'_, OsStr>)| (name.into_owned().into(), value.into_owned().into());
        Basis { program, environment: environment.into_iter().map(owned).collect(), usable, files }
    }

    /// The program.
    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    /// The program's environment.
    pub(super) const fn environment(&self) -> &Environment<'a> {
        &self.environment
    }
}

impl std::fmt::Debug for Basis<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Basis").field("program", &self.program.path).finish_non_exhaustive()
    }
}

//! What a worker was started with: when that has changed, it knows something old.

use std::{os::unix::fs::MetadataExt, path::Path};

use crate::launcher::{Bay, Identities, Program};

/// A program with its environment, secrets included, and the state of its files.
#[derive(Clone, PartialEq, Eq)]
pub struct Basis {
    program: Program,
    usable: Identities,
    files: Vec<Option<Version>>,
}

/// Which content a file has: its device, number, length and when it was changed, in seconds and nanoseconds.
type Version = (u64, u64, u64, i64, i64);

impl Basis {
    /// What `program` would be started with now.
    pub fn now(bay: &Bay, program: Program) -> Self {
        let folder = program.folder.as_deref().unwrap_or(Path::new("/"));
        let version = |path: &Path| {
            let data = folder.join(path).metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some((data.dev(), data.ino(), data.len(), data.mtime(), data.mtime_nsec()))
        };
        // An option names no file, and neither does a program that stands there itself.
        let may_name = |argument: &&String| !argument.starts_with('-') && !argument.contains('\n');
        let named = program.arguments.iter().filter(may_name).map(Path::new);
        let files = std::iter::once(program.program.as_path()).chain(named).map(version).collect();
        Self { program, usable: bay.identities(), files }
    }

    /// What is started.
    pub const fn program(&self) -> &Program {
        &self.program
    }
}

impl std::fmt::Debug for Basis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Basis").field("program", &self.program.program).finish_non_exhaustive()
    }
}

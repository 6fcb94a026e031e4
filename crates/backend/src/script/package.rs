//! The package of a script: a folder with its own programs. A Config Management Plugin also has a source folder, and each run
//! gets a fresh copy of that folder.

use std::{
    ffi::{OsStr, OsString},
    path::{Path as FilePath, PathBuf},
};

use super::executable::is_executable;
use domain::{error::BackendError, generator::Query, units::ByteSize};
use launcher::{Copied, Environment};

/// The name of the folder with a package's own programs.
const BIN: &str = "bin";
/// The most files, folders and links in a copied folder.
const MAX_FILES: usize = 20_000;
/// Variables that Argo CD sets for a Config Management Plugin and that are unknown here. They are set to nothing, because scripts
/// with `set -u` fail without them.
const UNKNOWN: [&str; 9] = [
    "ARGOCD_APP_NAMESPACE",
    "ARGOCD_APP_PROJECT_NAME",
    "ARGOCD_APP_REVISION",
    "ARGOCD_APP_REVISION_SHORT",
    "ARGOCD_APP_REVISION_SHORT_8",
    "ARGOCD_APP_SOURCE_REPO_URL",
    "ARGOCD_APP_SOURCE_TARGET_REVISION",
    "KUBE_API_VERSIONS",
    "KUBE_VERSION",
];

/// A script's package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// The package's folder.
    pub folder: PathBuf,
    /// Programs run in a copy of this folder. Without it, they run in the package's folder.
    pub source: Option<PackageSource>,
}

/// A folder that is copied for each run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageSource {
    /// The folder.
    pub folder: PathBuf,
    /// The folder as written in the configuration.
    pub name: String,
    /// The largest allowed size of the folder.
    pub max_size: ByteSize,
}

impl Package {
    /// Its identity: its folder, the folder that is copied, and the largest size of that in bytes.
    #[must_use]
    pub fn origin(&self) -> (PathBuf, Option<(PathBuf, u64)>) {
        let source = self.source.as_ref().map(|source| (source.folder.clone(), source.max_size.0));
        (self.folder.clone(), source)
    }

    /// The program called `name`, if it is one of the package's own or one in the copy.
    ///
    /// # Errors
    /// Its path, if that is not an executable file.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Result<PathBuf, PathBuf>> {
        if name.contains('/') {
            let source = self.source.as_ref().filter(|_| !FilePath::new(name).is_absolute())?;
            let program = source.folder.join(name);
            return Some(if is_executable(&program) { Ok(name.into()) } else { Err(program) });
        }
        let program = self.folder.join(BIN).join(name);
        is_executable(&program).then_some(Ok(program))
    }

    /// The folder in which programs run, or whose copy they run in.
    #[must_use]
    pub(crate) fn working(&self) -> &FilePath {
        self.source.as_ref().map_or(&self.folder, |source| &source.folder)
    }

    /// The package's own programs.
    #[must_use]
    pub(crate) fn programs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.join(BIN)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| is_executable(path)).collect()
    }

    /// The folders that programs may read.
    #[must_use]
    pub fn readable(&self) -> Vec<PathBuf> {
        let source = self.source.as_ref().map(|source| source.folder.clone());
        source.into_iter().chain([self.folder.clone()]).collect()
    }

    /// The folder that is copied for each run.
    #[must_use]
    pub fn copied(&self) -> Option<Copied> {
        self.source.as_ref().map(|source| Copied {
            from: source.folder.clone(),
            max_bytes: source.max_size.0,
            max_files: MAX_FILES,
            inside: PathBuf::new(),
            // Its user may change it.
            is_fixed: false,
        })
    }

    /// Puts the folder of the package's programs first in `PATH`.
    pub(crate) fn add_to_path(&self, variables: &mut Environment<'_>) {
        let bin = self.folder.join(BIN);
        if !bin.is_dir() {
            return;
        }
        let before = variables.iter().rfind(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let mut path: OsString = bin.into();
        if let Some(before) = before {
            path.push(":");
            path.push(before);
        }
        variables.push(("PATH".into(), path.into()));
    }

    /// Adds the variables of an Application's source, if the package has a source. Configured variables stay.
    ///
    /// # Errors
    /// When the ApplicationSet's name contains NUL.
    pub(crate) fn add_source<'a>(
        &'a self,
        variables: &mut Environment<'a>,
        query: &'a Query,
    ) -> Result<(), BackendError> {
        let Some(source) = &self.source else { return Ok(()) };
        if query.application_set.contains('\0') {
            return Err(BackendError::invalid_input("the ApplicationSet's name holds a NUL character"));
        }
        let known = [("ARGOCD_APP_NAME", &*query.application_set), ("ARGOCD_APP_SOURCE_PATH", &*source.name)];
        let all = known.into_iter().chain(UNKNOWN.into_iter().map(|name| (name, "")));
        for (name, value) in all {
            if !variables.iter().any(|(other, _)| other == name) {
                variables.push((name.into(), OsStr::new(value).into()));
            }
        }
        Ok(())
    }
}

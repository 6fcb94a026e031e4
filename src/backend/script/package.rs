//! The package that a script belongs to: a folder with programs of its own, and perhaps another folder that it works on a
//! fresh copy of, as a Config Management Plugin does.

use std::{
    ffi::{OsStr, OsString},
    path::{Path as FilePath, PathBuf},
};

use super::is_executable;
use crate::{
    clients::launcher::{Copied, Environment},
    domain::{error::BackendError, generator::Query, units::ByteSize},
};

/// The folder of a package's own programs.
const BIN: &str = "bin";
/// What Argo CD tells a Config Management Plugin of an Application's source, and that is not known here. Scripts with
/// `set -u` want them to be there.
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
    /// Where it is.
    pub(crate) folder: PathBuf,
    /// What its programs work on a copy of; they work in the package's folder unless set.
    pub(crate) source: Option<PackageSource>,
}

/// A folder that programs work on a copy of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackageSource {
    /// The folder.
    pub(crate) folder: PathBuf,
    /// As it stands in the configuration.
    pub(crate) name: String,
    /// The most that it may hold.
    pub(crate) most: ByteSize,
}

impl Package {
    /// The program called `name`, where it is the package's business: one of its own, or one in the copy.
    #[must_use]
    pub(crate) fn find(&self, name: &str) -> Option<Result<PathBuf, String>> {
        if name.contains('/') {
            let source = self.source.as_ref().filter(|_| !FilePath::new(name).is_absolute())?;
            let program = source.folder.join(name);
            let missing = || format!("{} is not an executable file", program.display());
            return Some(if is_executable(&program) { Ok(name.into()) } else { Err(missing()) });
        }
        let program = self.folder.join(BIN).join(name);
        is_executable(&program).then_some(Ok(program))
    }

    /// The folder that its programs run in, or in a copy of.
    #[must_use]
    pub(crate) fn working(&self) -> &FilePath {
        self.source.as_ref().map_or(&self.folder, |source| &source.folder)
    }

    /// What its programs may read.
    #[must_use]
    pub(crate) fn readable(&self) -> Vec<PathBuf> {
        let source = self.source.as_ref().map(|source| source.folder.clone());
        source.into_iter().chain([self.folder.clone()]).collect()
    }

    /// What is copied for a run.
    #[must_use]
    pub(crate) fn copied(&self) -> Option<Copied> {
        self.source.as_ref().map(|source| Copied { from: source.folder.clone(), max_bytes: source.most.0 })
    }

    /// Puts the package's programs before all others.
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

    /// Adds the variables of an Application's source, where there is one. What is configured stays.
    ///
    /// # Errors
    /// When the ApplicationSet's name can stand in no variable.
    pub(crate) fn tell<'a>(&'a self, variables: &mut Environment<'a>, query: &'a Query) -> Result<(), BackendError> {
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

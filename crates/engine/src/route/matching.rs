//! Whether a route takes a call: by globs over the ApplicationSet's name and parameters, by a folder, and by asking a program.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use domain::{error::BackendError, generator::Query, glob::NameGlob};
use source::Probe;

/// How many files and folders are searched at most.
const MAX_ENTRIES: usize = 100_000;

/// Why a folder cannot be searched.
#[derive(Debug, thiserror::Error)]
enum SearchError {
    /// It, or a folder in it, cannot be read.
    #[error("{}: {cause}", .path.display())]
    Io {
        /// The folder that cannot be read.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// This folder holds too many files.
    #[error("{} holds more than {MAX_ENTRIES} files, too many to search", .0.display())]
    TooMany(PathBuf),
}

/// Conditions that must all hold. Without conditions, every call fits.
#[derive(Debug, Default)]
pub struct Matcher {
    /// Over the ApplicationSet's name.
    pub application_set: Option<NameGlob>,
    /// Over its namespace.
    pub namespace: Option<NameGlob>,
    /// Parameters that must be there, and over their values.
    pub parameters: Vec<(String, NameGlob)>,
    /// A folder, and over the paths in it: one must fit.
    pub file: Option<(PathBuf, NameGlob)>,
    /// Called last.
    pub probe: Option<Arc<dyn Probe>>,
}

impl Matcher {
    /// Whether more must be checked than [`Self::fits`] does.
    #[must_use]
    pub(crate) const fn needs_file(&self) -> bool {
        self.file.is_some() || self.probe.is_some()
    }

    /// Whether it takes the call, according to a folder or a command.
    ///
    /// # Errors
    /// When the folder or the command gives no answer.
    pub async fn finds(&self, query: &Query) -> Result<bool, BackendError> {
        if let Some((folder, glob)) = self.file.clone() {
            let found = tokio::task::spawn_blocking(move || holds(&folder, &glob));
            let found = found.await.map_err(|error| BackendError::unavailable(error.to_string()))?;
            if !found.map_err(|error| BackendError::unavailable(error.to_string()))? {
                return Ok(false);
            }
        }
        match &self.probe {
            Some(probe) => probe.wants(query).await,
            None => Ok(true),
        }
    }

    /// Whether all conditions hold that need neither a file nor a command.
    #[must_use]
    pub fn fits(&self, query: &Query) -> bool {
        let parameters = &*query.parameters;
        let is_in = |glob: &NameGlob| query.namespace.as_ref().is_some_and(|name| glob.matches(name));
        self.application_set.as_ref().is_none_or(|glob| glob.matches(&query.application_set))
            && self.namespace.as_ref().is_none_or(is_in)
            && self.parameters.iter().all(|(name, glob)| {
                parameters.get(name).is_some_and(|value| match value {
                    Value::String(text) => glob.matches(text),
                    other => glob.matches(&other.to_string()),
                })
            })
    }
}

/// Whether `folder` holds a file or folder whose path fits.
fn holds(folder: &Path, glob: &NameGlob) -> Result<bool, SearchError> {
    let (mut folders, mut count) = (vec![PathBuf::new()], 0);
    while let Some(inner) = folders.pop() {
        let failed = |cause| SearchError::Io { path: folder.join(&inner), cause };
        for entry in folder.join(&inner).read_dir().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = inner.join(entry.file_name());
            if glob.matches_bytes(path.as_os_str().as_encoded_bytes()) {
                return Ok(true);
            }
            count += 1;
            if count > MAX_ENTRIES {
                return Err(SearchError::TooMany(folder.to_owned()));
            }
            if entry.file_type().map_err(failed)?.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(false)
}

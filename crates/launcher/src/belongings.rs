//! The files and folders that come with a program, which it may read.

use std::path::{Path, PathBuf};

use super::terms::SYSTEM;
use domain::file::base_dir::BaseDir;

/// The names of folders with installed programs. The libraries are beside these folders. (`shims`: pyenv and similar tools.)
const INSTALLED: [&str; 3] = ["bin", "sbin", "shims"];

/// The program and its folder. For a folder with a name of [`INSTALLED`], as in `/opt/tool/bin`, also the folder above (`/opt/tool`).
/// Never the folder of the configuration or a folder above it.
#[must_use]
pub fn of_program(program: &Path, base: &BaseDir) -> Vec<PathBuf> {
    // A relative path starts from the work folder, which programs may use anyway.
    if !program.is_absolute() {
        return Vec::new();
    }
    let mut found = vec![program.to_owned()];
    for program in [Some(program.to_owned()), program.canonicalize().ok()].into_iter().flatten() {
        let folder = program.parent();
        let is_bin =
            |folder: &&Path| INSTALLED.iter().any(|name| folder.ends_with(name)) && !folder.starts_with(base.as_path());
        let installed = folder.filter(is_bin).and_then(Path::parent);
        let folders = folder.into_iter().chain(installed);
        let folders = folders.filter(|folder| is_harmless(folder, base) && !is_of_system(folder));
        found.extend(folders.map(Path::to_owned));
    }
    found
}

/// Whether a folder contains neither the configuration, nor the home folder, nor the work folders of other runs.
#[must_use]
pub fn is_harmless(folder: &Path, base: &BaseDir) -> bool {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let others = std::env::home_dir().into_iter().chain([std::env::temp_dir()]);
    let holds = |other: &Path| other.canonicalize().unwrap_or_else(|_| other.to_owned()).starts_with(&folder);
    folder.parent().is_some() && !holds(base.as_path()) && !others.into_iter().any(|other| holds(&other))
}

/// Whether every program may read a folder anyway, so that it needs no check before each run.
fn is_of_system(folder: &Path) -> bool {
    folder.canonicalize().is_ok_and(|folder| SYSTEM.iter().any(|system| folder.starts_with(system)))
}

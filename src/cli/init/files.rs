//! Writes several new files: all of them, or none.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use domain::file::replace::NewFile;

/// A file that is to be written.
#[derive(Debug)]
pub(super) struct NewText {
    /// Its path below the folder.
    pub(super) name: &'static str,
    /// Its content.
    pub(super) text: String,
    /// Its mode, before the process's mask.
    pub(super) mode: u32,
}

/// Everything that was made. It is removed again, unless all was made.
#[derive(Debug, Default)]
struct Made {
    /// Folders, each after those in which it is.
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

/// Writes all files into `folder`, or none. No file is overwritten.
///
/// # Errors
/// When a file is there already, or cannot be written. Then everything is as before.
pub(super) fn write(folder: &Path, files: &[NewText]) -> anyhow::Result<()> {
    for file in files {
        let path = folder.join(file.name);
        let is_there = fs::symlink_metadata(&path).is_ok();
        anyhow::ensure!(!is_there, "{} exists already; no file was written", path.display());
    }
    let mut made = Made::default();
    let mut new = Vec::new();
    for file in files {
        let path = folder.join(file.name);
        let written =
            made.folder(path.parent().unwrap_or(folder)).and_then(|()| NewFile::write(&path, &file.text, file.mode));
        let written = written.with_context(|| format!("cannot write {}; no file was written", path.display()))?;
        new.push((path, written));
    }
    for (path, file) in new {
        made.file(&path, file).with_context(|| format!("cannot write {}; no file was written", path.display()))?;
    }
    made.keep();
    Ok(())
}

impl Made {
    /// Makes `folder`, and those in which it is.
    fn folder(&mut self, folder: &Path) -> io::Result<()> {
        if folder.as_os_str().is_empty() || folder.is_dir() {
            return Ok(());
        }
        if let Some(parent) = folder.parent() {
            self.folder(parent)?;
        }
        fs::create_dir(folder)?;
        self.folders.push(folder.to_owned());
        Ok(())
    }

    /// Gives `file` the name `path`. An empty file keeps the name until then, so that no other file is overwritten.
    fn file(&mut self, path: &Path, file: NewFile) -> io::Result<()> {
        fs::OpenOptions::new().write(true).create_new(true).open(path)?;
        self.files.push(path.to_owned());
        file.rename_to(path)
    }

    fn keep(mut self) {
        self.files.clear();
        self.folders.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let files = self.files.iter().map(fs::remove_file);
        let folders = self.folders.iter().rev().map(fs::remove_dir);
        for error in files.chain(folders).filter_map(Result::err).filter(|error| error.kind() != ErrorKind::NotFound) {
            eprintln!("error: what was written cannot be removed: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn files() -> [NewText; 2] {
        ["a.yaml", "new/tests/b.yaml"].map(|name| NewText { name, text: "x".to_owned(), mode: 0o666 })
    }

    #[test]
    fn all_files_are_written_or_none() {
        type Before = fn(&Path) -> io::Result<()>;
        let cases: [(Before, &str); 5] = [
            (|folder| fs::write(folder.join("new"), ""), "cannot write"),
            (|folder| symlink("nowhere", folder.join("new")), "cannot write"),
            (
                |folder| fs::create_dir(folder.join("new")).and_then(|()| fs::write(folder.join("new/tests"), "")),
                "cannot write",
            ),
            (|folder| symlink("nowhere", folder.join("a.yaml")), "exists already"),
            (|folder| fs::create_dir(folder.join("a.yaml")), "exists already"),
        ];
        for (before, says) in cases {
            let folder = tempfile::tempdir().unwrap();
            before(folder.path()).unwrap();
            let names =
                || folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
            let there = names();
            let error = format!("{:#}", write(folder.path(), &files()).unwrap_err());
            assert!(error.contains(says) && error.contains("no file was written"), "{error}");
            assert_eq!(names(), there, "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &files()).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("new/tests/b.yaml")).unwrap(), "x");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn folders_that_were_made_are_removed_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let mut made = Made::default();
        made.folder(&folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/c"), "").unwrap();
        made.files.push(folder.path().join("a/b/c"));
        drop(made);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

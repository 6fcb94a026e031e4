//! Writes whole files: a reader sees the file as it was, or all of the new text, and no other file is touched.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::why;

/// The mode of a new file, before the process's mask.
const USUAL_MODE: u32 = 0o666;
/// How many random names are tried.
const ATTEMPTS: usize = 16;

/// Writes `text` to `file` as a whole. Its folder is made if it is not there. A link stays one: the file to which it leads is written. The
/// file keeps its mode.
///
/// # Errors
/// When the folder cannot be made, the file cannot be written, or is not a regular file.
pub fn replace(file: &Path, text: &str) -> io::Result<()> {
    let (file, mode) = match fs::symlink_metadata(file) {
        Ok(_) => {
            let real = file.canonicalize().map_err(|error| io::Error::new(error.kind(), why(file, error)))?;
            let data = real.metadata()?;
            if !data.is_file() {
                return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
            }
            (real, Some(data.permissions()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                fs::create_dir_all(folder)?;
            }
            (file.to_owned(), None)
        }
        Err(error) => return Err(error),
    };
    // The new file is complete and on disk before it gets its name: a crash leaves the old text or the new one, never a part.
    let new = NewFile::write(&file, text, USUAL_MODE)?;
    if let Some(mode) = mode {
        fs::set_permissions(&new.path, mode)?;
    }
    new.rename_to(&file)
}

/// A new file under a name of its own. It is removed unless it gets its final name.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
}

impl NewFile {
    /// Writes `text` to a new file in the folder of `target`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(target: &Path, text: &str, mode: u32) -> io::Result<Self> {
        let (new, mut file) = Self::create(target, mode)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(new)
    }

    fn create(target: &Path, mode: u32) -> io::Result<(Self, File)> {
        let mut attempts = 0;
        loop {
            let mut name = OsString::from(".");
            name.push(target.file_name().unwrap_or_default());
            name.push(format!(".{:016x}", fastrand::u64(..)));
            let path = target.with_file_name(name);
            match OpenOptions::new().write(true).create_new(true).mode(mode).open(&path) {
                Ok(file) => return Ok((Self { path }, file)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && attempts < ATTEMPTS => attempts += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives it the name `target`, in place of an existing file.
    ///
    /// # Errors
    /// When it cannot be renamed. Then it is removed.
    pub fn rename_to(self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // After a rename there is none.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_the_named_file_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("target.txt"), "mine").unwrap();
        symlink("target.txt", at("c.yaml.new")).unwrap();
        fs::write(at("c.yaml"), "old").unwrap();
        fs::set_permissions(at("c.yaml"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("c.yaml", at("link.yaml")).unwrap();
        replace(&at("c.yaml"), "new").unwrap();
        replace(&at("link.yaml"), "newer").unwrap();
        replace(&at("more/new.yaml"), "x").unwrap();
        assert_eq!(fs::read_to_string(at("target.txt")).unwrap(), "mine");
        assert_eq!(fs::read_to_string(at("c.yaml")).unwrap(), "newer");
        assert_eq!(fs::read_to_string(at("more/new.yaml")).unwrap(), "x");
        assert_eq!(at("c.yaml").metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_link(at("link.yaml")).unwrap(), Path::new("c.yaml"));
        assert_eq!(names(folder.path()), ["c.yaml", "c.yaml.new", "link.yaml", "more", "target.txt"]);
    }

    #[test]
    fn anything_but_a_regular_file_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("folder")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        assert!(replace(&at("folder"), "x").unwrap_err().to_string().contains("not a regular file"));
        assert!(replace(&at("dangling"), "x").unwrap_err().to_string().contains("a link to nowhere"));
        assert_eq!(names(folder.path()), ["dangling", "folder"]);
    }
}

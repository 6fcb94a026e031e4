//! The folder in which a program works: its own alone, empty when it begins, and emptied when it has ended, whatever it
//! made of it.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
};

/// The mode of a work folder: its owner's alone.
const OWN: u32 = 0o700;

/// Makes one.
///
/// # Errors
/// When it cannot be made.
pub fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(OWN).create(folder)
}

/// Whether one is as it was made.
pub fn is_as_made(folder: &Path) -> bool {
    is_own(folder) && folder.read_dir().is_ok_and(|mut entries| entries.next().is_none())
}

fn is_own(folder: &Path) -> bool {
    folder.symlink_metadata().is_ok_and(|data| data.is_dir() && data.permissions().mode() & 0o7777 == OWN)
}

/// Empties one; whether it is as it was made.
pub fn empty(folder: &Path) -> bool {
    if !is_own(folder) && fs::set_permissions(folder, Permissions::from_mode(OWN)).is_err() {
        return false;
    }
    let Ok(mut entries) = folder.read_dir() else { return false };
    entries.try_for_each(|entry| remove(&entry?.path())).is_ok()
}

/// Removes a file, or a folder with all that is in it; also folders in which nothing may be changed, as Go's module cache
/// has them.
///
/// # Errors
/// When something stays.
pub fn remove(path: &Path) -> io::Result<()> {
    if !path.symlink_metadata()?.is_dir() {
        return fs::remove_file(path);
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open(path)?;
            fs::remove_dir_all(path)
        }
        result => result,
    }
}

/// Gives back to the owner what the folders below `path` denied.
fn open(path: &Path) -> io::Result<()> {
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        fs::set_permissions(&folder, Permissions::from_mode(OWN))?;
        for entry in folder.read_dir()? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn whatever_was_made_of_it_is_undone() {
        let outer = tempfile::tempdir().unwrap();
        let (folder, other) = (outer.path().join("work"), outer.path().join("other"));
        make(&folder).unwrap();
        assert!(is_as_made(&folder) && empty(&folder));
        fs::create_dir_all(folder.join("a/b/c")).unwrap();
        assert!(!is_as_made(&folder));
        fs::write(folder.join("a/b/file"), "x").unwrap();
        fs::write(&other, "stays").unwrap();
        symlink(&other, folder.join("a/link")).unwrap();
        symlink(outer.path(), folder.join("way out")).unwrap();
        for denied in ["a/b/c", "a/b", "a", "."] {
            fs::set_permissions(folder.join(denied), Permissions::from_mode(0o555)).unwrap();
        }
        assert!(empty(&folder));
        let mode = folder.symlink_metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((folder.read_dir().unwrap().count(), mode), (0, OWN));
        assert_eq!(fs::read_to_string(&other).unwrap(), "stays");
        assert!(!empty(&outer.path().join("nowhere")));
        remove(&folder).unwrap();
        assert!(!folder.exists());
    }
}

//! Copies a folder, for programs that change the folder they work in.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit},
};

use super::wire::Copied;

/// Why a folder is not copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    #[error("{}: {cause}", .from.display())]
    NoFolder {
        from: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// The limit of the size of files is unknown.
    #[error("{0}")]
    NoLimit(#[source] Errno),
    #[error("cannot copy {}: {cause}", .path.display())]
    Entry {
        path: PathBuf,
        #[source]
        cause: EntryError,
    },
    #[error("{} holds more than {max} files, too many to copy", .from.display())]
    TooMany { from: PathBuf, max: usize },
}

/// Why a file, a folder or a link is not copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EntryError {
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It must not be copied.
    #[error("{0}")]
    Refused(String),
}

/// Copies a folder to the new folder `to`.
///
/// # Errors
/// When the folder is too large, cannot be read, or has a link that leads out of it.
pub(crate) fn copy(what: &Copied, to: &Path) -> Result<(), CopyError> {
    let from = what.from.canonicalize();
    let from = from.map_err(|cause| CopyError::NoFolder { from: what.from.clone(), cause })?;
    let (_, largest) = getrlimit(Resource::RLIMIT_FSIZE).map_err(CopyError::NoLimit)?;
    let mut run = Run { from, to: to.to_owned(), room: what.max_bytes, max: what.max_bytes, largest, count: 0 };
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let shown = run.from.join(&folder);
        let failed = |error: io::Error| CopyError::Entry { path: shown.clone(), cause: error.into() };
        DirBuilder::new().mode(0o700).create(run.to.join(&folder)).map_err(failed)?;
        for entry in run.from.join(&folder).read_dir().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            let path = folder.join(entry.file_name());
            run.count += 1;
            if run.count > what.max_files {
                return Err(CopyError::TooMany { from: run.from, max: what.max_files });
            }
            if kind.is_dir() {
                folders.push(path);
            } else {
                run.one(&path, kind.is_symlink())
                    .map_err(|cause| CopyError::Entry { path: run.from.join(&path), cause })?;
            }
        }
    }
    Ok(())
}

struct Run {
    from: PathBuf,
    to: PathBuf,
    /// The bytes that may still be copied.
    room: u64,
    max: u64,
    /// The largest file that may be written, in bytes.
    largest: u64,
    count: usize,
}

impl Run {
    /// Copies a file, or a link as a link.
    fn one(&mut self, path: &Path, is_link: bool) -> Result<(), EntryError> {
        let (from, to) = (self.from.join(path), self.to.join(path));
        if is_link {
            let target = from.read_link()?;
            if leads_out(path, &target) {
                return Err(EntryError::Refused(format!("it leads out of the folder, to {}", target.display())));
            }
            return Ok(symlink(target, to)?);
        }
        // Neither a link that replaced the file meanwhile, nor a pipe that waits for a writer.
        let flags = nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(&from)?;
        let data = file.metadata()?;
        if !data.is_file() {
            return Err(EntryError::Refused("it is neither a file nor a folder".to_owned()));
        }
        if data.len() > self.largest {
            return Err(EntryError::Refused(format!("it is larger than `limits.fileSize` ({} bytes)", self.largest)));
        }
        let mut new = File::create_new(&to)?;
        let copied = io::copy(&mut file.take((self.room + 1).min(self.largest)), &mut new)?;
        self.room = self
            .room
            .checked_sub(copied)
            .ok_or_else(|| EntryError::Refused(format!("the folder holds more than {} bytes (`maxSize`)", self.max)))?;
        let mode = std::fs::Permissions::from_mode(data.mode() & 0o777 | 0o600);
        Ok(new.set_permissions(mode)?)
    }
}

/// Whether the link at `path`, relative to the folder, leads out of it by its mere text. Landlock decides what programs
/// can reach outside.
fn leads_out(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count() - 1;
    for component in target.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_folder_are_found() {
        for (path, target, is_out) in [
            ("a", "b", false),
            ("a", "./b/../c", false),
            ("a", "../b", true),
            ("d/a", "../b", false),
            ("d/a", "../../b", true),
            ("d/a", "/etc/passwd", true),
            ("a", "..data/a", false),
        ] {
            assert_eq!(leads_out(Path::new(path), Path::new(target)), is_out, "{path} -> {target}");
        }
    }

    #[test]
    fn a_folder_is_copied_whole_or_not_at_all() {
        let from = tempfile::tempdir().unwrap();
        let to = tempfile::tempdir().unwrap();
        std::fs::create_dir(from.path().join("d")).unwrap();
        std::fs::write(from.path().join("d/run"), "12345").unwrap();
        std::fs::set_permissions(from.path().join("d/run"), std::fs::Permissions::from_mode(0o555)).unwrap();
        symlink("d/run", from.path().join("link")).unwrap();
        let attempt = |bytes: u64, name: &str| {
            let to = to.path().join(name);
            let (from, inside) = (from.path().to_owned(), PathBuf::new());
            copy(&Copied { from, max_bytes: bytes, max_files: 3, inside }, &to).map(|()| to)
        };
        let copied = attempt(5, "whole").unwrap();
        assert_eq!(std::fs::read_to_string(copied.join("link")).unwrap(), "12345");
        assert!(copied.join("link").is_symlink());
        assert_eq!(copied.join("d/run").metadata().unwrap().mode() & 0o777, 0o755);
        assert!(attempt(4, "large").unwrap_err().to_string().contains("more than 4 bytes (`maxSize`)"));
        std::fs::write(from.path().join("more"), "").unwrap();
        assert!(attempt(5, "many").unwrap_err().to_string().contains("more than 3 files"));
        std::fs::remove_file(from.path().join("more")).unwrap();
        std::fs::remove_file(from.path().join("link")).unwrap();
        symlink("/etc/passwd", from.path().join("d/out")).unwrap();
        assert!(
            attempt(5, "out").unwrap_err().to_string().contains("d/out: it leads out of the folder, to /etc/passwd")
        );
    }
}

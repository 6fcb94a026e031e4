//! Copies a folder, for programs that change the folder they work in. Each entry is reached from its open folder: with thousands of
//! small files, finding their paths would take longer than writing them.

use std::{
    ffi::{CStr, OsStr},
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit},
};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, fchmod, fstat, mkdir, mkdirat, openat, readlinkat, statat, symlinkat,
};

use super::{emptying::FOLDER, wire::Copied};

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

impl From<rustix::io::Errno> for EntryError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// The largest file that is copied by one read and one write. The kernel's own copying is quicker for larger ones only.
const SMALL: usize = 64 * 1024;
/// How a file is read: not a link that replaced it meanwhile, and not a pipe that waits for a writer.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const CREATE: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);

/// Copies a folder to the new folder `to`. Returns how many entries it has.
///
/// # Errors
/// When the folder is too large, cannot be read, or has a link that leads out of it.
pub(crate) fn copy(what: &Copied, to: &Path) -> Result<usize, CopyError> {
    let from = what.from.canonicalize();
    let from = from.map_err(|cause| CopyError::NoFolder { from: what.from.clone(), cause })?;
    let (_, largest) = getrlimit(Resource::RLIMIT_FSIZE).map_err(CopyError::NoLimit)?;
    let failed = |path: &Path| {
        let path = from.join(path);
        move |cause: EntryError| CopyError::Entry { path, cause }
    };
    let top = || {
        mkdir(to, Mode::RWXU)?;
        Ok((openat(CWD, &from, FOLDER, Mode::empty())?, openat(CWD, to, FOLDER, Mode::empty())?))
    };
    let top: (OwnedFd, OwnedFd) = top().map_err(failed(Path::new("")))?;
    let mut run = Run { room: what.max_bytes, max: what.max_bytes, largest, bytes: vec![0; SMALL].into() };
    let (mut count, mut folders) = (0, vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        let pair = open_both(&top, &folder).map_err(failed(&folder))?;
        let entries = Dir::read_from(&pair.0).map_err(|error| failed(&folder)(error.into()))?;
        for entry in entries {
            let entry = entry.map_err(|error| failed(&folder)(error.into()))?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            count += 1;
            if count > what.max_files {
                return Err(CopyError::TooMany { from, max: what.max_files });
            }
            let path = folder.join(OsStr::from_bytes(name.to_bytes()));
            match run.one(&pair, name, entry.file_type(), &path) {
                Ok(FileType::Directory) => folders.push(path),
                Ok(_) => {}
                Err(cause) => return Err(failed(&path)(cause)),
            }
        }
    }
    Ok(count)
}

/// The folder `path` of the folder to copy, and of the copy.
fn open_both((from, to): &(OwnedFd, OwnedFd), path: &Path) -> Result<(OwnedFd, OwnedFd), EntryError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    Ok((openat(from, path, FOLDER, Mode::empty())?, openat(to, path, FOLDER, Mode::empty())?))
}

struct Run {
    /// The bytes that may still be copied.
    room: u64,
    max: u64,
    /// The largest file that may be written, in bytes.
    largest: u64,
    /// The space for a small file.
    bytes: Box<[u8]>,
}

impl Run {
    /// Copies an entry from one folder to the other: a link as a link, a folder without its content. `path` is relative to the folder that is
    /// copied. Returns the kind of the entry.
    fn one(
        &mut self,
        (from, to): &(OwnedFd, OwnedFd),
        name: &CStr,
        kind: FileType,
        path: &Path,
    ) -> Result<FileType, EntryError> {
        let kind = match kind {
            // A file system that does not say so.
            FileType::Unknown => FileType::from_raw_mode(statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode),
            kind => kind,
        };
        match kind {
            FileType::Directory => mkdirat(to, name, Mode::RWXU)?,
            FileType::Symlink => {
                let target = readlinkat(from, name, Vec::new())?;
                let shown = Path::new(OsStr::from_bytes(target.to_bytes()));
                if leads_out(path, shown) {
                    return Err(EntryError::Refused(format!("it leads out of the folder, to {}", shown.display())));
                }
                symlinkat(&*target, to, name)?;
            }
            _ => self.file(from.as_fd(), to.as_fd(), name)?,
        }
        Ok(kind)
    }

    fn file(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr) -> Result<(), EntryError> {
        let mut file = File::from(openat(from, name, READ, Mode::empty())?);
        let data = fstat(&file)?;
        if FileType::from_raw_mode(data.st_mode) != FileType::RegularFile {
            return Err(EntryError::Refused("it is neither a file nor a folder".to_owned()));
        }
        let size = u64::try_from(data.st_size).unwrap_or(0);
        if size > self.largest {
            return Err(EntryError::Refused(format!("it is larger than `limits.fileSize` ({} bytes)", self.largest)));
        }
        let mode = Mode::from_raw_mode(data.st_mode & 0o777 | 0o600);
        let mut new = File::from(openat(to, name, CREATE, mode)?);
        let copied = if size <= SMALL as u64 { self.copy_small(&mut file, size, &mut new) } else { Ok(0) }?;
        let rest = if copied == size && size > 0 { 0 } else { self.copy_rest(file, copied, &mut new)? };
        self.room = self
            .room
            .checked_sub(copied + rest)
            .ok_or_else(|| EntryError::Refused(format!("the folder holds more than {} bytes (`maxSize`)", self.max)))?;
        // The process may mask rights of new files. To set them costs as much as to write a small file.
        if Mode::from_raw_mode(fstat(&new)?.st_mode & 0o777) != mode {
            fchmod(&new, mode)?;
        }
        Ok(())
    }

    /// Copies the first bytes of a file, which are all if it does not change meanwhile. Returns how many.
    fn copy_small(&mut self, file: &mut File, size: u64, new: &mut File) -> io::Result<u64> {
        let most = usize::try_from(size.min(self.room)).unwrap_or(SMALL).min(SMALL);
        let mut filled = 0;
        while filled < most {
            match file.read(&mut self.bytes[filled..most])? {
                0 => break,
                count => filled += count,
            }
        }
        new.write_all(&self.bytes[..filled])?;
        Ok(filled as u64)
    }

    /// Copies what follows the first `copied` bytes: at most a byte more than there is room for. Returns how many bytes.
    fn copy_rest(&self, file: File, copied: u64, new: &mut File) -> io::Result<u64> {
        let most = (self.room + 1).min(self.largest).saturating_sub(copied);
        io::copy(&mut file.take(most), new)
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
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn files_of_all_sizes_are_whole_and_keep_their_modes() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let sizes = [0, 1, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL];
        let content = |size: usize| (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect::<Vec<u8>>();
        for (size, mode) in sizes.into_iter().zip([0o644, 0o600, 0o755, 0o777, 0o400, 0o666]) {
            let path = from.path().join(size.to_string());
            std::fs::write(&path, content(size)).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let all = sizes.iter().sum::<usize>() as u64;
        let what = |max_bytes| Copied {
            from: from.path().to_owned(),
            max_bytes,
            max_files: 6,
            inside: PathBuf::new(),
            is_fixed: true,
        };
        let copied = to.path().join("copy");
        assert_eq!(copy(&what(all), &copied).unwrap(), 6);
        for (size, mode) in sizes.into_iter().zip([0o644, 0o600, 0o755, 0o777, 0o600, 0o666]) {
            let path = copied.join(size.to_string());
            assert_eq!(std::fs::read(&path).unwrap(), content(size), "{size}");
            assert_eq!(path.metadata().unwrap().mode() & 0o777, mode, "{size}");
        }
        let why = copy(&what(all - 1), &to.path().join("other")).unwrap_err().to_string();
        assert!(why.contains("(`maxSize`)"), "{why}");
    }

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
            let what = Copied { from, max_bytes: bytes, max_files: 3, inside, is_fixed: false };
            copy(&what, &to).map(|count| (to, count))
        };
        let (copied, count) = attempt(5, "whole").unwrap();
        assert_eq!(count, 3);
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

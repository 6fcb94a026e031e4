//! Reads files of a configuration without ever waiting. Only regular files are read: a FIFO may never end.

pub mod base_dir;
pub mod replace;

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    str::Utf8Error,
};

use nix::fcntl::OFlag;
use zeroize::{Zeroize as _, Zeroizing};

/// The largest file, in MiB: the most that a `ConfigMap` or a `Secret` can hold.
const MAX_FILE_MIB: u64 = 1;

/// Why a file cannot be read. The text does not name the file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refuses it, or it is not a regular file.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is a link to a file that is not there.
    #[error("it is a link to {}, which is not there", .to.display())]
    Dangling {
        /// The file to which it leads.
        to: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// It is larger than this many MiB.
    #[error("it is larger than {0} MiB")]
    TooLarge(u64),
    /// It is not text. The cause has only a position: the bytes may be a secret.
    #[error("it is not UTF-8")]
    NotUtf8(#[source] Utf8Error),
}

impl From<FileError> for String {
    fn from(error: FileError) -> Self {
        error.to_string()
    }
}

/// The text of `file`, which is not secret.
///
/// # Errors
/// When it is not a regular file with up to 1 MiB of UTF-8, or cannot be read.
pub fn read(file: &Path) -> Result<String, FileError> {
    Ok(std::mem::take(&mut *secret(file)?))
}

/// The same, of up to `max_mib` MiB.
///
/// # Errors
/// As [`read`].
pub fn read_up_to(file: &Path, max_mib: u64) -> Result<String, FileError> {
    let mut bytes = limited(file, max_mib)?;
    String::from_utf8(std::mem::take(&mut *bytes)).map_err(|error| FileError::NotUtf8(error.utf8_error()))
}

/// The text of the secret `file`. It is zeroed when dropped, and no other copy stays in memory.
///
/// # Errors
/// When it is not a regular file with up to 1 MiB of UTF-8, or cannot be read.
pub fn secret(file: &Path) -> Result<Zeroizing<String>, FileError> {
    match String::from_utf8(std::mem::take(&mut *bytes(file)?)) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            let position = error.utf8_error();
            error.into_bytes().zeroize();
            Err(FileError::NotUtf8(position))
        }
    }
}

/// The bytes of the secret `file`. They are zeroed when dropped, and no other copy stays in memory.
///
/// # Errors
/// When it is not a regular file with up to 1 MiB, or cannot be read.
pub fn bytes(file: &Path) -> Result<Zeroizing<Vec<u8>>, FileError> {
    limited(file, MAX_FILE_MIB)
}

/// Opens `file` with `options`, without ever waiting.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open(file: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let opened = options.custom_flags(OFlag::O_NONBLOCK.bits()).open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(opened)
}

fn limited(file: &Path, max_mib: u64) -> Result<Zeroizing<Vec<u8>>, FileError> {
    let opened = open(file, OpenOptions::new().read(true)).map_err(|error| unreachable_file(file, error))?;
    let data = opened.metadata()?;
    let max = max_mib * 1024 * 1024;
    // Allocated at once: a growing buffer leaves copies behind.
    let room = usize::try_from(data.len().min(max) + 1).unwrap_or_default();
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    opened.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(FileError::TooLarge(max_mib));
    }
    Ok(bytes)
}

/// Why `file` could not be reached. Names the target of a link: a `ConfigMap` in a pod is a folder of links.
fn unreachable_file(file: &Path, cause: io::Error) -> FileError {
    match std::fs::read_link(file) {
        Ok(to) if cause.kind() == io::ErrorKind::NotFound => FileError::Dangling { to, cause },
        _ => FileError::Io(cause),
    }
}

/// The text for the failure `error` at `file`. Names the target of a link.
#[must_use]
pub fn why(file: &Path, error: io::Error) -> String {
    unreachable_file(file, error).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_small_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("text"), "a: 1\n").unwrap();
        std::fs::write(at("most"), "x".repeat(1024 * 1024)).unwrap();
        std::fs::write(at("large"), "x".repeat(1024 * 1024 + 1)).unwrap();
        std::fs::write(at("binary"), [0xff]).unwrap();
        symlink("text", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(read(&at("link")).unwrap(), "a: 1\n");
        assert_eq!(read(&at("most")).unwrap().len(), 1024 * 1024);
        for (name, says) in [
            ("large", "it is larger than 1 MiB"),
            ("binary", "it is not UTF-8"),
            ("dangling", "it is a link to nowhere, which is not there"),
            ("fifo", "it is not a regular file"),
            (".", "it is not a regular file"),
            ("none", "No such file or directory (os error 2)"),
        ] {
            assert_eq!(read(&at(name)).unwrap_err().to_string(), says, "{name}");
        }
    }
}

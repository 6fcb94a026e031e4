//! Packs a folder as Argo CD does: tar by USTAR and PAX, and gzip.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};

use crate::archive::write::{FILE, FOLDER, Header, LINK, end, pad};

/// Why a folder is not packed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}", .path.display())]
pub(crate) struct PackError {
    path: PathBuf,
    #[source]
    cause: io::Error,
}

/// The archive of `folder`.
///
/// # Errors
/// When something in it cannot be read.
pub(crate) fn pack(folder: &Path) -> Result<Vec<u8>, PackError> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let mut left = vec![PathBuf::new()];
    while let Some(relative) = left.pop() {
        let path = folder.join(&relative);
        let failed = |cause| PackError { path: path.clone(), cause };
        let data = path.symlink_metadata().map_err(failed)?;
        let name = relative.as_os_str().as_bytes();
        let (mode, kind) = (data.permissions().mode() & 0o777, data.file_type());
        let header = |kind| Header { name, kind, mode, size: 0, link: b"" };
        if kind.is_dir() {
            if !name.is_empty() {
                header(FOLDER).write(&mut gzip).map_err(failed)?;
            }
            let names: io::Result<Vec<_>> =
                fs::read_dir(&path).and_then(|all| all.map(|one| Ok(one?.file_name())).collect());
            let mut names = names.map_err(failed)?;
            names.sort_unstable_by(|a, b| b.cmp(a));
            left.extend(names.into_iter().map(|name| relative.join(name)));
        } else if kind.is_symlink() {
            let target = path.read_link().map_err(failed)?;
            let link = target.as_os_str().as_bytes();
            Header { link, ..header(LINK) }.write(&mut gzip).map_err(failed)?;
        } else if !(kind.is_socket() || kind.is_fifo() || kind.is_block_device() || kind.is_char_device()) {
            file(&mut gzip, &path, &Header { size: data.len(), ..header(FILE) }).map_err(failed)?;
        }
    }
    let failed = |cause| PackError { path: folder.to_owned(), cause };
    end(&mut gzip).map_err(failed)?;
    gzip.finish().map_err(failed)
}

fn file(to: &mut impl Write, path: &Path, header: &Header<'_>) -> io::Result<()> {
    let from = File::open(path)?;
    header.write(to)?;
    if io::copy(&mut from.take(header.size), to)? < header.size {
        return Err(io::Error::other("it became shorter meanwhile"));
    }
    pad(to, header.size)
}

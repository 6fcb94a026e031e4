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

/// The size of a block, in bytes.
const BLOCK: usize = 512;
/// The longest name or link in a block.
const SHORT: usize = 100;
/// The largest file whose size fits a block: eleven octal digits.
const LARGEST: u64 = 0o77_777_777_777;

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
        if kind.is_dir() {
            if !name.is_empty() {
                entry(&mut gzip, name, b'5', mode, 0, b"").map_err(failed)?;
            }
            let names: io::Result<Vec<_>> =
                fs::read_dir(&path).and_then(|all| all.map(|one| Ok(one?.file_name())).collect());
            let mut names = names.map_err(failed)?;
            names.sort_unstable_by(|a, b| b.cmp(a));
            left.extend(names.into_iter().map(|name| relative.join(name)));
        } else if kind.is_symlink() {
            let target = path.read_link().map_err(failed)?;
            entry(&mut gzip, name, b'2', mode, 0, target.as_os_str().as_bytes()).map_err(failed)?;
        } else if !(kind.is_socket() || kind.is_fifo() || kind.is_block_device() || kind.is_char_device()) {
            file(&mut gzip, name, mode, &path, data.len()).map_err(failed)?;
        }
    }
    let failed = |cause| PackError { path: folder.to_owned(), cause };
    gzip.write_all(&[0; 2 * BLOCK]).map_err(failed)?;
    gzip.finish().map_err(failed)
}

fn file(to: &mut impl Write, name: &[u8], mode: u32, path: &Path, size: u64) -> io::Result<()> {
    let from = File::open(path)?;
    entry(to, name, b'0', mode, size, b"")?;
    if io::copy(&mut from.take(size), to)? < size {
        return Err(io::Error::other("it became shorter meanwhile"));
    }
    pad(to, size)
}

fn pad(to: &mut impl Write, size: u64) -> io::Result<()> {
    let missing = size.next_multiple_of(BLOCK as u64) - size;
    io::copy(&mut io::repeat(0).take(missing), to).map(drop)
}

/// Writes an entry without its content, and PAX records for what does not fit.
fn entry(to: &mut impl Write, name: &[u8], kind: u8, mode: u32, size: u64, link: &[u8]) -> io::Result<()> {
    let is_long = |text: &[u8]| text.len() > SHORT;
    let mut records = Vec::new();
    for (key, text) in [("path", name), ("linkpath", link)].into_iter().filter(|(_, text)| is_long(text)) {
        records.extend(record(key, text));
    }
    if size > LARGEST {
        records.extend(record("size", size.to_string().as_bytes()));
    }
    if !records.is_empty() {
        let length = records.len() as u64;
        to.write_all(&block(b"PaxHeaders.0/x", b'x', 0o644, length, b""))?;
        to.write_all(&records)?;
        pad(to, length)?;
    }
    to.write_all(&block(&name[..name.len().min(SHORT)], kind, mode, size.min(LARGEST), &link[..link.len().min(SHORT)]))
}

/// `length key=value\n`, where the length counts itself.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [length.to_string().as_bytes(), b" ", key.as_bytes(), b"=", value, b"\n"].concat()
}

fn block(name: &[u8], kind: u8, mode: u32, size: u64, link: &[u8]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name);
    put(100, format!("{mode:07o}").as_bytes());
    put(124, format!("{size:011o}").as_bytes());
    put(136, b"00000000000");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block
}

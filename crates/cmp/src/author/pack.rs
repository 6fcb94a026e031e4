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

/// Kinds of entries.
const FILE: u8 = b'0';
const LINK: u8 = b'2';
const FOLDER: u8 = b'5';
const PAX: u8 = b'x';

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
    gzip.write_all(&[0; 2 * BLOCK]).map_err(failed)?;
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

fn pad(to: &mut impl Write, size: u64) -> io::Result<()> {
    let missing = size.next_multiple_of(BLOCK as u64) - size;
    io::copy(&mut io::repeat(0).take(missing), to).map(drop)
}

/// What stands before the content of an entry.
struct Header<'a> {
    name: &'a [u8],
    /// The kind (`typeflag`).
    kind: u8,
    mode: u32,
    size: u64,
    /// The target of a link.
    link: &'a [u8],
}

impl Header<'_> {
    /// Writes it, and before it PAX records for what does not fit.
    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let is_long = |text: &[u8]| text.len() > SHORT;
        let mut records = Vec::new();
        for (key, text) in [("path", self.name), ("linkpath", self.link)].into_iter().filter(|(_, text)| is_long(text))
        {
            records.extend(record(key, text));
        }
        if self.size > LARGEST {
            records.extend(record("size", self.size.to_string().as_bytes()));
        }
        if !records.is_empty() {
            let size = records.len() as u64;
            let before = Header { name: b"PaxHeaders.0/x", kind: PAX, mode: 0o644, size, link: b"" };
            to.write_all(&before.block())?;
            to.write_all(&records)?;
            pad(to, size)?;
        }
        to.write_all(&self.block())
    }

    /// The block, with as much of each field as fits.
    fn block(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.name[..self.name.len().min(SHORT)]);
        put(100, format!("{:07o}", self.mode).as_bytes());
        put(124, format!("{:011o}", self.size.min(LARGEST)).as_bytes());
        put(136, b"00000000000");
        put(148, b"        ");
        put(156, &[self.kind]);
        put(157, &self.link[..self.link.len().min(SHORT)]);
        put(257, b"ustar\x0000");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block
    }
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

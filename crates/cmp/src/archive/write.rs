//! Writes tar as Go does for Argo CD: USTAR, with PAX records for what does not fit.

use std::io::{self, Read, Write};

use super::{
    ArchiveError,
    intake::Archive,
    walk::{Visitor, walk},
};

/// The size of a block, in bytes.
const BLOCK: usize = 512;
/// The longest name or link in a block.
const SHORT: usize = 100;
/// The largest file whose size fits a block: eleven octal digits.
const LARGEST: u64 = 0o77_777_777_777;

/// A file.
pub(crate) const FILE: u8 = b'0';
/// A symbolic link.
pub(crate) const LINK: u8 = b'2';
/// A folder.
pub(crate) const FOLDER: u8 = b'5';
const PAX: u8 = b'x';

/// What stands before the content of an entry.
pub(crate) struct Header<'a> {
    /// Its path.
    pub(crate) name: &'a [u8],
    /// The kind (`typeflag`).
    pub(crate) kind: u8,
    /// Its permissions.
    pub(crate) mode: u32,
    /// The bytes that follow.
    pub(crate) size: u64,
    /// The target of a link.
    pub(crate) link: &'a [u8],
}

impl Header<'_> {
    /// Writes it, and before it PAX records for what does not fit.
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
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

/// Fills the last block of `size` bytes.
pub(crate) fn pad(to: &mut impl Write, size: u64) -> io::Result<()> {
    let missing = size.next_multiple_of(BLOCK as u64) - size;
    io::copy(&mut io::repeat(0).take(missing), to).map(drop)
}

/// The end of an archive.
pub(crate) fn end(to: &mut impl Write) -> io::Result<()> {
    to.write_all(&[0; 2 * BLOCK])
}

/// Writes what is in `archive` as another one, without compression: no times and owners, and `.git` only if `has_git`. Blocks.
///
/// # Errors
/// When the archive cannot be read again, or `to` fails.
pub(crate) fn repack(archive: &Archive, has_git: bool, to: &mut impl Write) -> Result<(), ArchiveError> {
    let Archive { spool, wanted, packing, .. } = archive;
    let mut writer = Repacking { to, size: 0 };
    walk(spool.reader(), *packing, &wanted.limits, has_git, &mut writer)?;
    end(to).map_err(ArchiveError::store(b"end"))
}

struct Repacking<'a, W> {
    to: &'a mut W,
    /// The size of the present file.
    size: u64,
}

impl<W: Write> Repacking<'_, W> {
    fn header(&mut self, path: &[u8], kind: u8, mode: u32, link: &[u8]) -> Result<(), ArchiveError> {
        Header { name: path, kind, mode, size: self.size, link }.write(self.to).map_err(ArchiveError::store(path))
    }
}

impl<W: Write> Visitor for Repacking<'_, W> {
    fn folder(&mut self, path: &[u8]) -> Result<(), ArchiveError> {
        self.header(path, FOLDER, 0o755, b"")
    }

    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), ArchiveError> {
        self.header(path, LINK, 0o777, target)
    }

    fn file(&mut self, path: &[u8], is_executable: bool, size: u64) -> Result<(), ArchiveError> {
        self.size = size;
        self.header(path, FILE, if is_executable { 0o755 } else { 0o644 }, b"")
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.to.write_all(bytes).map_err(ArchiveError::store(b"content"))
    }

    fn end(&mut self) -> Result<(), ArchiveError> {
        let size = std::mem::take(&mut self.size);
        pad(self.to, size).map_err(ArchiveError::store(b"content"))
    }
}

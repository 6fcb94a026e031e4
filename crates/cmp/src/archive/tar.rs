//! Reads tar as Go's `archive/tar` writes it for Argo CD: USTAR, with PAX records for long names, long links and large files.
//!
//! Files, folders and symbolic links only. Everything else is an error: hard links, devices, GNU's formats, global records.

use std::io::{self, Read};

use super::ArchiveError;

/// The size of a block, in bytes.
const BLOCK: usize = 512;
/// The longest PAX record block, in bytes. Argo CD's are a path and a link.
const MAX_PAX: u64 = 64 * 1024;
/// PAX records that say nothing about the content.
const IGNORED: [&[u8]; 7] = [b"mtime", b"atime", b"ctime", b"uid", b"gid", b"uname", b"gname"];

/// One entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TarEntry {
    /// Its path as written.
    pub(super) path: Vec<u8>,
    /// Its kind.
    pub(super) kind: TarKind,
    /// Its permissions.
    pub(super) mode: u32,
}

/// The kind of an entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TarKind {
    /// A folder.
    Folder,
    /// A file of this many bytes.
    File(u64),
    /// A symbolic link to this.
    Link(Vec<u8>),
}

/// The entries of an archive, one after the other.
#[derive(Debug)]
pub(super) struct TarReader<R> {
    bytes: R,
    /// The rest of the present file, and the padding after it.
    left: u64,
    padding: u64,
}

/// What PAX records say about the next entry.
#[derive(Debug, Default)]
struct Pax {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl<R: Read> TarReader<R> {
    /// The entries in `bytes`.
    pub(super) fn new(bytes: R) -> Self {
        Self { bytes, left: 0, padding: 0 }
    }

    /// The reader of the bytes.
    pub(super) fn into_inner(self) -> R {
        self.bytes
    }

    /// The next entry; `None` at the end of the archive, after which only zeros may follow.
    pub(super) fn next(&mut self) -> Result<Option<TarEntry>, ArchiveError> {
        self.skip()?;
        let mut pax = None;
        loop {
            let block = self.block()?;
            if block.iter().all(|byte| *byte == 0) {
                if pax.is_some() {
                    return Err(ArchiveError::Malformed("records without an entry"));
                }
                self.end()?;
                return Ok(None);
            }
            let is_ustar = check_header(&block)?;
            if block[156] == b'x' {
                let size = number(&block[124..136])?;
                if pax.is_some() || size > MAX_PAX {
                    return Err(ArchiveError::Malformed("repeated or oversized PAX records"));
                }
                (self.left, self.padding) = (size, padding(size));
                let mut records = Vec::new();
                self.data(|part| {
                    records.extend_from_slice(part);
                    Ok(())
                })?;
                self.skip()?;
                pax = Some(read_pax(&records)?);
                continue;
            }
            let entry = entry(&block, is_ustar, pax.unwrap_or_default())?;
            if let TarKind::File(size) = entry.kind {
                (self.left, self.padding) = (size, padding(size));
            }
            return Ok(Some(entry));
        }
    }

    /// Hands all bytes of the present file to `take`.
    pub(super) fn data(&mut self, mut take: impl FnMut(&[u8]) -> Result<(), ArchiveError>) -> Result<(), ArchiveError> {
        let mut buffer = [0; 16 * 1024];
        while self.left > 0 {
            let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
            let got = self.bytes.read(&mut buffer[..wanted]).map_err(ArchiveError::Unreadable)?;
            if got == 0 {
                return Err(ArchiveError::Unreadable(io::ErrorKind::UnexpectedEof.into()));
            }
            self.left -= got as u64;
            take(&buffer[..got])?;
        }
        Ok(())
    }

    fn skip(&mut self) -> Result<(), ArchiveError> {
        self.data(|_| Ok(()))?;
        self.left = std::mem::take(&mut self.padding);
        self.data(|_| Ok(()))
    }

    fn block(&mut self) -> Result<[u8; BLOCK], ArchiveError> {
        let mut block = [0; BLOCK];
        self.bytes.read_exact(&mut block).map_err(ArchiveError::Unreadable)?;
        Ok(block)
    }

    fn end(&mut self) -> Result<(), ArchiveError> {
        let mut buffer = [0; BLOCK];
        loop {
            match self.bytes.read(&mut buffer).map_err(ArchiveError::Unreadable)? {
                0 => return Ok(()),
                got if buffer[..got].iter().all(|byte| *byte == 0) => {}
                _ => return Err(ArchiveError::Malformed("data after its end")),
            }
        }
    }
}

/// The bytes up to the next whole block.
fn padding(size: u64) -> u64 {
    // Without the next multiple, which a size that lies may make too large.
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}

/// Checks a header of an entry or of its records. Returns whether it is one of USTAR, and not an older one.
fn check_header(block: &[u8; BLOCK]) -> Result<bool, ArchiveError> {
    check_sum(block)?;
    let is_ustar = &block[257..265] == b"ustar\x0000";
    if !is_ustar && block[257..265].iter().any(|byte| *byte != 0) {
        return Err(ArchiveError::Malformed("a format that is not USTAR or PAX"));
    }
    // star's format has times there, and a shorter prefix.
    if is_ustar && block[500..].iter().any(|byte| *byte != 0) {
        return Err(ArchiveError::Malformed("a header has bytes after its prefix"));
    }
    mode(block)?;
    Ok(is_ustar)
}

/// The permissions in a header.
fn mode(block: &[u8; BLOCK]) -> Result<u32, ArchiveError> {
    Ok(u32::try_from(number(&block[100..108])?).unwrap_or(u32::MAX) & 0o7777)
}

/// The entry that a header begins.
fn entry(block: &[u8; BLOCK], is_ustar: bool, pax: Pax) -> Result<TarEntry, ArchiveError> {
    let mut path = text(&block[..100]).to_vec();
    let prefix = text(&block[345..500]);
    if is_ustar && !prefix.is_empty() {
        path = [prefix, b"/", &path].concat();
    }
    let path = pax.path.unwrap_or(path);
    let size = pax.size.map_or_else(|| number(&block[124..136]), Ok)?;
    let mode = mode(block)?;
    let kind = match block[156] {
        // For some readers it is a folder.
        b'0' | 0 if path.ends_with(b"/") => {
            return Err(ArchiveError::entry(&path, "is a file whose name ends with a slash"));
        }
        b'0' | 0 => TarKind::File(size),
        b'5' if size == 0 => TarKind::Folder,
        b'2' if size == 0 => TarKind::Link(pax.link.unwrap_or_else(|| text(&block[157..257]).to_vec())),
        b'2' | b'5' => return Err(ArchiveError::entry(&path, "is a folder or link with content")),
        b'1' => {
            return Err(ArchiveError::entry(
                &path,
                "is a hard link: only files, folders and symbolic links are accepted",
            ));
        }
        kind => {
            let kind = char::from(kind).escape_default();
            let why = format!("has the type `{kind}`: only files, folders and symbolic links are accepted");
            return Err(ArchiveError::entry(&path, why));
        }
    };
    Ok(TarEntry { path, kind, mode })
}

/// A text up to its NUL.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// An octal number: digits, then spaces and NULs only. Readers differ about anything else, such as a NUL before the digits.
fn number(field: &[u8]) -> Result<u64, ArchiveError> {
    let end = field.iter().rposition(|byte| !matches!(byte, 0 | b' ')).map_or(0, |last| last + 1);
    field[..end].iter().try_fold(0_u64, |number, digit| match digit {
        // Twelve digits fit.
        b'0'..=b'7' => Ok(number * 8 + u64::from(digit - b'0')),
        _ => Err(ArchiveError::Malformed("a number is not octal")),
    })
}

fn check_sum(block: &[u8; BLOCK]) -> Result<(), ArchiveError> {
    let sum: u64 =
        block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) }).sum();
    if number(&block[148..156])? == sum {
        Ok(())
    } else {
        Err(ArchiveError::Malformed("a checksum of a block is wrong"))
    }
}

/// Reads records of the form `length key=value\n`.
fn read_pax(mut records: &[u8]) -> Result<Pax, ArchiveError> {
    const MALFORMED: ArchiveError = ArchiveError::Malformed("a PAX record is malformed");
    let mut pax = Pax::default();
    while !records.is_empty() {
        let space = records.iter().take(8).position(|byte| *byte == b' ').ok_or(MALFORMED)?;
        let length =
            std::str::from_utf8(&records[..space]).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let length: usize = length.and_then(|text| text.parse().ok()).ok_or(MALFORMED)?;
        let record = records.get(space + 1..length).and_then(|record| record.strip_suffix(b"\n")).ok_or(MALFORMED)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or(MALFORMED)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        if value.contains(&0) {
            return Err(ArchiveError::Malformed("a PAX record contains a zero byte"));
        }
        if value.is_empty() {
            // For Go, the header's own value counts then; for others, nothing does.
            return Err(ArchiveError::Malformed("a PAX record is empty"));
        }
        let is_new = match key {
            b"path" => pax.path.replace(value.to_vec()).is_none(),
            b"linkpath" => pax.link.replace(value.to_vec()).is_none(),
            b"size" => {
                let digits =
                    std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                let size = digits.and_then(|text| text.parse().ok()).ok_or(MALFORMED)?;
                pax.size.replace(size).is_none()
            }
            _ if IGNORED.contains(&key) && is_sound(key, value) => true,
            _ => return Err(ArchiveError::Malformed("a PAX record of an unknown kind, or with a wrong value")),
        };
        if !is_new {
            return Err(ArchiveError::Malformed("a PAX record is repeated"));
        }
        records = &records[length..];
    }
    Ok(pax)
}

/// Whether a record that says nothing about the content has a value that Go reads: a name, a number, or a time in seconds.
fn is_sound(key: &[u8], value: &[u8]) -> bool {
    // 18 digits fit in 64 bits.
    let is_number = |text: &[u8]| (1..=18).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    match key {
        b"uname" | b"gname" => true,
        b"uid" | b"gid" => is_number(value),
        _ => {
            let value = value.strip_prefix(b"-").unwrap_or(value);
            let mut parts = value.splitn(2, |byte| *byte == b'.');
            parts.next().is_some_and(is_number) && parts.next().is_none_or(|rest| rest.iter().all(u8::is_ascii_digit))
        }
    }
}

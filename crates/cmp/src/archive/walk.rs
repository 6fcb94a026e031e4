//! Visits the entries of an archive, within limits. Both readings use it, so they cannot differ.

use std::io::{self, BufReader, Read};

use flate2::read::MultiGzDecoder;
use serde::Deserialize;

use super::{
    ArchiveError,
    tar::{TarEntry, TarKind, TarReader},
};
use domain::units::ByteSize;

/// Below this many bytes, the ratio of the sizes does not matter: a small repository may compress well.
const RATIO_FREE: u64 = 64 * 1024 * 1024;
/// How far back a compressed archive may refer, as a power of two: the memory that reading it takes.
const WINDOW: u32 = 23;
/// The longest path, and the longest part of one, in bytes (Linux's limits).
const MAX_PATH: usize = 4095;
const MAX_NAME: usize = 255;

/// The limits of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ArchiveLimits {
    /// The bytes of the archive without compression, which is about those of all files.
    pub(crate) bytes: ByteSize,
    /// Files, folders and links.
    pub(crate) files: usize,
    /// How many times larger than the compressed archive it may be. Counts above 64 MiB.
    pub(crate) ratio: u64,
    /// How many folders a file may be in.
    pub(crate) depth: usize,
}

impl Default for ArchiveLimits {
    fn default() -> Self {
        Self { bytes: ByteSize::mib(4096), files: 500_000, ratio: 200, depth: 100 }
    }
}

/// How an archive is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// As Argo CD does it.
    Gzip,
    /// As the relay does it. The limit of the ratio does not count: the relay has checked it.
    Zstd,
}

/// What is done with the entries.
pub(super) trait Visitor {
    /// A folder.
    fn folder(&mut self, path: &[u8]) -> Result<(), ArchiveError>;
    /// A symbolic link to `target`.
    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), ArchiveError>;
    /// A file of `size` bytes begins. They follow.
    fn file(&mut self, path: &[u8], is_executable: bool, size: u64) -> Result<(), ArchiveError>;
    /// Bytes of the file.
    fn data(&mut self, bytes: &[u8]) -> Result<(), ArchiveError>;
    /// The file ends.
    fn end(&mut self) -> Result<(), ArchiveError>;
}

/// Shows all entries of the archive `compressed` to `visitor`. Those of `.git` only if `has_git`. Returns the reader of the compressed bytes.
pub(super) fn walk<R: Read>(
    compressed: R,
    packing: Packing,
    limits: &ArchiveLimits,
    has_git: bool,
    visitor: &mut impl Visitor,
) -> Result<R, ArchiveError> {
    let counted = Counted { reader: compressed, count: 0 };
    let reader = Unpacking::new(BufReader::with_capacity(32 * 1024, counted), packing);
    let plain = Limited { reader: reader.map_err(ArchiveError::Unreadable)?, count: 0, limits: *limits };
    let mut tar = TarReader::new(plain);
    let mut count = 0;
    while let Some(entry) = next(&mut tar)? {
        count += 1;
        if count > limits.files {
            let what = format!("more than {} files", limits.files);
            return Err(ArchiveError::TooLarge { what, limit: "archive.files" });
        }
        let Some(path) = normal(&entry.path, limits.depth)? else {
            if entry.kind == TarKind::Folder {
                continue;
            }
            return Err(ArchiveError::entry(&entry.path, "is a file or a link in the place of the whole archive"));
        };
        if !has_git && (path == b".git" || path.starts_with(b".git/")) {
            continue;
        }
        match &entry.kind {
            TarKind::Folder => visitor.folder(&path)?,
            TarKind::Link(target) => visitor.link(&path, target)?,
            TarKind::File(size) => {
                visitor.file(&path, entry.mode & 0o111 != 0, *size)?;
                with_limits(tar.data(|bytes| visitor.data(bytes)))?;
                visitor.end()?;
            }
        }
    }
    Ok(tar.into_inner().reader.into_inner().into_inner().reader)
}

fn next<R: Read>(tar: &mut TarReader<R>) -> Result<Option<TarEntry>, ArchiveError> {
    with_limits(tar.next())
}

/// An excess is found by a reader, which can only return an error of the system.
fn with_limits<T>(result: Result<T, ArchiveError>) -> Result<T, ArchiveError> {
    result.map_err(|error| match error {
        ArchiveError::Unreadable(error) => match error.downcast::<ArchiveError>() {
            Ok(excess) => excess,
            Err(error) => ArchiveError::Unreadable(error),
        },
        other => other,
    })
}

/// `path` without `.` and repeated slashes; `None` for the archive's root.
fn normal(path: &[u8], depth: usize) -> Result<Option<Vec<u8>>, ArchiveError> {
    let refused = |why: &str| Err(ArchiveError::entry(&path[..path.len().min(200)], why));
    if path.starts_with(b"/") {
        return refused("has an absolute path");
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return refused("leads out of the archive by `..`"),
            _ if part.len() > MAX_NAME => return refused("has a name of more than 255 bytes"),
            _ => parts.push(part),
        }
    }
    if parts.len() > depth + 1 {
        return refused(&format!("is in more than {depth} folders (`archive.depth`)"));
    }
    let path = parts.join(&b'/');
    if path.len() > MAX_PATH {
        return refused("has a path of more than 4095 bytes");
    }
    Ok((!path.is_empty()).then_some(path))
}

/// Counts compressed bytes.
#[derive(Debug)]
struct Counted<R> {
    reader: R,
    count: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.reader.read(buffer)?;
        self.count += got as u64;
        Ok(got)
    }
}

/// Unpacks what it reads.
enum Unpacking<R: Read> {
    Gzip(MultiGzDecoder<BufReader<Counted<R>>>),
    Zstd(zstd::stream::read::Decoder<'static, BufReader<Counted<R>>>),
}

impl<R: Read> Unpacking<R> {
    fn new(reader: BufReader<Counted<R>>, packing: Packing) -> io::Result<Self> {
        Ok(match packing {
            Packing::Gzip => Self::Gzip(MultiGzDecoder::new(reader)),
            Packing::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(reader)?;
                decoder.window_log_max(WINDOW)?;
                Self::Zstd(decoder)
            }
        })
    }

    fn into_inner(self) -> BufReader<Counted<R>> {
        match self {
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::Zstd(decoder) => decoder.finish(),
        }
    }

    /// Whether `count` bytes are more than `ratio` times what was read, if that matters.
    fn is_beyond(&self, count: u64, ratio: u64) -> bool {
        match self {
            Self::Gzip(decoder) => count / ratio > decoder.get_ref().get_ref().count,
            Self::Zstd(_) => false,
        }
    }
}

impl<R: Read> Read for Unpacking<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

/// Uncompressed bytes, up to the limits.
struct Limited<R: Read> {
    reader: Unpacking<R>,
    count: u64,
    limits: ArchiveLimits,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.reader.read(buffer)?;
        self.count += got as u64;
        let (bytes, ratio) = (self.limits.bytes, self.limits.ratio.max(1));
        let excess = if self.count > bytes.0 {
            ArchiveError::TooLarge { what: format!("more than {bytes} without compression"), limit: "archive.bytes" }
        } else if self.count > RATIO_FREE && self.reader.is_beyond(self.count, ratio) {
            ArchiveError::TooLarge { what: format!("{ratio} times its compressed size"), limit: "archive.ratio" }
        } else {
            return Ok(got);
        };
        Err(io::Error::other(excess))
    }
}

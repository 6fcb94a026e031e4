//! Reads an archive while it arrives, on a thread that may block.

use std::{
    io::{self, Read},
    path::PathBuf,
    sync::Arc,
};

use bytes::{Buf, Bytes};
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
};

use super::{
    ArchiveError,
    index::{Entries, Indexer},
    links,
    spool::Spool,
    walk::{ArchiveLimits, Packing, walk},
};

/// How many pieces may wait for the thread.
const WAITING: usize = 16;

/// What is wanted of an archive.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Its limits.
    pub(crate) limits: ArchiveLimits,
    /// Whether `.git` belongs to it.
    pub(crate) has_git: bool,
    /// The folder of files with compressed bytes, if the archive will be extracted: names alone need neither them nor the contents' hashes.
    pub(crate) spool: Option<PathBuf>,
}

/// An archive that was read whole, and is sound.
#[derive(Debug)]
pub(crate) struct Archive {
    /// What is in it.
    pub(crate) entries: Arc<Entries>,
    /// The bytes of all files.
    pub(crate) size: u64,
    /// Its compressed bytes.
    pub(super) spool: Spool,
    /// Their number.
    pub(crate) bytes: u64,
    pub(super) wanted: Wanted,
    pub(super) packing: Packing,
}

impl Archive {
    /// Its compressed bytes as they came. Needs a spool.
    pub(crate) fn compressed(&self) -> Box<dyn Read + Send> {
        self.spool.reader()
    }
}

/// An archive that arrives.
#[derive(Debug)]
pub(crate) struct Intake {
    pieces: mpsc::Sender<Bytes>,
    reading: JoinHandle<Result<Archive, ArchiveError>>,
}

impl Intake {
    /// Begins to read an archive of Argo CD. It must have this SHA-256, in hexadecimal digits.
    pub(crate) fn begin(wanted: Wanted, checksum: String) -> Self {
        Self::reading(move |pieces| read(pieces, wanted, Packing::Gzip, Some(&checksum)))
    }

    /// Begins to read an archive of a relay. Its caller compares the digest of what is in it.
    pub(crate) fn begin_relayed(wanted: Wanted) -> Self {
        Self::reading(move |pieces| read(pieces, wanted, Packing::Zstd, None))
    }

    fn reading(read: impl FnOnce(mpsc::Receiver<Bytes>) -> Result<Archive, ArchiveError> + Send + 'static) -> Self {
        let (pieces, received) = mpsc::channel(WAITING);
        Self { pieces, reading: spawn_blocking(move || read(received)) }
    }

    /// Adds a piece. Returns whether more pieces are useful; otherwise [`Intake::finish`] has the reason.
    pub(crate) async fn add(&self, piece: Bytes) -> bool {
        piece.is_empty() || self.pieces.send(piece).await.is_ok()
    }

    /// The archive, after its last piece.
    ///
    /// # Errors
    /// When it is refused.
    pub(crate) async fn finish(self) -> Result<Archive, ArchiveError> {
        drop(self.pieces);
        self.reading.await.unwrap_or(Err(ArchiveError::Gone))
    }
}

fn read(
    pieces: mpsc::Receiver<Bytes>,
    wanted: Wanted,
    packing: Packing,
    checksum: Option<&str>,
) -> Result<Archive, ArchiveError> {
    let arriving = Arriving {
        pieces,
        now: Bytes::new(),
        hash: Sha256::new(),
        spool: Spool::default(),
        bytes: 0,
        folder: wanted.spool.clone(),
    };
    let mut indexer = Indexer::new(wanted.spool.is_some(), wanted.limits.files);
    let mut arriving = walk(arriving, packing, &wanted.limits, wanted.has_git, &mut indexer)?;
    // The decoder has stopped at the end of the compressed stream.
    io::copy(&mut arriving, &mut io::sink()).map_err(ArchiveError::Unreadable)?;
    let Arriving { hash, spool, bytes, .. } = arriving;
    let mut text = [0; 64];
    let sum = base16ct::lower::encode_str(&hash.finalize(), &mut text).unwrap_or_default();
    if checksum.is_some_and(|checksum| sum != checksum) {
        return Err(ArchiveError::Checksum);
    }
    let (entries, size) = indexer.finish();
    links::check(&entries)?;
    Ok(Archive { entries: Arc::new(entries), size, spool, bytes, wanted, packing })
}

/// The pieces of an archive, as a reader. What was read is hashed and spooled.
#[derive(Debug)]
struct Arriving {
    pieces: mpsc::Receiver<Bytes>,
    now: Bytes,
    hash: Sha256,
    spool: Spool,
    bytes: u64,
    folder: Option<PathBuf>,
}

impl Read for Arriving {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.now.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => {
                    self.hash.update(&piece);
                    self.bytes += piece.len() as u64;
                    if let Some(folder) = &self.folder {
                        self.spool.write(&piece, folder).map_err(|cause| {
                            io::Error::other(ArchiveError::Store { what: "bytes".to_owned(), cause })
                        })?;
                    }
                    self.now = piece;
                }
                None => return Ok(0),
            }
        }
        let length = self.now.len().min(buffer.len());
        self.now.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

//! What this crate makes of bytes from outside, for the fuzz targets: archives and messages. Nothing else uses it.

use std::{collections::BTreeMap, path::Path};

use bytes::Bytes;
use prost::Message;
use sha2::{Digest as _, Sha256};

use crate::{
    archive::{
        ArchiveLimits,
        extract::extract,
        index::Entry,
        intake::{Intake, Wanted},
    },
    grpc::{framing::Framing, message::AppStreamRequest},
};

/// An entry of an archive that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unpacked {
    /// A folder.
    Folder,
    /// A file with this SHA-256.
    File([u8; 32]),
    /// A symbolic link to this.
    Link(Vec<u8>),
}

/// The entries of the archive in `pieces`, by their paths, which is written to the new folder `to`. `spool` is a folder for temporary files.
///
/// # Errors
/// Why it is refused, as Argo CD shows it.
pub async fn unpack(pieces: &[&[u8]], spool: &Path, to: &Path) -> Result<BTreeMap<Vec<u8>, Unpacked>, String> {
    let wanted = Wanted { limits: ArchiveLimits::default(), has_git: true, spool: Some(spool.to_owned()) };
    let intake = Intake::begin(wanted, base16ct::lower::encode_string(&Sha256::digest(pieces.concat())));
    for piece in pieces {
        if !intake.add(Bytes::copy_from_slice(piece)).await {
            break;
        }
    }
    let archive = intake.finish().await.map_err(|error| error.to_string())?;
    let unpacked = |(path, entry): (&Vec<u8>, &Entry)| {
        let entry = match entry {
            Entry::Folder => Unpacked::Folder,
            Entry::File { content, .. } => Unpacked::File(*content),
            Entry::Link(target) => Unpacked::Link(target.clone()),
        };
        (path.clone(), entry)
    };
    let entries = archive.entries.iter().map(unpacked).collect();
    extract(archive, to, true).map_err(|error| error.to_string())?;
    Ok(entries)
}

/// The messages of a call whose bytes come in `pieces`, and why it ends before their end, if it does.
#[must_use]
pub fn messages(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Option<String>) {
    let (mut framing, mut messages) = (Framing::default(), Vec::new());
    for piece in pieces {
        framing.add(piece);
        loop {
            match framing.next() {
                Ok(Some(message)) => messages.push(message.to_vec()),
                Ok(None) => break,
                Err(status) => return (messages, Some(status.message)),
            }
        }
    }
    (messages, framing.end().err().map(|status| status.message))
}

/// `message` as this crate reads and writes a message of the stream that Argo CD sends; `None` if it is malformed.
#[must_use]
pub fn written_again(message: &[u8]) -> Option<Vec<u8>> {
    Some(AppStreamRequest::decode(message).ok()?.encode_to_vec())
}

//! What this crate makes of bytes from outside, for the fuzz targets: archives, messages, and the exchange of relays. Nothing else uses it.

use std::{collections::BTreeMap, io, path::Path};

use bytes::Bytes;
use prost::Message;
use sha2::{Digest as _, Sha256};

use crate::{
    archive::{
        ArchiveLimits,
        digest::digest,
        extract::extract,
        index::Entry,
        intake::{Archive, Intake, Wanted},
    },
    discover::by_names,
    exchange::{
        Description, PutRequest, RelayedCall, TreeName, View,
        credentials::{CredentialsMessage, CredentialsQuery},
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
    let entries = unpacked(&archive);
    extract(archive, to, true).map_err(|error| error.to_string())?;
    Ok(entries)
}

/// The digest and the entries of the tree in `pieces`, a tar by zstd, as a service takes it from a relay. `spool` is as for [`unpack`].
///
/// # Errors
/// Why it is refused, as Argo CD shows it.
pub async fn put(pieces: &[&[u8]], spool: &Path) -> Result<(String, BTreeMap<Vec<u8>, Unpacked>), String> {
    let wanted = Wanted { limits: ArchiveLimits::default(), has_git: true, spool: Some(spool.to_owned()) };
    let intake = Intake::begin_relayed(wanted);
    for piece in pieces {
        if !intake.add(Bytes::copy_from_slice(piece)).await {
            break;
        }
    }
    let archive = intake.finish().await.map_err(|error| error.to_string())?;
    Ok((digest(&archive.entries, true).to_string(), unpacked(&archive)))
}

/// `tar` as a relay compresses it.
///
/// # Errors
/// Never, in memory.
pub fn compressed(tar: &[u8]) -> io::Result<Vec<u8>> {
    zstd::encode_all(tar, 1)
}

fn unpacked(archive: &Archive) -> BTreeMap<Vec<u8>, Unpacked> {
    let unpacked = |(path, entry): (&Vec<u8>, &Entry)| {
        let entry = match entry {
            Entry::Folder => Unpacked::Folder,
            Entry::File { content, .. } => Unpacked::File(*content),
            Entry::Link(target) => Unpacked::Link(target.clone()),
        };
        (path.clone(), entry)
    };
    archive.entries.iter().map(unpacked).collect()
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

/// `message` as this crate reads and writes one of the exchange: `c` a call, `p` a part of a tree, `d` a description, `o` what a relay sends of
/// credentials, `q` a question about them. `None` if it is malformed, or of no such kind.
#[must_use]
pub fn exchanged_again(kind: u8, message: &[u8]) -> Option<Vec<u8>> {
    fn again<M: Message + Default>(message: &[u8]) -> Option<Vec<u8>> {
        Some(M::decode(message).ok()?.encode_to_vec())
    }
    match kind {
        b'c' => again::<RelayedCall>(message),
        b'p' => again::<PutRequest>(message),
        b'd' => again::<Description>(message),
        b'o' => again::<CredentialsMessage>(message),
        b'q' => again::<CredentialsQuery>(message),
        _ => None,
    }
}

/// What the rules of a description say of a folder with the file `name`: whether it is the plugin's, or why they cannot be used. `None` if the
/// plugin has no rules by names, or the message is malformed.
#[must_use]
pub fn described(message: &[u8], name: &str) -> Option<Result<bool, String>> {
    let rules = Description::decode(message).ok()?.discover();
    let entries = [(name.as_bytes().to_vec(), Entry::Folder)].into_iter().collect();
    by_names(&rules, &entries, b"").map(|found| found.map_err(|error| error.to_string()))
}

/// The digest that a tree's name in `message` has for a service without modes and `.git`, or why there is none. `None` if it is malformed.
#[must_use]
pub fn named(message: &[u8]) -> Option<Result<String, String>> {
    let name = TreeName::decode(message).ok()?;
    let digest = name.digest_in(View::default());
    Some(digest.map(|digest| digest.to_string()).map_err(|status| status.message))
}

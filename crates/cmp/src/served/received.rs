//! Receives what a call is about: metadata and an archive, or the name of a tree.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    archive::{
        digest::{TreeDigest, digest},
        index::Entries,
        intake::{Archive, Intake, Wanted},
    },
    exchange::{PutPart, PutRequest, RelayedCall, TreeName},
    grpc::{
        message::{AppStreamPart, AppStreamRequest, Metadata},
        reader::MessageReader,
        status::Status,
    },
    trees::Tree,
};

/// The first message of a call.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) metadata: Metadata,
    /// The tree, if a relay calls. Else an archive follows.
    pub(super) tree: Option<TreeName>,
    /// The offer of Git credentials. Empty if there is none.
    pub(super) offer: Bytes,
}

/// The files of a call.
#[derive(Debug)]
pub(super) struct Received {
    /// What is in them.
    pub(super) entries: Arc<Entries>,
    pub(super) files: Files,
}

/// Where the files are.
#[derive(Debug)]
pub(super) enum Files {
    /// In an archive.
    Archive(Archive),
    /// On the disk.
    Tree(Arc<Tree>, TreeDigest),
}

impl From<Archive> for Received {
    fn from(archive: Archive) -> Self {
        Self { entries: Arc::clone(&archive.entries), files: Files::Archive(archive) }
    }
}

/// The opening of a call, by a relay or by Argo CD itself.
///
/// # Errors
/// When there is none, or the client goes away.
pub(super) async fn opening(messages: &mut MessageReader, is_relayed: bool) -> Result<Opening, Status> {
    if !is_relayed {
        return Ok(Opening { metadata: metadata(messages).await?, tree: None, offer: Bytes::new() });
    }
    match messages.next::<RelayedCall>().await? {
        Some(RelayedCall { metadata: Some(metadata), tree: Some(tree), offer }) => {
            Ok(Opening { metadata, tree: Some(tree), offer })
        }
        _ => Err(Status::unknown("a relayed call has metadata and a tree")),
    }
}

/// A tree that a relay sends: its name, then a tar by zstd. `check` gives the digest of the name.
///
/// # Errors
/// When the archive is refused, or has another digest.
pub(super) async fn tree(
    messages: &mut MessageReader,
    wanted: Wanted,
    has_modes: bool,
    check: impl FnOnce(&TreeName) -> Result<TreeDigest, Status>,
) -> Result<(TreeDigest, Archive), Status> {
    let named = match messages.next::<PutRequest>().await?.and_then(|request| request.part) {
        Some(PutPart::Tree(named)) => check(&named)?,
        _ => return Err(Status::unknown("the first message does not name a tree")),
    };
    let intake = Intake::begin_relayed(wanted);
    while let Some(request) = messages.next::<PutRequest>().await? {
        let Some(PutPart::Piece(piece)) = request.part else {
            return Err(Status::unknown("a message after the name is not a piece of the tree"));
        };
        if !intake.add(piece).await {
            break;
        }
    }
    let archive = intake.finish().await.map_err(|error| Status::unknown(error.to_string()))?;
    let found = digest(&archive.entries, has_modes);
    if found == named {
        return Ok((named, archive));
    }
    Err(Status::unknown(format!("the tree that was sent is {found}, not {named} as its sender says")))
}

/// The metadata, which must be the first message.
///
/// # Errors
/// When it is not, or the client goes away.
pub(crate) async fn metadata(messages: &mut MessageReader) -> Result<Metadata, Status> {
    match messages.next::<AppStreamRequest>().await?.and_then(|request| request.part) {
        Some(AppStreamPart::Metadata(metadata)) => Ok(metadata),
        _ => Err(Status::unknown("error getting stream metadata: the first message has none")),
    }
}

/// The archive after the metadata. `holds` is asked whether so many bytes may come.
///
/// # Errors
/// When it is refused, or the client goes away.
pub(crate) async fn archive(
    messages: &mut MessageReader,
    wanted: Wanted,
    checksum: &str,
    mut holds: impl FnMut(u64) -> Result<(), Status>,
) -> Result<Archive, Status> {
    let intake = Intake::begin(wanted, checksum.to_owned());
    let mut bytes = 0;
    while let Some(request) = messages.next::<AppStreamRequest>().await? {
        let Some(AppStreamPart::File(file)) = request.part else {
            return Err(Status::unknown("a message after the metadata is not a piece of the archive"));
        };
        bytes += file.chunk.len() as u64;
        holds(bytes)?;
        if !intake.add(file.chunk).await {
            break;
        }
    }
    intake.finish().await.map_err(|error| Status::unknown(error.to_string()))
}

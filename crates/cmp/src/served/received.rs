//! Receives what Argo CD sends in a call: metadata, then an archive.

use crate::{
    archive::intake::{Archive, Intake, Wanted},
    grpc::{
        message::{AppStreamPart, AppStreamRequest, Metadata},
        reader::MessageReader,
        status::Status,
    },
};

/// The metadata, which must be the first message.
///
/// # Errors
/// When it is not, or the client goes away.
pub(super) async fn metadata(messages: &mut MessageReader) -> Result<Metadata, Status> {
    match messages.next::<AppStreamRequest>().await?.and_then(|request| request.part) {
        Some(AppStreamPart::Metadata(metadata)) => Ok(metadata),
        _ => Err(Status::unknown("error getting stream metadata: the first message has none")),
    }
}

/// The archive after the metadata.
///
/// # Errors
/// When it is refused, or the client goes away.
pub(super) async fn archive(messages: &mut MessageReader, wanted: Wanted, checksum: &str) -> Result<Archive, Status> {
    let intake = Intake::begin(wanted, checksum.to_owned());
    while let Some(request) = messages.next::<AppStreamRequest>().await? {
        let Some(AppStreamPart::File(file)) = request.part else {
            return Err(Status::unknown("a message after the metadata is not a piece of the archive"));
        };
        if !intake.add(file.chunk).await {
            break;
        }
    }
    intake.finish().await.map_err(|error| Status::unknown(error.to_string()))
}

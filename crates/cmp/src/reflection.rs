//! gRPC's server reflection, versions 1 and 1alpha, as argocd-cmp-server registers it: which services there are, and their messages.
//!
//! Tools for people use it (grpcurl); Argo CD does not.

mod descriptor;
mod files;
mod message;

use http::Response;
use hyper::body::Frame;
use prost::Message;
use tokio::sync::mpsc;

use self::{
    descriptor::FileDescriptor,
    message::{
        ErrorResponse, Extensions, FileDescriptors, Named, Question, Reply, ServerReflectionRequest,
        ServerReflectionResponse, Services,
    },
};
use crate::grpc::{
    reader::MessageReader,
    reply::{self, ReplyBody},
};

/// The only method.
const METHOD: &str = "ServerReflectionInfo";
/// The code for what is not there.
const NOT_FOUND: i32 = 5;
/// The code for a question without a kind.
const INVALID: i32 = 3;

/// Whether `path` is that of the service, in one of its versions.
pub(crate) fn is_path(path: &str) -> bool {
    let mut versions = ["v1", "v1alpha"].into_iter();
    versions.any(|version| path == format!("/grpc.reflection.{version}.ServerReflection/{METHOD}"))
}

/// Answers each question of a call as soon as it comes: a client asks again when it has an answer.
pub(crate) fn serve(mut messages: MessageReader) -> Response<ReplyBody> {
    let (frames, received) = mpsc::channel(1);
    tokio::spawn(async move {
        let files = files::all();
        let end = loop {
            match messages.next::<ServerReflectionRequest>().await {
                Ok(Some(request)) => {
                    let answer = Frame::data(reply::frame(&respond(&files, request)));
                    if frames.send(answer).await.is_err() {
                        return;
                    }
                }
                Ok(None) => break reply::trailers(None),
                Err(status) => break reply::trailers(Some(&status)),
            }
        };
        // A client that is gone needs no end.
        let _ = frames.send(Frame::trailers(end)).await;
    });
    reply::stream(received)
}

fn respond(files: &[FileDescriptor], request: ServerReflectionRequest) -> ServerReflectionResponse {
    let reply = match &request.question {
        Some(Question::ListServices(_)) => {
            let names = files.iter().flat_map(FileDescriptor::services);
            let mut service: Vec<_> = names.map(|name| Named { name }).collect();
            service.sort_by(|a, b| a.name.cmp(&b.name));
            Reply::Services(Services { service })
        }
        Some(Question::FileByFilename(name)) => {
            found(files, files.iter().find(|file| file.name == *name), "file", name)
        }
        Some(Question::FileContainingSymbol(symbol)) => {
            found(files, files.iter().find(|file| file.declares(symbol)), "symbol", symbol)
        }
        Some(Question::AllExtensionNumbersOfType(name)) if files.iter().any(|file| file.declares(name)) => {
            Reply::Extensions(Extensions { base_type_name: name.clone(), extension_number: Vec::new() })
        }
        Some(Question::AllExtensionNumbersOfType(name)) => missing("type", name),
        Some(Question::FileContainingExtension(_)) => missing("extension", "of this number"),
        None => Reply::Error(ErrorResponse { error_code: INVALID, error_message: "the request is empty".to_owned() }),
    };
    ServerReflectionResponse { valid_host: request.host.clone(), original_request: Some(request), reply: Some(reply) }
}

/// `file`, and all that it imports.
fn found(files: &[FileDescriptor], file: Option<&FileDescriptor>, kind: &str, name: &str) -> Reply {
    let Some(file) = file else { return missing(kind, name) };
    let mut wanted = vec![file];
    let mut at = 0;
    while let Some(file) = wanted.get(at) {
        let imported = files.iter().filter(|other| file.dependency.contains(&other.name));
        let new: Vec<_> = imported.filter(|other| wanted.iter().all(|known| known.name != other.name)).collect();
        wanted.extend(new);
        at += 1;
    }
    Reply::Files(FileDescriptors { file_descriptor_proto: wanted.into_iter().map(Message::encode_to_vec).collect() })
}

fn missing(kind: &str, name: &str) -> Reply {
    Reply::Error(ErrorResponse { error_code: NOT_FOUND, error_message: format!("there is no {kind} {name}") })
}

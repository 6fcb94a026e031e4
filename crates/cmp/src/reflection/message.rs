//! The messages of reflection (`grpc/reflection/v1/reflection.proto`). Those of v1alpha are the same.

use prost::{Message, Oneof};

/// A question.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ServerReflectionRequest {
    /// Repeated in the answer.
    #[prost(string, tag = "1")]
    pub(super) host: String,
    /// What the client wants to know.
    #[prost(oneof = "Question", tags = "3, 4, 5, 6, 7")]
    pub(super) question: Option<Question>,
}

/// The kinds of questions.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum Question {
    #[prost(string, tag = "3")]
    FileByFilename(String),
    #[prost(string, tag = "4")]
    FileContainingSymbol(String),
    #[prost(message, tag = "5")]
    FileContainingExtension(ExtensionRequest),
    #[prost(string, tag = "6")]
    AllExtensionNumbersOfType(String),
    #[prost(string, tag = "7")]
    ListServices(String),
}

/// An extension: none exists.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ExtensionRequest {
    #[prost(string, tag = "1")]
    pub(super) containing_type: String,
    #[prost(int32, tag = "2")]
    pub(super) extension_number: i32,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ServerReflectionResponse {
    #[prost(string, tag = "1")]
    pub(super) valid_host: String,
    #[prost(message, optional, tag = "2")]
    pub(super) original_request: Option<ServerReflectionRequest>,
    #[prost(oneof = "Reply", tags = "4, 5, 6, 7")]
    pub(super) reply: Option<Reply>,
}

/// The kinds of answers.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum Reply {
    #[prost(message, tag = "4")]
    Files(FileDescriptors),
    #[prost(message, tag = "5")]
    Extensions(Extensions),
    #[prost(message, tag = "6")]
    Services(Services),
    #[prost(message, tag = "7")]
    Error(ErrorResponse),
}

/// Files, each encoded.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct FileDescriptors {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(super) file_descriptor_proto: Vec<Vec<u8>>,
}

/// The extensions of a type.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Extensions {
    #[prost(string, tag = "1")]
    pub(super) base_type_name: String,
    #[prost(int32, repeated, tag = "2")]
    pub(super) extension_number: Vec<i32>,
}

/// All services.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Services {
    #[prost(message, repeated, tag = "1")]
    pub(super) service: Vec<Named>,
}

/// A service's full name.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Named {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ErrorResponse {
    #[prost(int32, tag = "1")]
    pub(super) error_code: i32,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

//! gRPC on HTTP/2, as far as a plugin server needs it: one answer to one message or to a stream of messages.

pub(crate) mod client;
pub(crate) mod framing;
pub(crate) mod message;
pub(crate) mod reader;
pub(crate) mod reply;
pub(crate) mod status;
pub(crate) mod timeout;

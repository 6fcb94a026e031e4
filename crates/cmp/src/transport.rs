//! From sockets to HTTP/2: listeners, the filter for grpc-go's authorities, and an end without a broken conversation.

mod authority;
mod block;
mod connection;
mod huffman;
pub(crate) mod listener;

pub(crate) use self::connection::{Peer, pause_after, serve};

//! What a relay and a service send each other beyond Argo CD's own calls, over the same connection: `cmpgateway.relay.v1.Relay`.
//!
//! `Describe` (no content → [`Description`]) · `Put` ([`PutRequest`]s: the tree, then a tar by zstd → no content) · `GenerateManifest`,
//! `MatchRepository`, `GetParametersAnnouncement` ([`RelayedCall`] → Argo CD's answers) · `Credentials` (see [`credentials`]). The decision is
//! docs/decisions/0041-cmp-relay.md.

pub(crate) mod credentials;

use bytes::Bytes;
use prost::{Message, Oneof};

use crate::{
    archive::digest::TreeDigest,
    grpc::{
        message::{Metadata, ParameterAnnouncement},
        status::{Code, Status},
    },
    plugin::{Command, Discover, Plugin},
};

/// The service. A change that old programs would misread gets another number.
pub(crate) const SERVICE: &str = "/cmpgateway.relay.v1.Relay/";
/// The method that describes a plugin.
pub(crate) const DESCRIBE: &str = "/cmpgateway.relay.v1.Relay/Describe";
/// The field of a request that names the plugin, as its socket would be called.
pub(crate) const PLUGIN: &str = "cmp-plugin";

/// A plugin, as far as a relay needs it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Description {
    /// Its name.
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// Its version. Empty if it has none.
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    /// `discover.fileName`.
    #[prost(string, tag = "3")]
    pub(crate) file_name: String,
    /// `discover.find.glob`.
    #[prost(string, tag = "4")]
    pub(crate) glob: String,
    /// Whether a command decides.
    #[prost(bool, tag = "5")]
    pub(crate) has_find_command: bool,
    /// Parameters that its file lists.
    #[prost(message, repeated, tag = "6")]
    pub(crate) static_parameters: Vec<ParameterAnnouncement>,
    /// Whether a command prints more parameters.
    #[prost(bool, tag = "7")]
    pub(crate) has_dynamic_parameters: bool,
    /// What belongs to its trees.
    #[prost(message, optional, tag = "8")]
    pub(crate) view: Option<View>,
    /// Whether its runs get Git credentials that the relay passes on.
    #[prost(bool, tag = "9")]
    pub(crate) takes_git_credentials: bool,
}

/// What of an archive belongs to a plugin's trees.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct View {
    /// Whether executable bits do.
    #[prost(bool, tag = "1")]
    pub(crate) has_modes: bool,
    /// Whether `.git` does.
    #[prost(bool, tag = "2")]
    pub(crate) has_git: bool,
}

/// A tree.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TreeName {
    /// Its digest.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) digest: Bytes,
    /// What belongs to it for the sender.
    #[prost(message, optional, tag = "2")]
    pub(crate) view: Option<View>,
}

/// A call without its archive.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RelayedCall {
    /// As Argo CD sends it.
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<Metadata>,
    /// The tree of the archive.
    #[prost(message, optional, tag = "2")]
    pub(crate) tree: Option<TreeName>,
    /// The offer of Git credentials that is for this call. Empty if there is none.
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) offer: Bytes,
}

/// A part of a tree that is sent: first its name.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PutRequest {
    /// The part.
    #[prost(oneof = "PutPart", tags = "1, 2")]
    pub(crate) part: Option<PutPart>,
}

/// The kinds of parts.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum PutPart {
    /// The tree.
    #[prost(message, tag = "1")]
    Tree(TreeName),
    /// A piece of a tar by zstd.
    #[prost(bytes = "bytes", tag = "2")]
    Piece(Bytes),
}

impl Description {
    /// `plugin`, whose trees have this `view`, and whose runs may get Git credentials.
    pub(crate) fn of(plugin: &Plugin, view: View, takes_git_credentials: bool) -> Self {
        let (mut file_name, mut glob) = (String::new(), String::new());
        match &plugin.discover {
            Discover::FileName(pattern) => file_name.clone_from(pattern),
            Discover::Glob(pattern) => glob.clone_from(pattern),
            Discover::ByName | Discover::Command(_) => {}
        }
        Self {
            name: plugin.name.clone(),
            version: plugin.version.clone(),
            file_name,
            glob,
            has_find_command: matches!(plugin.discover, Discover::Command(_)),
            static_parameters: plugin.static_parameters.clone(),
            has_dynamic_parameters: plugin.dynamic_parameters.is_some(),
            view: Some(view),
            takes_git_credentials,
        }
    }

    /// Its rules of discovery.
    pub(crate) fn discover(&self) -> Discover {
        if !self.file_name.is_empty() {
            Discover::FileName(self.file_name.clone())
        } else if !self.glob.is_empty() {
            Discover::Glob(self.glob.clone())
        } else if self.has_find_command {
            // The remote runs its own.
            Discover::Command(Command { program: String::new(), arguments: Vec::new() })
        } else {
            Discover::ByName
        }
    }
}

impl TreeName {
    /// The tree `digest` in this `view`.
    pub(crate) fn new(digest: TreeDigest, view: View) -> Self {
        Self { digest: Bytes::copy_from_slice(digest.bytes()), view: Some(view) }
    }

    /// The digest, if the sender's view is `view`.
    ///
    /// # Errors
    /// When it is another view, or no digest.
    pub(crate) fn digest_in(&self, view: View) -> Result<TreeDigest, Status> {
        if self.view.unwrap_or_default() != view {
            return Err(Status::new(Code::Aborted, "the plugin has changed: ask for its description again"));
        }
        TreeDigest::from_bytes(&self.digest).ok_or_else(|| Status::unknown("a tree's digest has 32 bytes"))
    }
}

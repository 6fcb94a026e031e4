//! The messages of `plugin.ConfigManagementPluginService`, as in Argo CD's `cmpserver/plugin/plugin.proto` and
//! `reposerver/repository/repository.proto`, and of gRPC's health service.

use std::collections::BTreeMap;

use prost::{Message, Oneof};
use serde::Deserialize;

/// A part of what Argo CD sends: the metadata first, then the archive in pieces.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AppStreamRequest {
    /// The part.
    #[prost(oneof = "AppStreamPart", tags = "1, 2")]
    pub(crate) part: Option<AppStreamPart>,
}

/// The kinds of parts.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum AppStreamPart {
    /// What the archive is about.
    #[prost(message, tag = "1")]
    Metadata(Metadata),
    /// A piece of the archive.
    #[prost(message, tag = "2")]
    File(File),
}

/// What an archive is about (`ManifestRequestMetadata`).
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metadata {
    /// The last part of the Application's path. Not its name.
    #[prost(string, tag = "1")]
    pub(crate) app_name: String,
    /// The Application's folder within the archive.
    #[prost(string, tag = "2")]
    pub(crate) app_rel_path: String,
    /// The SHA-256 of the archive, as hexadecimal digits.
    #[prost(string, tag = "3")]
    pub(crate) checksum: String,
    /// The size of the archive, in bytes.
    #[prost(int64, tag = "4")]
    pub(crate) size: i64,
    /// Variables for the plugin's commands.
    #[prost(message, repeated, tag = "5")]
    pub(crate) env: Vec<EnvEntry>,
}

/// A variable.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct EnvEntry {
    /// Its name.
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// A piece of an archive.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct File {
    /// The bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) chunk: bytes::Bytes,
}

/// Manifests.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ManifestResponse {
    /// Texts of YAML or JSON with any number of documents each. Argo CD splits them.
    #[prost(string, repeated, tag = "1")]
    pub(crate) manifests: Vec<String>,
    /// Unused.
    #[prost(string, tag = "2")]
    pub(crate) source_type: String,
}

/// Whether a plugin is for a repository.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct RepositoryResponse {
    /// Whether it is.
    #[prost(bool, tag = "1")]
    pub(crate) is_supported: bool,
    /// Whether the plugin has rules for that.
    #[prost(bool, tag = "2")]
    pub(crate) is_discovery_enabled: bool,
}

/// What a plugin wants to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CheckPluginConfigurationResponse {
    /// Whether it has rules for which repositories it is.
    #[prost(bool, tag = "1")]
    pub(crate) is_discovery_configured: bool,
    /// Whether it wants the repository's credentials.
    #[prost(bool, tag = "2")]
    pub(crate) provide_git_creds: bool,
}

/// The parameters that a plugin announces.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ParametersAnnouncementResponse {
    /// The announcements. A later one of the same name replaces an earlier one.
    #[prost(message, repeated, tag = "1")]
    pub(crate) parameter_announcements: Vec<ParameterAnnouncement>,
}

/// A parameter, as Argo CD's page shows it.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct ParameterAnnouncement {
    /// Its name.
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// Its title.
    #[prost(string, tag = "2")]
    pub(crate) title: String,
    /// An explanation.
    #[prost(string, tag = "3")]
    pub(crate) tooltip: String,
    /// Whether it must be set.
    #[prost(bool, tag = "4")]
    pub(crate) required: bool,
    /// The type of its elements: `string`, `number` or `boolean`.
    #[prost(string, tag = "5")]
    #[serde(alias = "itemType", alias = "itemtype")]
    pub(crate) item_type: String,
    /// `string`, `array` or `map`.
    #[prost(string, tag = "6")]
    #[serde(alias = "collectionType", alias = "collectiontype")]
    pub(crate) collection_type: String,
    /// The default of a string.
    #[prost(string, tag = "7")]
    pub(crate) string: String,
    /// The default of an array.
    #[prost(string, repeated, tag = "8")]
    pub(crate) array: Vec<String>,
    /// The default of a map.
    #[prost(btree_map = "string, string", tag = "9")]
    pub(crate) map: BTreeMap<String, String>,
}

/// Whose state a client wants.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct HealthCheckRequest {
    /// A service, or nothing for the whole server.
    #[prost(string, tag = "1")]
    pub(crate) service: String,
}

/// A state.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct HealthCheckResponse {
    /// The state (`ServingStatus`).
    #[prost(int32, tag = "1")]
    pub(crate) status: i32,
}

/// The states of all services.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthListResponse {
    /// By the names of services.
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) statuses: BTreeMap<String, HealthCheckResponse>,
}

/// No content (`google.protobuf.Empty`), or content that does not matter.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Empty {}

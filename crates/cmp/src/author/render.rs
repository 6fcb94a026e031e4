//! `cmp-gateway render`: the manifests of a folder, as Argo CD would get them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use domain::document::yaml;
use sha2::{Digest as _, Sha256};

use super::{
    client::{ask, ask_at},
    compare,
    pack::{PackError, pack},
};
use crate::{
    config::PluginSettings,
    grpc::{
        message::{EnvEntry, ManifestResponse, Metadata, RepositoryResponse},
        status::Status,
    },
    metrics::Metrics,
    server::{ServerError, common, served, usual_concurrency},
};

/// What to render.
#[derive(Debug)]
pub(crate) struct Request {
    /// The plugin's file or folder.
    pub(crate) plugin: PathBuf,
    /// The repository.
    pub(crate) repository: PathBuf,
    /// The Application's folder in it.
    pub(crate) app: String,
    /// Variables, as `NAME=value`.
    pub(crate) env: Vec<String>,
    /// Another server to compare with: a socket's path, or an address.
    pub(crate) against: Option<String>,
}

/// What Argo CD would see.
#[derive(Debug)]
pub(crate) struct Rendered {
    /// The manifests.
    pub(crate) manifests: Vec<String>,
    /// Notes for the author, in lines.
    pub(crate) notes: Vec<String>,
    /// What another server gives differently, if there is one. Then `manifests` is empty.
    pub(crate) differences: Option<Vec<String>>,
}

/// Why nothing was rendered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RenderError {
    /// The plugin cannot be served.
    #[error("{0}")]
    Plugin(#[from] ServerError),
    /// The repository cannot be packed.
    #[error("{0}")]
    Pack(#[from] PackError),
    /// The plugin failed. Argo CD would show this text.
    #[error("{0}")]
    Failed(#[from] Status),
    /// The other server is not there.
    #[error("{target}: {cause}")]
    Against {
        /// Its socket or address.
        target: String,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
    /// A folder for the work cannot be made.
    #[error("the work folder: {0}")]
    Work(#[source] std::io::Error),
}

/// Renders `request`, with `work` for files of this program.
///
/// # Errors
/// As Argo CD would get them.
pub(crate) async fn render(request: Request, work: &Path) -> Result<Rendered, RenderError> {
    let concurrency = usual_concurrency();
    let common = common(Some(work.to_owned()), u64::MAX, false, concurrency)?;
    let metrics = Metrics::new().map_err(ServerError::from)?;
    let plugin = Arc::new(served(PluginSettings::as_sidecar(request.plugin), &common, concurrency, &metrics)?);
    let archive = pack(&request.repository)?;
    let metadata = metadata(&request.app, &request.env, &archive);
    let mut notes = vec![format!("archive: {} bytes", archive.len())];
    let mut differences = Vec::new();
    if plugin.plugin().has_discovery() {
        let verdict: RepositoryResponse = ask(&plugin, "MatchRepository", metadata.clone(), &archive).await?;
        if let Some(target) = &request.against {
            let theirs = against(target, "MatchRepository", metadata.clone(), &archive).await?;
            differences.extend(compare::verdicts(verdict, theirs));
        }
        let verdict = if verdict.is_supported {
            "the plugin is for this folder"
        } else {
            "not for this folder: Argo CD would not use it"
        };
        notes.push(format!("discovery: {verdict}"));
    }
    let began = Instant::now();
    let answer: Result<ManifestResponse, _> = ask(&plugin, "GenerateManifest", metadata.clone(), &archive).await;
    common.launchers.close().await;
    if let Some(target) = &request.against {
        let theirs: Result<ManifestResponse, _> = against(target, "GenerateManifest", metadata, &archive).await?;
        if let (Err(own), Err(theirs)) = (&answer, &theirs) {
            notes.push(format!("both fail. Here: {own}\nThere: {theirs}"));
        }
        let of = |answer: Result<ManifestResponse, Status>| answer.map(|answer| answer.manifests);
        differences.extend(compare::manifests(of(answer), of(theirs)));
        return Ok(Rendered { manifests: Vec::new(), notes, differences: Some(differences) });
    }
    let ManifestResponse { manifests, .. } = answer?;
    let took = began.elapsed().as_millis();
    for text in &manifests {
        match yaml::parse(text.as_bytes()) {
            Ok(documents) => notes.push(format!("documents: {}, in {took} ms", documents.len())),
            Err(error) => notes.push(format!("warning: Argo CD may read this otherwise, or not at all: {error}")),
        }
    }
    if manifests.is_empty() {
        notes.push(format!("no manifests, on purpose, in {took} ms"));
    }
    Ok(Rendered { manifests, notes, differences: None })
}

/// The answer of the other server.
async fn against<M: prost::Message + Default>(
    target: &str,
    method: &str,
    metadata: Metadata,
    archive: &[u8],
) -> Result<Result<M, Status>, RenderError> {
    let answered = ask_at(target, method, metadata, archive).await;
    answered.map_err(|cause| RenderError::Against { target: target.to_owned(), cause })
}

fn metadata(app: &str, env: &[String], archive: &[u8]) -> Metadata {
    let entry = |text: &String| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        EnvEntry { name: name.to_owned(), value: value.to_owned() }
    };
    Metadata {
        app_name: app.rsplit('/').next().unwrap_or(app).to_owned(),
        app_rel_path: app.to_owned(),
        checksum: base16ct::lower::encode_string(&Sha256::digest(archive)),
        size: i64::try_from(archive.len()).unwrap_or(i64::MAX),
        env: env.iter().map(entry).collect(),
    }
}

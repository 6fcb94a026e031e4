//! `cmp-gateway render`: the manifests of a folder, as Argo CD would get them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use domain::document::yaml;
use sha2::{Digest as _, Sha256};

use super::{
    client::ask,
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
}

/// What Argo CD would see.
#[derive(Debug)]
pub(crate) struct Rendered {
    /// The manifests.
    pub(crate) manifests: Vec<String>,
    /// Notes for the author, in lines.
    pub(crate) notes: Vec<String>,
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
    let common = common(Some(work.to_owned()), u64::MAX, concurrency)?;
    let metrics = Metrics::new().map_err(ServerError::from)?;
    let plugin = Arc::new(served(PluginSettings::as_sidecar(request.plugin), &common, concurrency, &metrics)?);
    let archive = pack(&request.repository)?;
    let metadata = metadata(&request.app, &request.env, &archive);
    let mut notes = vec![format!("archive: {} bytes", archive.len())];
    if plugin.plugin().has_discovery() {
        let verdict: RepositoryResponse = ask(&plugin, "MatchRepository", metadata.clone(), &archive).await?;
        let verdict = if verdict.is_supported {
            "the plugin is for this folder"
        } else {
            "not for this folder: Argo CD would not use it"
        };
        notes.push(format!("discovery: {verdict}"));
    }
    let began = Instant::now();
    let answer: Result<ManifestResponse, _> = ask(&plugin, "GenerateManifest", metadata, &archive).await;
    common.launchers.close().await;
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
    Ok(Rendered { manifests, notes })
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

//! An OCI image layout: a folder with `oci-layout`, `index.json` and `blobs/`, as `skopeo` and `buildah` write it. Source: OCI
//! image specification 1.1, "Image Layout".

use std::{
    fs::OpenOptions,
    io::Read as _,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::Digest;
use domain::{document, error::BackendError};

/// The largest `index.json` or manifest, in bytes.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// A folder with images.
#[derive(Debug, Clone)]
pub struct Layout {
    folder: PathBuf,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: String,
    #[serde(default)]
    annotations: std::collections::HashMap<String, String>,
}

impl Layout {
    /// The layout in `folder`. It is read again for each request.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The digest of the manifest whose `org.opencontainers.image.ref.name` is `name`. `None` when the index does not name it.
    ///
    /// # Errors
    /// When the layout cannot be read, the name occurs twice, or the manifest is missing or damaged.
    pub async fn digest(&self, name: &str) -> Result<Option<Digest>, BackendError> {
        let (folder, name) = (self.folder.clone(), name.to_owned());
        tokio::task::spawn_blocking(move || find(&folder, &name))
            .await
            .map_err(|error| BackendError::unavailable(format!("reading the layout failed: {error}")))?
    }
}

fn find(folder: &Path, name: &str) -> Result<Option<Digest>, BackendError> {
    if !folder.join("oci-layout").is_file() {
        return Err(BackendError::unavailable(format!("{} is not an OCI image layout", folder.display())));
    }
    let index = folder.join("index.json");
    let parsed: Index = document::parse_object(&read(&index)?)
        .map_err(|error| BackendError::invalid_output(format!("{}: {error}", index.display())))?;
    let mut named = parsed.manifests.iter().filter(|descriptor| {
        descriptor.annotations.get("org.opencontainers.image.ref.name").is_some_and(|n| n == name)
    });
    let Some(descriptor) = named.next() else { return Ok(None) };
    if named.next().is_some() {
        return Err(BackendError::invalid_output(format!("{} names `{name}` twice", index.display())));
    }
    let digest = Digest::parse(&descriptor.digest)
        .map_err(|error| BackendError::invalid_output(format!("{}: {error}", index.display())))?;
    let manifest = folder.join("blobs/sha256").join(digest.hex());
    if Digest::of(&read(&manifest)?) != digest {
        return Err(BackendError::invalid_output(format!("{} does not hash to its name", manifest.display())));
    }
    Ok(Some(digest))
}

fn read(path: &Path) -> Result<Vec<u8>, BackendError> {
    let cannot = |error: std::io::Error| BackendError::unavailable(format!("cannot read {}: {error}", path.display()));
    let mut bytes = Vec::new();
    let opened = domain::file::open(path, OpenOptions::new().read(true)).map_err(cannot)?;
    opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(BackendError::invalid_output(format!("{} is larger than {MAX_FILE_BYTES} bytes", path.display())));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_small_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("oci-layout"), "{}").unwrap();
        nix::unistd::mkfifo(&at("index.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let layout = Layout::new(folder.path());
        assert!(layout.digest("a").await.unwrap_err().message.contains("it is not a regular file"));
        std::fs::remove_file(at("index.json")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("index.json")).unwrap();
        assert!(layout.digest("a").await.unwrap_err().message.contains("it is not a regular file"));
        std::fs::remove_file(at("index.json")).unwrap();
        std::fs::write(at("index.json"), vec![b' '; 4 * 1024 * 1024 + 1]).unwrap();
        assert!(layout.digest("a").await.unwrap_err().message.contains("is larger than 4194304 bytes"));
    }
}

//! Fills a registry over HTTP with content that no tool makes: artifacts, annotations, and builds of any time.

use std::net::SocketAddr;

use oci::Digest;
use serde_json::{Value, json};

use super::{Reply, registry::Registry, wire};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

impl Registry {
    /// Puts a manifest with this configuration under each of `tags`, and returns its digest. Missing keys of `manifest` are
    /// those of an image.
    pub(crate) async fn put(&self, repository: &str, tags: &[&str], mut manifest: Value, config: &Value) -> String {
        let config = config.to_string();
        let digest = self.put_blob(repository, &config).await;
        let kind = manifest["config"]["mediaType"].as_str().unwrap_or(CONFIG).to_owned();
        manifest["schemaVersion"] = json!(2);
        manifest["mediaType"] = json!(MANIFEST);
        manifest["config"] = json!({"mediaType": kind, "digest": digest, "size": config.len()});
        manifest["layers"] = json!([]);
        self.put_manifest(repository, tags, MANIFEST, &manifest.to_string()).await
    }

    /// Puts the bytes of a manifest of a `kind` under each of `tags`, and returns its digest.
    pub(crate) async fn put_manifest(&self, repository: &str, tags: &[&str], kind: &str, manifest: &str) -> String {
        for tag in tags {
            let path = format!("/v2/{repository}/manifests/{tag}");
            let reply = self.request("PUT", &path, kind, manifest).await;
            assert_eq!(reply.status, 201, "{path}: {}", reply.text());
        }
        Digest::of(manifest.as_bytes()).as_str().to_owned()
    }

    /// Puts an image that was built at `created` under each of `tags`.
    pub(crate) async fn put_image(&self, repository: &str, tags: &[&str], created: &str) -> String {
        self.put(repository, tags, json!({}), &json!({"created": created, "os": "linux", "architecture": "amd64"}))
            .await
    }

    /// Puts a blob, and returns its digest.
    pub(crate) async fn put_blob(&self, repository: &str, content: &str) -> String {
        let digest = Digest::of(content.as_bytes()).as_str().to_owned();
        let started = self.request("POST", &format!("/v2/{repository}/blobs/uploads/"), "", "").await;
        let location = started.header("location").unwrap_or_else(|| panic!("{}", started.text()));
        let path = location.strip_prefix(&format!("http://{}", self.host)).unwrap_or(location);
        let path = format!("{path}&digest={digest}");
        let reply = self.request("PUT", &path, "application/octet-stream", content).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        digest
    }

    async fn request(&self, method: &str, path: &str, kind: &str, body: &str) -> Reply {
        let address: SocketAddr = self.host.parse().unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        wire::exchange_admin(address, request.as_bytes()).await
    }
}

//! Signed images: the five verdicts, which of label and proof speaks, the last build, and keys that are removed.

mod beside;
mod costs;
mod documents;
mod keys;
mod lists;
mod policies;
mod shadow;
mod verdicts;

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    config,
    fake::{Fake, Image, sha},
    previews,
};
use crate::support::{
    Reply, TestApp,
    signing::{BUNDLE, Key, REPOSITORY},
};

/// A folder with the public key of `key` in `cosign.pub`.
fn folder(key: &Key) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    key.write(&folder.path().join("cosign.pub"));
    folder
}

/// Images that must be signed by `cosign.pub`. With `provenance`, that must name the repository.
fn signed(fake: &Fake, provenance: Option<Value>) -> Value {
    let mut backend = previews(fake);
    let backend_keys = backend.as_object_mut().unwrap();
    backend_keys.remove("gate");
    backend_keys.insert("signature".to_owned(), json!({"any": [{"key": {"file": "cosign.pub"}}]}));
    if let Some(Value::Object(mut more)) = provenance {
        more.insert("repository".to_owned(), REPOSITORY.into());
        backend_keys.insert("provenance".to_owned(), more.into());
    }
    backend
}

/// The usual: provenance for the commit of `revision.expect`.
fn proven(fake: &Fake) -> Value {
    signed(fake, Some(json!({})))
}

async fn start(folder: TempDir, fake: &Fake, backend: &Value) -> TestApp {
    TestApp::start_in(folder, &config(fake, backend, json!({}))).await
}

async fn ask(app: &TestApp, commit: char) -> Reply {
    app.ask("a", json!({"branch": "feat/1", "head_sha": sha(commit)})).await
}

/// The answer to a question about `commit`, once nothing in the cache is fresh any more.
async fn ask_later(app: &TestApp, commit: char) -> Reply {
    app.clock.advance(std::time::Duration::from_mins(7));
    ask(app, commit).await
}

/// All evidence of the answers that the gateway has.
async fn evidence(app: &TestApp) -> String {
    app.operate("/admin/answers", None).await.text()
}

/// Puts the image of `commit` under the branch's tag, with provenance by `key`.
fn build(fake: &Fake, key: &Key, commit: char) {
    let image = Image::of(commit);
    fake.push("feat-1", &image);
    fake.attach(&image.digest(), BUNDLE, &key.provenance(image.digest().as_str(), &sha(commit)));
}

/// Replaces the key in `folder`, and waits until the gateway has looked at it.
async fn replace(folder: &Path, key: &Key) {
    key.write(&folder.join("cosign.pub"));
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
}

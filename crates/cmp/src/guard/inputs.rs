//! What a run depends on: its files, its variables, and the plugin's commands.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::{
    archive::{
        digest::{TreeDigest, digest_without_git},
        index::Entries,
    },
    grpc::message::EnvEntry,
    plugin::Plugin,
};

/// The Application that Argo CD asks for. With the repository, the path and the revision that is wanted, it names a source of one.
const APPLICATION: &[&str] = &[
    "ARGOCD_APP_NAME",
    "ARGOCD_APP_PROJECT_NAME",
    "ARGOCD_APP_SOURCE_REPO_URL",
    "ARGOCD_APP_SOURCE_PATH",
    "ARGOCD_APP_SOURCE_TARGET_REVISION",
];
/// Variables that belong to the inputs: those of the Application and of its cluster. All others that Argo CD sends are credentials for Git,
/// of which some differ in each call.
const INPUTS: &[&str] = &["ARGOCD_APP_", "ARGOCD_ENV_", "PARAM_", "KUBE_"];
/// The commit. The tree counts in its place, since most commits change other folders.
const COMMIT: &str = "ARGOCD_APP_REVISION";

/// The inputs of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inputs {
    /// The SHA-256 of the Application's names.
    pub(super) application: [u8; 32],
    /// The SHA-256 of all that the run depends on.
    pub(super) digest: [u8; 32],
}

impl Inputs {
    /// The inputs of a run of `plugin`, in the `folder` of a tree with these `entries`.
    pub(crate) fn new(plugin: &Plugin, entries: &Entries, folder: &str, env: &[EnvEntry]) -> Self {
        // The last of equal names counts, as in the run.
        let variables: BTreeMap<&str, &str> = env.iter().map(|entry| (&*entry.name, &*entry.value)).collect();
        let mut application = Texts::default();
        for name in APPLICATION {
            application.add(variables.get(name).copied().unwrap_or_default());
        }
        let mut inputs = Texts::default();
        let tree: TreeDigest = digest_without_git(entries, plugin.preserve_file_mode);
        inputs.add(&tree.to_string());
        inputs.add(folder);
        for command in plugin.init.iter().chain([&plugin.generate]) {
            inputs.add("command");
            inputs.add(&command.program);
            command.arguments.iter().for_each(|argument| inputs.add(argument));
        }
        for (name, value) in variables {
            if INPUTS.iter().any(|prefix| name.starts_with(prefix)) && !name.starts_with(COMMIT) {
                inputs.add("variable");
                inputs.add(name);
                inputs.add(value);
            }
        }
        Self { application: application.0.finalize().into(), digest: inputs.0.finalize().into() }
    }
}

/// A hash over texts, each with its length.
#[derive(Debug, Default)]
struct Texts(Sha256);

impl Texts {
    fn add(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
    }
}

//! The manifests of hermetic plugins, which are kept: equal files and variables give equal manifests, as the plugin's owner promises.
//!
//! Argo CD keeps manifests itself, so an Application that asks the same question again wants it answered anew (a hard refresh): it
//! runs again. Only others get what is kept.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::{
    archive::digest::TreeDigest,
    config::{HermeticConfig, PluginSettings},
    grpc::message::EnvEntry,
    plugin::{Command, Plugin},
};
use domain::bounded_cache::Recent;
use launcher::Network;

/// What an entry takes beyond its manifests, in bytes, and what each Application in it does.
const ENTRY: usize = 256;
const ASKER: usize = 48;
/// The most Applications of one entry. Then it is made anew.
const MAX_ASKERS: usize = 1000;
/// Variables of this process that a run gets without being declared.
pub(super) const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];

/// The kept manifests of one plugin.
#[derive(Debug)]
pub(super) struct Outputs {
    variables: Vec<String>,
    known: Recent<[u8; 32], Arc<Output>>,
}

/// What a run gave.
#[derive(Debug)]
struct Output {
    manifests: Vec<String>,
    /// The Applications that have it.
    askers: Mutex<HashSet<[u8; 32]>>,
}

/// A question, and who asks it.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutputKey {
    question: [u8; 32],
    application: [u8; 32],
}

/// Why a plugin cannot be hermetic.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HermeticError {
    /// It may reach others.
    #[error("hermetic: set `network: none`, since what a plugin reads from elsewhere changes its manifests")]
    Network,
    /// It may keep something.
    #[error("hermetic: remove `files.write`, since what a run leaves changes the manifests of the next one")]
    Write,
    /// It may get credentials.
    #[error("hermetic: remove `gitCredentials`, since a plugin without a network has no use for them")]
    Credentials,
}

impl Outputs {
    /// Those of a plugin with these `settings`, if it is hermetic.
    ///
    /// # Errors
    /// When other settings contradict that.
    pub(super) fn new(settings: &PluginSettings) -> Result<Option<Self>, HermeticError> {
        let Some(HermeticConfig { env, size }) = &settings.hermetic else { return Ok(None) };
        if settings.network != Network::None {
            return Err(HermeticError::Network);
        }
        if !settings.files.write.is_empty() {
            return Err(HermeticError::Write);
        }
        if settings.git_credentials {
            return Err(HermeticError::Credentials);
        }
        let known = Recent::weighed(size.as_usize(), |_, output: &Arc<Output>| {
            output.manifests.iter().map(String::len).sum::<usize>() + ENTRY + MAX_ASKERS * ASKER
        });
        Ok(Some(Self { variables: env.clone(), known }))
    }

    /// Those of `variables` that a run gets.
    pub(super) fn declared(&self, variables: &[EnvEntry]) -> Vec<EnvEntry> {
        variables.iter().filter(|entry| self.variables.contains(&entry.name)).cloned().collect()
    }

    /// The question of a run in `folder` of a tree with the `declared` variables, by the Application of a call with `all` variables.
    pub(super) fn key(
        plugin: &Plugin,
        (tree, folder): (TreeDigest, &[u8]),
        declared: &[EnvEntry],
        all: &[EnvEntry],
    ) -> OutputKey {
        let mut question = Texts::default();
        question.add(tree.bytes());
        question.add(folder);
        for Command { program, arguments } in plugin.init.iter().chain([&plugin.generate]) {
            question.add(b"command");
            question.add(program.as_bytes());
            for argument in arguments {
                question.add(argument.as_bytes());
            }
        }
        question.add(b"variables");
        for entry in declared {
            question.add(entry.name.as_bytes());
            question.add(entry.value.as_bytes());
        }
        let mut application = Texts::default();
        for name in ["ARGOCD_APP_NAME", "ARGOCD_APP_NAMESPACE", "ARGOCD_APP_PROJECT_NAME"] {
            let value = all.iter().rfind(|entry| entry.name == name).map_or("", |entry| entry.value.as_str());
            application.add(value.as_bytes());
        }
        OutputKey { question: question.digest(), application: application.digest() }
    }

    /// The manifests, unless this Application had them already.
    pub(super) fn get(&self, key: &OutputKey) -> Option<Vec<String>> {
        let output = self.known.get(&key.question)?;
        let mut askers = output.askers.lock();
        (askers.len() < MAX_ASKERS && askers.insert(key.application)).then(|| output.manifests.clone())
    }

    /// A run gave these manifests. Returns whether an earlier one gave others.
    pub(super) fn put(&self, key: &OutputKey, manifests: &[String]) -> bool {
        let before = self.known.get(&key.question);
        let askers = Mutex::new(HashSet::from([key.application]));
        self.known.insert(key.question, Arc::new(Output { manifests: manifests.to_vec(), askers }));
        before.is_some_and(|before| before.manifests != manifests)
    }
}

/// Texts whose ends count.
#[derive(Default)]
struct Texts(Sha256);

impl Texts {
    fn add(&mut self, text: &[u8]) {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
    }

    fn digest(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

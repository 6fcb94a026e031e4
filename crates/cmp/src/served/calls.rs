//! The four calls of a plugin server.

use std::sync::Arc;

use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use super::{
    Served,
    allow::{PATH, REPOSITORY},
    outputs::Outputs,
    received::{self, Files, Opening, Received},
    verdicts::FolderKey,
};
use crate::{
    archive::{digest::digest, intake::Wanted},
    discover::{app_folder, by_names},
    exchange::TreeName,
    grpc::{
        message::{
            CheckPluginConfigurationResponse, ManifestResponse, Metadata, ParametersAnnouncementResponse,
            RepositoryResponse,
        },
        reader::MessageReader,
        status::{Code, Status},
    },
    guard::{HeldError, inputs::Inputs},
    output,
    plugin::{Command, Discover, Plugin, fields},
    run::{Job, RunEnvironment, RunOutput},
};

/// A command of a plugin, for an archive.
struct Task<'a> {
    metadata: &'a Metadata,
    files: Files,
    folder: Vec<u8>,
    environment: &'a RunEnvironment,
    init: Option<&'a Command>,
    command: &'a Command,
    deadline: Option<Instant>,
}

impl Served {
    /// `CheckPluginConfiguration`.
    pub(super) fn check_configuration(&self) -> CheckPluginConfigurationResponse {
        let plugin = self.plugin();
        CheckPluginConfigurationResponse {
            is_discovery_configured: plugin.has_discovery(),
            provide_git_creds: plugin.provide_git_creds,
        }
    }

    /// `GenerateManifest`.
    ///
    /// # Errors
    /// In all cases but one: the plugin printed what it must. Argo CD then changes nothing.
    pub(super) async fn generate(
        &self,
        messages: &mut MessageReader,
        is_relayed: bool,
        deadline: Option<Instant>,
    ) -> Result<ManifestResponse, Status> {
        let plugin = self.plugin();
        let Opening { metadata, tree, offer } = received::opening(messages, is_relayed).await?;
        let environment = self.environment.with(metadata.env.clone())?;
        self.allow.check(&environment).map_err(Status::unknown)?;
        let Received { entries, files } = self.receive(messages, &metadata, tree, true).await?;
        // Dropped at the end of the call.
        let (environment, _askpass) = self.with_credentials(environment, &offer)?;
        if let Some(why) = self.verdicts.doubt(&folder_key(&metadata)) {
            return Err(Status::unknown(format!(
                "it is not known whether the plugin is for this folder, since discovery failed: {why}"
            )));
        }
        let inputs = Inputs::new(&plugin, &entries, &metadata.app_rel_path, &metadata.env);
        let folder = app_folder(&entries, &metadata.app_rel_path)?;
        let received = Received { entries, files };
        let manifests = self.make_or_reuse(&plugin, &metadata, received, folder, &environment, deadline).await?;
        let began = Instant::now();
        let manifests = self.guarded(inputs, manifests, &environment).await?;
        self.metrics.answered(began.elapsed());
        Ok(ManifestResponse { manifests, source_type: String::new() })
    }

    /// The manifests of a run, or those of a hermetic plugin that are kept.
    async fn make_or_reuse(
        &self,
        plugin: &Plugin,
        metadata: &Metadata,
        Received { entries, files }: Received,
        folder: Vec<u8>,
        environment: &RunEnvironment,
        deadline: Option<Instant>,
    ) -> Result<Vec<String>, Status> {
        let kept = self.outputs.as_ref().map(|outputs| {
            let tree = digest(&entries, plugin.preserve_file_mode);
            let declared = outputs.declared(&metadata.env);
            (outputs, Outputs::key(plugin, (tree, &folder), &declared, &metadata.env), declared)
        });
        match kept {
            None => self.make(plugin, metadata, files, folder, environment, deadline).await,
            Some((outputs, key, declared)) => {
                let known = outputs.get(&key);
                self.metrics.output(known.is_some());
                if let Some(manifests) = known {
                    Ok(manifests)
                } else {
                    let declared = self.environment.with(declared)?;
                    let made = self.make(plugin, metadata, files, folder, &declared, deadline).await?;
                    if outputs.put(&key, &made) {
                        let (plugin, application) = (plugin.full_name(), variable(metadata, "ARGOCD_APP_NAME"));
                        tracing::warn!(
                            plugin,
                            application,
                            "a hermetic plugin gave other manifests for equal files and variables"
                        );
                    }
                    Ok(made)
                }
            }
        }
    }

    /// Runs the plugin. Returns its manifests.
    async fn make(
        &self,
        plugin: &Plugin,
        metadata: &Metadata,
        files: Files,
        folder: Vec<u8>,
        environment: &RunEnvironment,
        deadline: Option<Instant>,
    ) -> Result<Vec<String>, Status> {
        let (init, command) = (plugin.init.as_ref(), &plugin.generate);
        let task = Task { metadata, files, folder, environment, init, command, deadline };
        let output = self.run(plugin, task).await.map_err(|error| error.within("error generating manifests"))?;
        let manifests = output::manifests(output.stdout, self.runner.settings().allow_blank).map_err(|error| {
            let stderr =
                if output.stderr.is_empty() { String::new() } else { format!("; stderr: {}", output.stderr.trim()) };
            Status::unknown(format!("error generating manifests: `{}`: {error}{stderr}", command.program))
        })?;
        output.folder.discard();
        Ok(manifests)
    }

    /// The manifests, unless the guard holds them.
    async fn guarded(
        &self,
        inputs: Inputs,
        manifests: Vec<String>,
        environment: &RunEnvironment,
    ) -> Result<Vec<String>, Status> {
        let guard = Arc::clone(&self.guard);
        // Many megabytes may have to be parsed.
        let checked = spawn_blocking(move || {
            guard.check(&inputs, &manifests, std::time::Instant::now())?;
            Ok(manifests)
        });
        let checked =
            checked.await.map_err(|_| Status::unknown("the manifests were not compared, since the server ends"))?;
        checked.map_err(|error: HeldError| {
            self.metrics.held.inc();
            let (plugin, application) =
                (self.plugin().full_name(), environment.get("ARGOCD_APP_NAME").unwrap_or_default());
            let error = environment.secrets().redact(&error.to_string());
            tracing::warn!(plugin, application, error, "manifests are held");
            Status::unknown(format!("the manifests are {error}"))
        })
    }

    /// `MatchRepository`. A failure never reads as "not this plugin's".
    ///
    /// # Errors
    /// When the client does not say what the call is about.
    pub(super) async fn match_repository(
        &self,
        messages: &mut MessageReader,
        is_relayed: bool,
        deadline: Option<Instant>,
    ) -> Result<RepositoryResponse, Status> {
        let plugin = self.plugin();
        let Opening { metadata, tree, .. } = received::opening(messages, is_relayed).await?;
        let is_discovery_enabled = plugin.has_discovery();
        let answer = |is_supported| RepositoryResponse { is_supported, is_discovery_enabled };
        if !is_discovery_enabled {
            return Ok(answer(false));
        }
        // Whoever may not use the plugin learns nothing of the folder, and changes no answer to others.
        if let Ok(environment) = self.environment.with(metadata.env.clone())
            && let Err(why) = self.allow.check(&environment)
        {
            let path = &metadata.app_rel_path;
            tracing::info!(plugin = plugin.full_name(), path, is_supported = false, why, "discovery");
            return Ok(answer(false));
        }
        let discovering = self.discover(&plugin, messages, &metadata, tree, deadline);
        let verdict = match deadline {
            Some(deadline) => timeout_at(deadline, discovering)
                .await
                .unwrap_or_else(|_| Err(Status::unknown("it was not done at the caller's deadline"))),
            None => discovering.await,
        };
        let key = folder_key(&metadata);
        Ok(answer(match verdict {
            // The relay remembers the verdicts of all replicas.
            Err(status) if is_relayed => return Err(status),
            Ok(verdict) => {
                // Argo CD only shows that it found no plugin.
                let (path, rule) = (&metadata.app_rel_path, plugin.discover.to_string());
                tracing::info!(plugin = plugin.full_name(), path, is_supported = verdict, rule, "discovery");
                self.verdicts.note(key, verdict);
                verdict
            }
            Err(error) => {
                let verdict = self.verdicts.in_doubt(key, error.message.clone());
                self.metrics.doubts.inc();
                let (path, plugin) = (&metadata.app_rel_path, plugin.full_name());
                tracing::error!(plugin, path, verdict, %error, "discovery failed: the last verdict counts, or the folder is claimed");
                verdict
            }
        }))
    }

    /// `GetParametersAnnouncement`. Without a dynamic list, the archive does not matter.
    ///
    /// # Errors
    /// When the dynamic list cannot be made.
    pub(super) async fn parameters(
        &self,
        messages: &mut MessageReader,
        is_relayed: bool,
        deadline: Option<Instant>,
    ) -> Result<ParametersAnnouncementResponse, Status> {
        let plugin = self.plugin();
        let mut parameter_announcements = Vec::new();
        if let Some(command) = &plugin.dynamic_parameters {
            let Opening { metadata, tree, .. } = received::opening(messages, is_relayed).await?;
            let environment = &self.environment.with(metadata.env.clone())?;
            self.allow.check(environment).map_err(Status::unknown)?;
            let Received { entries, files } = self.receive(messages, &metadata, tree, true).await?;
            let folder = app_folder(&entries, &metadata.app_rel_path)?;
            let task = Task { metadata: &metadata, files, folder, environment, init: None, command, deadline };
            let output = self
                .run(&plugin, task)
                .await
                .map_err(|error| error.within("error executing dynamic parameter output command"))?;
            let parsed = serde_json::from_slice(&output.stdout).and_then(fields::announcements);
            parameter_announcements = parsed.map_err(|error| {
                Status::unknown(format!("`{}` did not print a JSON list of parameters: {error}", command.program))
            })?;
            output.folder.discard();
        }
        // Argo CD takes the last of equal names, and the file's own count more.
        parameter_announcements.extend(plugin.static_parameters.iter().cloned());
        Ok(ParametersAnnouncementResponse { parameter_announcements })
    }

    async fn discover(
        &self,
        plugin: &Plugin,
        messages: &mut MessageReader,
        metadata: &Metadata,
        tree: Option<TreeName>,
        deadline: Option<Instant>,
    ) -> Result<bool, Status> {
        let environment = &self.environment.with(metadata.env.clone())?;
        if let Discover::Command(command) = &plugin.discover {
            let Received { entries, files } = self.receive(messages, metadata, tree, true).await?;
            let folder = app_folder(&entries, &metadata.app_rel_path)?;
            let task = Task { metadata, files, folder, environment, init: None, command, deadline };
            let RunOutput { stdout, folder, .. } = self.run(plugin, task).await?;
            folder.discard();
            // As argocd-cmp-server: anything but one line break counts.
            return Ok(!matches!(stdout.as_slice(), b"" | b"\n"));
        }
        let Received { entries, .. } = self.receive(messages, metadata, tree, false).await?;
        let folder = app_folder(&entries, &metadata.app_rel_path)?;
        let found = by_names(&plugin.discover, &entries, &folder).unwrap_or(Ok(false));
        found.map_err(|error| Status::unknown(format!("spec.discover of plugin.yaml: {error}")))
    }

    async fn receive(
        &self,
        messages: &mut MessageReader,
        metadata: &Metadata,
        tree: Option<TreeName>,
        has_contents: bool,
    ) -> Result<Received, Status> {
        if let Some(tree) = tree {
            let digest = tree.digest_in(self.view())?;
            let (tree, entries) = self
                .common
                .trees
                .find(digest)
                .ok_or_else(|| Status::new(Code::FailedPrecondition, format!("the tree {digest} is not there")))?;
            return Ok(Received { entries, files: Files::Tree(tree, digest) });
        }
        let began = Instant::now();
        let archive = received::archive(messages, self.wanted(has_contents), &metadata.checksum, |_| Ok(())).await?;
        self.metrics.received(archive.bytes, began.elapsed());
        Ok(archive.into())
    }

    pub(super) fn wanted(&self, has_contents: bool) -> Wanted {
        let settings = self.runner.settings();
        let spool = has_contents.then(|| self.common.spool.clone());
        Wanted { limits: settings.archive, has_git: settings.git, spool }
    }

    async fn run(&self, plugin: &Plugin, task: Task<'_>) -> Result<RunOutput, Status> {
        let Task { metadata, files, folder, environment, init, command, deadline } = task;
        let began = Instant::now();
        let (digest, tree, is_known) = match files {
            Files::Tree(tree, digest) => (digest, tree, true),
            Files::Archive(archive) => {
                let has_modes = plugin.preserve_file_mode;
                let digest = digest(&archive.entries, has_modes);
                let kept = self.common.trees.get(digest, archive, has_modes).await;
                let (tree, is_known) = kept.map_err(|error| Status::unknown(error.to_string()))?;
                (digest, tree, is_known)
            }
        };
        self.metrics.tree(is_known, began.elapsed());
        let name = plugin.full_name();
        let job = Job { plugin: &name, init, command, tree: &tree, folder: &folder, environment, deadline };
        let run = self.runner.run(job).await;
        self.metrics.ran(&run);
        let run = run.map_err(|error| error.status);
        let application = variable(metadata, "ARGOCD_APP_NAME");
        let (path, program) = (&metadata.app_rel_path, &command.program);
        match &run {
            Ok(output) => {
                let (queued_ms, took_ms, cpu_ms) = (ms(output.queued), ms(output.took), ms(output.cpu));
                let (peak_bytes, bytes, stderr) = (output.peak, output.stdout.len(), output.stderr.trim());
                tracing::info!(plugin = name, application, path, program, tree = %digest, is_known, queued_ms, took_ms, cpu_ms, peak_bytes, bytes, stderr, "run");
            }
            Err(error) => {
                tracing::error!(plugin = name, application, path, program, tree = %digest, %error, "run failed");
            }
        }
        run
    }
}

fn ms(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The folder that a call is about. The path in the archive is not the same in all calls: with the annotation `manifest-generate-paths`,
/// Argo CD sends less than the whole repository to `GenerateManifest`. So the path in the repository counts, if Argo CD names it.
pub(crate) fn folder_key(metadata: &Metadata) -> FolderKey {
    let path = variable(metadata, PATH);
    let path = if path.is_empty() { &metadata.app_rel_path } else { path };
    (variable(metadata, REPOSITORY).to_owned(), path.to_owned())
}

/// The variable `name` of a call. Empty if it is not there.
fn variable<'a>(metadata: &'a Metadata, name: &str) -> &'a str {
    metadata.env.iter().rfind(|entry| entry.name == name).map_or("", |entry| &entry.value)
}

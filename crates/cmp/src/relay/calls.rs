//! The calls of Argo CD: what is answered here, and what a replica is asked.

use std::sync::Arc;

use http::Response;
use prost::Message;
use tokio::time::{Duration, Instant, timeout_at};

use super::{
    asking::Question,
    credentials::{self, GitCredentials},
    link::Kind,
    remote::Remote,
    spool::Room,
};
use crate::{
    archive::{
        digest::digest_without_git,
        intake::{Archive, Wanted},
    },
    discover::{app_folder, by_names},
    grpc::{
        message::{
            CheckPluginConfigurationResponse, Empty, ManifestResponse, Metadata, ParametersAnnouncementResponse,
            RepositoryResponse,
        },
        reader::MessageReader,
        reply::{self, ReplyBody},
        status::Status,
    },
    output,
    plugin::Discover,
    served::{calls::folder_key, received},
    service::{Method, unimplemented},
};
use domain::secret::Secret;

/// How long before the end of its time a call gives up, to say why.
const EARLY: Duration = Duration::from_millis(50);

impl Remote {
    /// When a call that began now ends, with a reason.
    fn until(&self, deadline: Option<Instant>) -> Instant {
        let own = Instant::now() + self.settings.timeout.0;
        deadline.map_or(own, |deadline| deadline.min(own)).checked_sub(EARLY).unwrap_or(own)
    }

    /// The answer of a call.
    ///
    /// # Errors
    /// Those of the remote, and those of reaching it.
    pub(super) async fn call(
        &self,
        method: Method<'_>,
        messages: &mut MessageReader,
        deadline: Option<Instant>,
    ) -> Result<Response<ReplyBody>, Status> {
        let until = self.until(deadline);
        match method {
            Method::Plugin("CheckPluginConfiguration") => {
                messages.next::<Empty>().await?;
                // In doubt, Argo CD asks whether a folder is the plugin's.
                let is_discovery_configured = self.rules_now(until).await != Some(Discover::ByName);
                let provide_git_creds = self.takes_git_credentials(until).await;
                Ok(reply::answer(&CheckPluginConfigurationResponse { is_discovery_configured, provide_git_creds }))
            }
            Method::Plugin("GenerateManifest") => self.generate(messages, until).await,
            Method::Plugin("MatchRepository") => Ok(reply::answer(&self.match_repository(messages, until).await?)),
            Method::Plugin("GetParametersAnnouncement") => self.parameters(messages, until).await,
            other => Err(unimplemented(other.name())),
        }
    }

    async fn generate(&self, messages: &mut MessageReader, until: Instant) -> Result<Response<ReplyBody>, Status> {
        let (metadata, nonce) = metadata(messages).await?;
        let environment = self.environment.with(metadata.env.clone())?;
        self.allow.check(&environment).map_err(Status::unknown)?;
        let (archive, _room) = self.receive(messages, &metadata, until).await?;
        let nonce = nonce.filter(|_| self.settings.git_credentials);
        let credentials =
            nonce.map(|nonce| Arc::new(GitCredentials::new(nonce, &metadata, self.shared.ask_pass.clone())));
        let question = Question { credentials, ..Self::question(metadata, archive, until) };
        if let Some(why) = self.memory.verdicts.doubt(&folder_key(&question.metadata)) {
            self.resolve(&question, &why).await?;
        }
        let (answer, is_ours) = self.ask("GenerateManifest", &question).await?;
        if !is_ours && !self.settings.allow_blank {
            let found = ManifestResponse::decode(answer.clone());
            let found = found.map_err(|error| Status::unknown(format!("the remote's answer is malformed: {error}")))?;
            if found.manifests.iter().all(|text| output::is_blank(text)) {
                let name = &self.name;
                return Err(Status::unknown(format!(
                    "the remote `{name}` answered without manifests, which would delete everything (`allowBlank`)"
                )));
            }
        }
        Ok(reply::answer_encoded(&answer))
    }

    /// A folder was claimed, since discovery failed because of `why`. Decides it, now that its files are there.
    ///
    /// # Errors
    /// When that is still not possible, or the folder is not the plugin's.
    async fn resolve(&self, question: &Question, why: &str) -> Result<(), Status> {
        if self.rules().is_none() {
            // It may be back since it was asked last, up to `REFRESH` ago.
            self.reach(question).await;
        }
        let decided = match self.rules() {
            None => Err(Status::unknown(why)),
            // Only Applications that name the plugin use it.
            Some(Discover::ByName) => Ok(true),
            Some(Discover::Command(_)) => self.ask_whether(question).await,
            Some(rules) => decide(&rules, &question.archive, &question.metadata.app_rel_path),
        };
        let is_own = decided.map_err(|error| {
            let what = "it is not known whether the plugin is for this folder, since discovery failed";
            Status::unknown(format!("{what}: {error}"))
        })?;
        self.memory.verdicts.note(folder_key(&question.metadata), is_own);
        if is_own {
            return Ok(());
        }
        Err(Status::unknown(
            "the plugin is not for this folder, which was claimed when discovery failed: refresh the Application",
        ))
    }

    /// Asks the remote whether a folder is its plugin's.
    async fn ask_whether(&self, question: &Question) -> Result<bool, Status> {
        let (mut answer, _) = self.ask("MatchRepository", question).await?;
        let answer = RepositoryResponse::decode(&mut answer);
        let answer = answer.map_err(|error| Status::unknown(format!("the remote's answer is malformed: {error}")))?;
        Ok(answer.is_supported)
    }

    /// A failure never reads as "not this plugin's".
    async fn match_repository(
        &self,
        messages: &mut MessageReader,
        until: Instant,
    ) -> Result<RepositoryResponse, Status> {
        let (metadata, _) = metadata(messages).await?;
        let rules = self.rules_now(until).await;
        let is_discovery_enabled = rules != Some(Discover::ByName);
        let answer = |is_supported| RepositoryResponse { is_supported, is_discovery_enabled };
        let (plugin, path) = (&self.name, metadata.app_rel_path.clone());
        if !is_discovery_enabled {
            return Ok(answer(false));
        }
        if let Ok(environment) = self.environment.with(metadata.env.clone())
            && let Err(why) = self.allow.check(&environment)
        {
            tracing::info!(plugin, path, is_supported = false, why, "discovery");
            return Ok(answer(false));
        }
        let key = folder_key(&metadata);
        let discovering = timeout_at(until, self.discover(rules.as_ref(), messages, metadata, until));
        let decided = discovering.await.unwrap_or_else(|_| Err(Status::unknown("it was not done at the deadline")));
        Ok(answer(match decided {
            Ok(verdict) => {
                let rule = rules.map(|rules| rules.to_string());
                tracing::info!(plugin, path, is_supported = verdict, rule, "discovery");
                self.memory.verdicts.note(key, verdict);
                verdict
            }
            Err(error) => {
                let verdict = self.memory.verdicts.in_doubt(key, error.message.clone());
                self.metrics.doubts.inc();
                tracing::error!(plugin, path, verdict, %error, "discovery failed: the last verdict counts, or the folder is claimed");
                verdict
            }
        }))
    }

    async fn discover(
        &self,
        rules: Option<&Discover>,
        messages: &mut MessageReader,
        metadata: Metadata,
        until: Instant,
    ) -> Result<bool, Status> {
        let rules = rules.ok_or_else(|| {
            let why = self.trouble().unwrap_or_else(|| "it was not asked yet".to_owned());
            Status::unknown(format!(
                "the rules of the remote `{}` are not known: set `discover`, or look why: {why}",
                self.name
            ))
        })?;
        if let Discover::Command(_) = rules {
            let (archive, _room) = self.receive(messages, &metadata, until).await?;
            return self.ask_whether(&Self::question(metadata, archive, until)).await;
        }
        let wanted = Wanted { limits: self.settings.archive, has_git: true, spool: None };
        let archive = received::archive(messages, wanted, &metadata.checksum, |_| Ok(())).await?;
        decide(rules, &archive, &metadata.app_rel_path)
    }

    async fn parameters(&self, messages: &mut MessageReader, until: Instant) -> Result<Response<ReplyBody>, Status> {
        if let Some(Kind::Ours(description)) = self.memory.known.load().as_deref()
            && !description.has_dynamic_parameters
        {
            let parameter_announcements = description.static_parameters.clone();
            return Ok(reply::answer(&ParametersAnnouncementResponse { parameter_announcements }));
        }
        let (metadata, _) = metadata(messages).await?;
        let environment = self.environment.with(metadata.env.clone())?;
        self.allow.check(&environment).map_err(Status::unknown)?;
        let (archive, _room) = self.receive(messages, &metadata, until).await?;
        let question = Self::question(metadata, archive, until);
        let (answer, _) = self.ask("GetParametersAnnouncement", &question).await?;
        Ok(reply::answer_encoded(&answer))
    }

    /// Receives the archive into the spool. It waits for room for at most half of its time.
    async fn receive(
        &self,
        messages: &mut MessageReader,
        metadata: &Metadata,
        until: Instant,
    ) -> Result<(Archive, Room), Status> {
        let began = Instant::now();
        let half = began + until.saturating_duration_since(began) / 2;
        let announced = u64::try_from(metadata.size).unwrap_or_default();
        let mut room = self.shared.spool.room(announced.max(1), half).await?;
        let spool = Some(self.shared.spool.path.clone());
        let wanted = Wanted { limits: self.settings.archive, has_git: true, spool };
        let archive = received::archive(messages, wanted, &metadata.checksum, |bytes| room.hold(bytes)).await?;
        self.metrics.received(archive.bytes, began.elapsed());
        Ok((archive, room))
    }

    fn question(metadata: Metadata, archive: Archive, until: Instant) -> Question {
        let key = digest_without_git(&archive.entries, true);
        Question { metadata, archive: Arc::new(archive), key, until, credentials: None }
    }
}

/// The metadata of a call without any way to Git credentials, and the nonce of these.
///
/// # Errors
/// When there is none.
async fn metadata(messages: &mut MessageReader) -> Result<(Metadata, Option<Secret>), Status> {
    let mut metadata = received::metadata(messages).await?;
    let nonce = credentials::take(&mut metadata);
    Ok((metadata, nonce))
}

/// Decides by the names in `archive`.
fn decide(rules: &Discover, archive: &Archive, app_path: &str) -> Result<bool, Status> {
    let folder = app_folder(&archive.entries, app_path)?;
    let found = by_names(rules, &archive.entries, &folder).unwrap_or(Ok(false));
    found.map_err(|error| Status::unknown(format!("discover: {error}")))
}

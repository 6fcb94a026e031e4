//! A remote plugin: what is answered here, and what a replica is asked.

use std::{sync::Arc, time::SystemTime};

use arc_swap::ArcSwapOption;
use http::{HeaderMap, HeaderValue, Response, header::AUTHORIZATION};
use prost::Message;
use tokio::{
    task::JoinSet,
    time::{Duration, Instant, sleep},
};

use super::{
    asking::Question,
    config::RemoteSettings,
    link::{Kind, Link},
    metrics::RemoteMetrics,
    names::Names,
    replicas::{Replica, Replicas},
    spool::{Room, SpoolFolder},
};
use crate::{
    archive::{
        digest::digest_without_git,
        intake::{Archive, Wanted},
    },
    discover::{app_folder, by_names},
    exchange::PLUGIN,
    grpc::{
        message::{
            CheckPluginConfigurationResponse, Empty, ManifestResponse, Metadata, ParametersAnnouncementResponse,
            RepositoryResponse,
        },
        reader::MessageReader,
        reply::{self, ReplyBody},
        status::Status,
    },
    metrics::PluginMetrics,
    plugin::Discover,
    run::RunEnvironment,
    served::{allow::AllowRules, calls::folder_key, received, verdicts::Verdicts},
    service::{Method, unimplemented},
};
use domain::{file::base_dir::BaseDir, glob::GlobError};
use telemetry::trace::{self, Tracer};

/// How often names are resolved and replicas are asked what they are.
const REFRESH: Duration = Duration::from_secs(5);
/// How long before the end of its time a call gives up, to say why.
const EARLY: Duration = Duration::from_millis(50);

/// What all remotes share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) base: BaseDir,
    pub(super) spool: SpoolFolder,
    pub(super) tracer: Arc<Tracer>,
    pub(super) names: Names,
}

/// What outlives a change of the configuration.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    verdicts: Arc<Verdicts>,
    /// What the remote said of itself last.
    known: Arc<ArcSwapOption<Kind>>,
}

impl Memory {
    /// The rules of discovery have changed.
    pub(super) fn without_verdicts(self) -> Self {
        Self { verdicts: Arc::default(), ..self }
    }
}

/// A remote plugin.
#[derive(Debug)]
pub(super) struct Remote {
    /// The name of its socket.
    pub(super) name: String,
    pub(super) settings: RemoteSettings,
    allow: AllowRules,
    /// No variables, and the secrets of this process.
    environment: RunEnvironment,
    pub(super) memory: Memory,
    pub(super) replicas: Replicas,
    pub(super) metrics: PluginMetrics,
    pub(super) own: RemoteMetrics,
    pub(super) shared: Arc<Shared>,
}

impl Remote {
    /// Nothing is asked yet.
    ///
    /// # Errors
    /// When a glob of `allow` is invalid.
    pub(super) fn new(
        settings: RemoteSettings,
        memory: Memory,
        (metrics, own): (PluginMetrics, RemoteMetrics),
        shared: Arc<Shared>,
    ) -> Result<Self, GlobError> {
        Ok(Self {
            name: settings.full_name(),
            allow: AllowRules::new(&settings.allow)?,
            environment: RunEnvironment::of_process(Some(&[])),
            settings,
            memory,
            replicas: Replicas::default(),
            metrics,
            own,
            shared,
        })
    }

    /// Keeps addresses and descriptions as they are now, for ever.
    pub(super) async fn watch(self: Arc<Self>) {
        let hosts = self.settings.addresses();
        loop {
            let (found, problem) = self.shared.names.resolve(&hosts).await;
            if let Some(why) = &problem {
                tracing::warn!(plugin = self.name, why, "a remote has no address");
            }
            self.replicas.set(found, problem);
            let mut checks = JoinSet::new();
            for replica in self.replicas.all() {
                let remote = Arc::clone(&self);
                checks.spawn(async move { remote.check(&replica).await });
            }
            checks.join_all().await;
            let all = self.replicas.all();
            let up = all.iter().filter(|replica| replica.state().trouble.is_none()).count();
            self.own.replicas[0].set(i64::try_from(up).unwrap_or(i64::MAX));
            self.own.replicas[1].set(i64::try_from(all.len() - up).unwrap_or(i64::MAX));
            sleep(REFRESH).await;
        }
    }

    /// Asks `replica` what it is, and connects to it before.
    async fn check(&self, replica: &Arc<Replica>) {
        let had_trouble = replica.state().trouble;
        let checked = match (replica.link(), self.fields()) {
            (_, Err(why)) => Err(why),
            (None, Ok(_)) => self.link(replica).await.map(drop),
            (Some(link), Ok(fields)) => self.describe(replica, link, fields).await.map(drop),
        };
        match checked {
            Err(why) if had_trouble.as_ref() != Some(&why) => {
                tracing::warn!(plugin = self.name, replica = %replica.address, why, "a replica cannot be asked");
            }
            Ok(()) if had_trouble.is_some() => {
                tracing::info!(plugin = self.name, replica = %replica.address, "a replica can be asked again");
            }
            _ => {}
        }
    }

    /// Asks again what is at the other end of `link`.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(super) async fn describe(&self, replica: &Replica, mut link: Link, fields: HeaderMap) -> Result<Link, String> {
        match link.describe(&self.settings.name, &self.settings.version, fields).await {
            Ok(kind) => {
                self.memory.known.store(Some(Arc::new(kind.clone())));
                link.kind = kind;
                replica.connected(link.clone());
                Ok(link)
            }
            Err(why) => {
                replica.drop_link();
                replica.failed(&why);
                Err(why)
            }
        }
    }

    /// The connection to `replica`.
    ///
    /// # Errors
    /// When there is none.
    pub(super) async fn link(&self, replica: &Replica) -> Result<Link, String> {
        if let Some(link) = replica.link() {
            return Ok(link);
        }
        let began = Instant::now();
        let _turn = replica.connecting.lock().await;
        if let Some(link) = replica.link() {
            return Ok(link);
        }
        // Calls that waited do not wait again, one after the other.
        if let Some(trouble) = replica.trouble_since(began) {
            return Err(trouble);
        }
        let RemoteSettings { name, version, tls, .. } = &self.settings;
        let connected = match self.fields() {
            Ok(fields) => {
                let at = (replica.address, replica.host.as_str());
                Link::connect(tls, &self.shared.base, at, (name, version), fields).await
            }
            Err(why) => Err(why),
        };
        match connected {
            Ok(link) => {
                self.memory.known.store(Some(Arc::new(link.kind.clone())));
                replica.connected(link.clone());
                Ok(link)
            }
            Err(why) => {
                replica.failed(&why);
                Err(why)
            }
        }
    }

    /// The fields of all requests. The token is read each time, since it may be renewed.
    ///
    /// # Errors
    /// When it cannot be.
    pub(super) fn fields(&self) -> Result<HeaderMap, String> {
        let mut fields = HeaderMap::new();
        let name = HeaderValue::try_from(&self.name).map_err(|_| "the plugin's name cannot be sent".to_owned())?;
        fields.insert(PLUGIN, name);
        if let Some(token) = &self.settings.token {
            let value = token.header(&self.shared.base, "Bearer ").map_err(|error| error.to_string())?;
            fields.insert(AUTHORIZATION, value);
        }
        if let Some(place) = trace::current().and_then(|span| span.context().to_header()) {
            fields.insert("traceparent", place);
        }
        Ok(fields)
    }

    /// The rules of discovery: those of relay.yaml, or the last ones of the remote. `None` while neither is known.
    fn rules(&self) -> Option<Discover> {
        self.settings.discover().or_else(|| {
            let known = self.memory.known.load();
            Some(match known.as_deref()? {
                Kind::Ours(description) => description.discover(),
                Kind::Plain(answer) if answer.is_discovery_configured => asked(),
                Kind::Plain(_) => Discover::ByName,
            })
        })
    }

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
                // In doubt, Argo CD asks whether a folder is the plugin's. Credentials are not passed on.
                let is_discovery_configured = self.rules() != Some(Discover::ByName);
                Ok(reply::answer(&CheckPluginConfigurationResponse {
                    is_discovery_configured,
                    provide_git_creds: false,
                }))
            }
            Method::Plugin("GenerateManifest") => self.generate(messages, until).await,
            Method::Plugin("MatchRepository") => Ok(reply::answer(&self.match_repository(messages, until).await?)),
            Method::Plugin("GetParametersAnnouncement") => self.parameters(messages, until).await,
            other => Err(unimplemented(other.name())),
        }
    }

    async fn generate(&self, messages: &mut MessageReader, until: Instant) -> Result<Response<ReplyBody>, Status> {
        let metadata = received::metadata(messages).await?;
        let environment = self.environment.with(metadata.env.clone())?;
        self.allow.check(&environment).map_err(Status::unknown)?;
        let (archive, _room) = self.receive(messages, &metadata, until).await?;
        if let Some(why) = self.memory.verdicts.doubt(&folder_key(&metadata)) {
            return Err(Status::unknown(format!(
                "it is not known whether the plugin is for this folder, since discovery failed: {why}"
            )));
        }
        let (answer, is_ours) = self.ask("GenerateManifest", &Self::question(metadata, archive, until)).await?;
        if !is_ours && !self.settings.allow_blank {
            let found = ManifestResponse::decode(answer.clone());
            let found = found.map_err(|error| Status::unknown(format!("the remote's answer is malformed: {error}")))?;
            if found.manifests.iter().all(|text| crate::output::is_blank(text)) {
                let name = &self.name;
                return Err(Status::unknown(format!(
                    "the remote `{name}` answered without manifests, which would delete everything (`allowBlank`)"
                )));
            }
        }
        Ok(reply::answer_encoded(&answer))
    }

    /// A failure never reads as "not this plugin's".
    async fn match_repository(
        &self,
        messages: &mut MessageReader,
        until: Instant,
    ) -> Result<RepositoryResponse, Status> {
        let metadata = received::metadata(messages).await?;
        let rules = self.rules();
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
        Ok(answer(match self.discover(rules.as_ref(), messages, metadata, until).await {
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
            let (mut answer, _) = self.ask("MatchRepository", &Self::question(metadata, archive, until)).await?;
            let answer = RepositoryResponse::decode(&mut answer);
            let answer =
                answer.map_err(|error| Status::unknown(format!("the remote's answer is malformed: {error}")))?;
            return Ok(answer.is_supported);
        }
        let wanted = Wanted { limits: self.settings.archive, has_git: true, spool: None };
        let archive = received::archive(messages, wanted, &metadata.checksum, |_| Ok(())).await?;
        let folder = app_folder(&archive.entries, &metadata.app_rel_path)?;
        let found = by_names(rules, &archive.entries, &folder).unwrap_or(Ok(false));
        found.map_err(|error| Status::unknown(format!("discover: {error}")))
    }

    async fn parameters(&self, messages: &mut MessageReader, until: Instant) -> Result<Response<ReplyBody>, Status> {
        if let Some(Kind::Ours(description)) = self.memory.known.load().as_deref()
            && !description.has_dynamic_parameters
        {
            let parameter_announcements = description.static_parameters.clone();
            return Ok(reply::answer(&ParametersAnnouncementResponse { parameter_announcements }));
        }
        let metadata = received::metadata(messages).await?;
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
        Question { metadata, archive: Arc::new(archive), key, until }
    }

    /// Why no replica can be asked, as far as that is known.
    pub(super) fn trouble(&self) -> Option<String> {
        let of_replicas = self
            .replicas
            .all()
            .into_iter()
            .filter_map(|replica| Some(format!("{}: {}", replica.address, replica.state().trouble?)));
        let all: Vec<String> = self.replicas.problem().into_iter().chain(of_replicas).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// What is known, for people.
    pub(super) fn status(&self) -> serde_json::Value {
        let seconds = |at: SystemTime| at.elapsed().map_or(0, |elapsed| elapsed.as_secs());
        let replicas: Vec<_> = self
            .replicas
            .all()
            .iter()
            .map(|replica| {
                let state = replica.state();
                serde_json::json!({
                    "address": replica.address.to_string(),
                    "host": replica.host,
                    "isUp": state.trouble.is_none() && replica.link().is_some(),
                    "calls": replica.calls(),
                    "lastFailure": state.last_failure.map(|(at, why)| serde_json::json!({ "secondsAgo": seconds(at), "why": why })),
                })
            })
            .collect();
        let known = self.memory.known.load();
        let kind = match known.as_deref() {
            None => "unknown",
            Some(Kind::Ours(_)) => "cmp-gateway",
            Some(Kind::Plain(_)) => "plain",
        };
        serde_json::json!({
            "plugin": self.name,
            "kind": kind,
            "discover": self.rules().map_or("unknown".to_owned(), |rules| rules.to_string()),
            "problem": self.replicas.problem(),
            "sentBytes": self.own.sent.get(),
            "sparedBytes": self.own.spared.get(),
            "replicas": replicas,
        })
    }
}

/// A discovery of which only the remote knows the rules.
fn asked() -> Discover {
    Discover::Command(crate::plugin::Command { program: "of the remote".to_owned(), arguments: Vec::new() })
}

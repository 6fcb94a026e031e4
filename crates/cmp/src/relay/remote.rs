//! A remote plugin: its replicas, and its description.

use std::{path::PathBuf, sync::Arc};

use arc_swap::ArcSwapOption;
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Duration, Instant, timeout, timeout_at},
};

use super::{
    answers::AnswerRoom,
    config::RemoteSettings,
    link::{Kind, Link},
    metrics::RemoteMetrics,
    names::Names,
    replicas::{Replica, Replicas},
    spool::SpoolFolder,
};
use crate::{
    exchange::PLUGIN,
    metrics::PluginMetrics,
    plugin::{Command, Discover},
    run::RunEnvironment,
    served::{allow::AllowRules, verdicts::Verdicts},
};
use domain::{file::base_dir::BaseDir, glob::GlobError};
use telemetry::trace::{self, Tracer};

/// How often names are resolved and replicas are asked what they are.
const REFRESH: Duration = Duration::from_secs(5);
/// How long a call waits at the start until the remote has described itself.
const FIRST_CHECK: Duration = Duration::from_secs(5);

/// What all remotes share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) base: BaseDir,
    pub(super) spool: SpoolFolder,
    pub(super) tracer: Arc<Tracer>,
    pub(super) names: Names,
    pub(super) answers: AnswerRoom,
    /// The socket of Argo CD's askpass service.
    pub(super) ask_pass: PathBuf,
}

/// What outlives a change of the configuration.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    pub(super) verdicts: Arc<Verdicts>,
    /// The last description.
    pub(super) known: Arc<ArcSwapOption<Kind>>,
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
    pub(super) allow: AllowRules,
    /// No variables, and the secrets of this process.
    pub(super) environment: RunEnvironment,
    pub(super) memory: Memory,
    pub(super) replicas: Replicas,
    /// Whether all replicas were asked once.
    is_checked: watch::Sender<bool>,
    /// Wakes the task that asks them again.
    pub(super) wake: Notify,
    /// Since when no replica answers.
    pub(super) down_since: Mutex<Option<Instant>>,
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
            is_checked: watch::Sender::new(false),
            wake: Notify::new(),
            down_since: Mutex::default(),
            metrics,
            own,
            shared,
        })
    }

    /// Keeps addresses and descriptions as they are now, for ever.
    pub(super) async fn watch(self: Arc<Self>) {
        let hosts = self.settings.addresses();
        loop {
            let (found, problems) = self.shared.names.resolve(&hosts).await;
            if !problems.is_empty() {
                tracing::warn!(plugin = self.name, ?problems, "a remote has no address");
            }
            self.replicas.set(found, problems);
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
            self.is_checked.send_replace(true);
            // A call that reached no replica does not wait for the next time.
            let _ = timeout(REFRESH, self.wake.notified()).await;
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
                self.down_since.lock().take();
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
                Link::connect(tls, &self.shared.base, at, (name, version), (fields, self.shared.answers.clone())).await
            }
            Err(why) => Err(why),
        };
        match connected {
            Ok(link) => {
                self.memory.known.store(Some(Arc::new(link.kind.clone())));
                replica.connected(link.clone());
                self.down_since.lock().take();
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

    /// The rules of discovery, for a call. At the start, the remote is waited for if it has to describe them.
    pub(super) async fn rules_now(&self, until: Instant) -> Option<Discover> {
        if self.rules().is_none() {
            self.first_check(until).await;
        }
        self.rules()
    }

    /// Whether Argo CD gives the repository's credentials to the relay: relay.yaml allows it, and the remote takes them.
    pub(super) async fn takes_git_credentials(&self, until: Instant) -> bool {
        if !self.settings.git_credentials {
            return false;
        }
        if self.memory.known.load().is_none() {
            self.first_check(until).await;
        }
        matches!(self.memory.known.load().as_deref(), Some(Kind::Ours(description)) if description.takes_git_credentials)
    }

    /// Waits until all replicas were asked once, for at most half of the time until `until`.
    async fn first_check(&self, until: Instant) {
        let began = Instant::now();
        let until = (began + until.saturating_duration_since(began) / 2).min(began + FIRST_CHECK);
        let _ = timeout_at(until, self.is_checked.subscribe().wait_for(|is_checked| *is_checked)).await;
    }

    /// The rules of discovery: those of relay.yaml, or the last ones of the remote. `None` while neither is known.
    pub(super) fn rules(&self) -> Option<Discover> {
        self.settings.discover().or_else(|| {
            let known = self.memory.known.load();
            Some(match known.as_deref()? {
                Kind::Ours(description) => description.discover(),
                Kind::Plain(answer) if answer.is_discovery_configured => asked(),
                Kind::Plain(_) => Discover::ByName,
            })
        })
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
}

/// A discovery whose rules only the remote has.
fn asked() -> Discover {
    Discover::Command(Command { program: "of the remote".to_owned(), arguments: Vec::new() })
}

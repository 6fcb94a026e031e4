//! Valkey or Redis as the shared store. Each call is one Lua script, and so atomic. All keys of a gateway have one hash tag, so that a
//! cluster stores them in one slot.

mod address;
mod connection;
mod long;
mod probe;
mod reply;
mod requests;
mod scripts;

use std::{fmt, path::PathBuf, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use redis::{FromRedisValue, RedisError, ScriptInvocation, Value};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

pub(crate) use self::{address::Address, probe::StoreProbe};
use self::{
    connection::{Connection, Connector},
    long::LongFields,
    scripts::{NamedScript, Scripts},
};
use super::{
    Commit, Committed, Field, LEASE, Lease, MAX_INVALIDATIONS, Offer, Page, RecordKey, Store, StoreConfig, StoreError,
    SyncReply, SyncRequest,
};
use domain::file::base_dir::BaseDir;
use telemetry::metrics::StoreMetrics;

/// How long one wait for a change takes at most, in milliseconds.
const WAIT_MS: u64 = 250;
/// A sync may carry many records, and an offer too. Both have this many times the usual timeout.
const BULK: u32 = 10;
/// The longest timeout of these. Each replica must notice a new epoch within the shortest recovery.
const MAX_BULK: Duration = Duration::from_secs(2);

/// How often records are read at most: another commit may replace chunks of a record after it was read.
const MAX_READS: usize = 3;

/// A store on a Valkey or Redis server, behind Sentinels, or in a cluster.
pub struct RedisStore {
    connector: Connector,
    timeout: Duration,
    /// The key of the store's state. All other keys begin as it does.
    state: String,
    wake: String,
    /// For requests.
    main: Mutex<Option<Connection>>,
    /// For [`Store::wait`], which blocks its connection, with the id of the last change that it saw.
    watch: Mutex<(Option<Connection>, String)>,
    scripts: Scripts,
    long: LongFields,
    metrics: Option<StoreMetrics>,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("state", &self.state).finish_non_exhaustive()
    }
}

impl RedisStore {
    /// A store at `address`. It connects when it is first used.
    pub fn new(address: Address, config: StoreConfig, base: BaseDir, ca: Option<PathBuf>) -> Self {
        let timeout = config.timeout.0;
        let base_key = format!("{{{}}}:", config.prefix);
        Self {
            connector: Connector::new(address, config, base, ca),
            timeout,
            state: format!("{base_key}meta"),
            wake: format!("{base_key}wake"),
            main: Mutex::default(),
            watch: Mutex::new((None, "$".to_owned())),
            scripts: Scripts::default(),
            long: LongFields::default(),
            metrics: None,
        }
    }

    /// Counts requests in `metrics`.
    #[must_use]
    pub fn counted(self, metrics: StoreMetrics) -> Self {
        for script in self.scripts.all() {
            metrics.begin(script.name);
        }
        Self { metrics: Some(metrics), ..self }
    }

    /// Runs `script` with `fill`ed arguments. After an error, the next call connects again.
    async fn run<T: FromRedisValue>(
        &self,
        script: &NamedScript,
        within: Duration,
        fill: impl FnOnce(&mut ScriptInvocation<'_>),
    ) -> Result<T, StoreError> {
        let mut invocation = script.script.prepare_invoke();
        invocation.key(&self.state);
        fill(&mut invocation);
        let work = async {
            let mut connection = self.connected().await?;
            connection.invoke(&invocation).await.map_err(|error| store_error(script.name, &error))
        };
        let began = Instant::now();
        let result = timeout(within, work).await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable(format!("no answer to `{}` within {} ms", script.name, within.as_millis())))
        });
        let is_bad = matches!(result, Err(StoreError::Unavailable(_)));
        if let Some(metrics) = &self.metrics {
            metrics.requested(script.name, began.elapsed(), !is_bad);
        }
        if is_bad {
            *self.main.lock().await = None;
        }
        result
    }

    fn bulk(&self) -> Duration {
        (self.timeout * BULK).min(MAX_BULK)
    }

    async fn connected(&self) -> Result<Connection, StoreError> {
        let mut main = self.main.lock().await;
        if let Some(connection) = &*main {
            return Ok(connection.clone());
        }
        let connection = self.connector.connect().await?;
        *main = Some(connection.clone());
        Ok(connection)
    }
}

fn store_error(what: &str, error: &RedisError) -> StoreError {
    if error.code() == Some("EPOCH") {
        return StoreError::OtherEpoch;
    }
    StoreError::Unavailable(format!("`{what}` failed: {error}"))
}

const fn millis(time: Duration) -> u64 {
    time.as_secs() * 1000 + time.subsec_millis() as u64
}

#[async_trait]
impl Store for RedisStore {
    async fn sync(&self, request: &SyncRequest) -> Result<SyncReply, StoreError> {
        let mut reply = self.sync_once(request).await?;
        for _ in 1..MAX_READS {
            if self.complete(&reply.epoch, &mut reply.changed).await? {
                return Ok(reply);
            }
            reply = self.sync_once(request).await?;
        }
        self.complete(&reply.epoch, &mut reply.changed).await?;
        Ok(reply)
    }

    async fn wait(&self) -> Result<(), StoreError> {
        let mut watch = self.watch.lock().await;
        let (connection, last) = &mut *watch;
        let work = async {
            let mut own = match connection.take() {
                Some(connection) => connection,
                None => self.connector.connect().await?,
            };
            let mut command = redis::cmd("XREAD");
            command.arg("COUNT").arg(100).arg("BLOCK").arg(WAIT_MS).arg("STREAMS").arg(&self.wake).arg(&*last);
            let reply: Value = own.query(&command).await.map_err(|error| store_error("XREAD", &error))?;
            Ok((own, reply))
        };
        let within = self.timeout * 2 + Duration::from_millis(WAIT_MS);
        let (own, reply) = timeout(within, work)
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable("no answer to XREAD in time".to_owned())))?;
        *connection = Some(own);
        if reply == Value::Nil {
            return Ok(());
        }
        // Without the id, the same entry would come again at once.
        let unreadable = || StoreError::Unavailable("its answer to XREAD cannot be read".to_owned());
        *last = reply::last_id(reply).ok_or_else(unreadable)?;
        Ok(())
    }

    async fn begin(&self, epoch: &str, replica: &str, question: RecordKey, version: u64) -> Result<Lease, StoreError> {
        let (what, number): (String, u64) = self
            .run(&self.scripts.begin, self.timeout, |script| {
                script.arg(epoch).arg(replica).arg(&question[..]).arg(version).arg(millis(LEASE));
            })
            .await?;
        Ok(match &*what {
            "ours" => Lease::Ours(number),
            "theirs" => Lease::Theirs(Duration::from_millis(number)),
            _ => Lease::Behind,
        })
    }

    async fn renew(&self, epoch: &str, replica: &str, question: RecordKey) -> Result<bool, StoreError> {
        self.run(&self.scripts.renew, self.timeout, |script| {
            script.arg(epoch).arg(replica).arg(&question[..]).arg(millis(LEASE));
        })
        .await
    }

    async fn commit(&self, epoch: &str, commit: &Commit) -> Result<Committed, StoreError> {
        let mut arguments = self.arguments(commit, false);
        let mut version = self.commit_once(epoch, commit, &arguments).await?;
        if version < 0 {
            arguments = self.arguments(commit, true);
            version = self.commit_once(epoch, commit, &arguments).await?;
        }
        if version > 0 {
            for (write, argument) in commit.writes.iter().zip(arguments) {
                self.long.is_there((write.key, write.field), argument);
            }
            return Ok(Committed::Stored(version.unsigned_abs()));
        }
        if let Some(metrics) = &self.metrics {
            metrics.conflicts.inc();
        }
        Ok(Committed::Conflict)
    }

    async fn invalidate(&self, epoch: &str, selector: Bytes) -> Result<(), StoreError> {
        self.run(&self.scripts.invalidate, self.timeout, |script| {
            script.arg(epoch).arg(&selector[..]).arg(MAX_INVALIDATIONS);
        })
        .await
    }

    async fn register(&self, epoch: &str, revisions: &[(String, Bytes)]) -> Result<(), StoreError> {
        self.run(&self.scripts.register, self.timeout, |script| {
            script.arg(epoch);
            for (route, revision) in revisions {
                script.arg(route).arg(&revision[..]);
            }
        })
        .await
    }

    async fn offer(&self, epoch: &str, offer: &Offer) -> Result<(), StoreError> {
        self.run(&self.scripts.offer, self.bulk(), |script| {
            script.arg(epoch).arg(u8::from(offer.is_alone));
            for (key, record) in &offer.records {
                script.arg(&key[..]).arg(record.version);
                for field in Field::ALL {
                    self.long.argument((*key, field), record.get(field), true).fill(script);
                }
            }
        })
        .await
    }

    async fn note(&self, list: &str, notes: &[(String, String)], kept: Duration) -> Result<(), StoreError> {
        self.run(&self.scripts.note, self.timeout, |script| {
            script.arg(list).arg(millis(kept));
            for (name, value) in notes {
                script.arg(name).arg(value);
            }
        })
        .await
    }

    async fn notes(&self, list: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.run(&self.scripts.notes, self.timeout, |script| {
            script.arg(list);
        })
        .await
    }

    async fn claim(&self, name: &str, lasts: Duration) -> Result<bool, StoreError> {
        self.run(&self.scripts.claim, self.timeout, |script| {
            script.arg(name).arg(millis(lasts));
        })
        .await
    }

    async fn name_key(&self, ids: &[String]) -> Result<Option<String>, StoreError> {
        let other: String = self
            .run(&self.scripts.name_key, self.timeout, |script| {
                for id in ids {
                    script.arg(id);
                }
            })
            .await?;
        Ok((!other.is_empty()).then_some(other))
    }

    async fn page(&self, epoch: &str, after: u64) -> Result<Page, StoreError> {
        let mut page = self.page_once(epoch, after).await?;
        for _ in 1..MAX_READS {
            if self.complete(epoch, &mut page.records).await? {
                return Ok(page);
            }
            page = self.page_once(epoch, after).await?;
        }
        self.complete(epoch, &mut page.records).await?;
        Ok(page)
    }

    async fn replace(
        &self,
        epoch: &str,
        key: RecordKey,
        version: u64,
        fields: &[(Field, Bytes)],
    ) -> Result<bool, StoreError> {
        self.run(&self.scripts.replace, self.timeout, |script| {
            script.arg(epoch).arg(&key[..]).arg(version);
            for (field, content) in fields {
                script.arg(*field as usize);
                self.long.argument((key, *field), Some(content), true).fill(script);
            }
        })
        .await
    }
}

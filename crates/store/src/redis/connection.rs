//! Connections to one server, to a primary that Sentinels name, or to a cluster.

use std::{path::PathBuf, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, FromRedisValue, IntoConnectionInfo as _, RedisConnectionInfo,
    RedisError, RedisResult, ScriptInvocation, TlsCertificates, TlsMode,
    aio::MultiplexedConnection,
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};

use super::{Address, StoreConfig, StoreError, address::Node};
use domain::{
    file::{self, base_dir::BaseDir},
    secret::{Secret, SecretRef},
};

/// A connection that several tasks share.
#[derive(Clone)]
pub(super) enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    /// Runs a script.
    pub(super) async fn invoke<T: FromRedisValue>(&mut self, script: &ScriptInvocation<'_>) -> RedisResult<T> {
        match self {
            Self::Single(connection) => script.invoke_async(connection).await,
            Self::Cluster(connection) => script.invoke_async(connection).await,
        }
    }

    /// Runs a command.
    pub(super) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::Single(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }
}

/// Makes connections. Passwords and certificates are read again for each.
pub(super) struct Connector {
    address: Address,
    username: Option<String>,
    password: Option<SecretRef>,
    base: BaseDir,
    ca: Option<PathBuf>,
    timeout: Duration,
}

impl Connector {
    pub(super) fn new(address: Address, config: StoreConfig, base: BaseDir, ca: Option<PathBuf>) -> Self {
        let StoreConfig { username, password, timeout, .. } = config;
        Self { address, username, password, base, ca, timeout: timeout.0 }
    }

    /// Connects.
    pub(super) async fn connect(&self) -> Result<Connection, StoreError> {
        let unavailable = |error: RedisError| StoreError::Unavailable(format!("cannot connect: {error}"));
        let password = self.password.as_ref().map(|password| password.read(&self.base)).transpose();
        let password = password.map_err(|error| StoreError::Unavailable(error.into()))?;
        let certificates = TlsCertificates { client_tls: None, root_cert: self.root()? };
        let work = async {
            match &self.address {
                Address::Single(node) => {
                    let info = self.info(node, password.as_ref())?;
                    self.single(info, node.is_tls, certificates).await
                }
                Address::Sentinel { sentinels, name } => {
                    self.of_sentinels(sentinels, name, password.as_ref(), certificates).await
                }
                Address::Cluster(nodes) => self.of_cluster(nodes, password.as_ref(), certificates).await,
            }
        };
        let within = self.timeout * 5;
        match tokio::time::timeout(within, work).await {
            Ok(connected) => connected.map_err(unavailable),
            Err(_) => Err(StoreError::Unavailable(format!("no connection within {} ms", within.as_millis()))),
        }
    }

    fn root(&self) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(ca) = &self.ca else { return Ok(None) };
        let read = file::read(ca)
            .map_err(|error| StoreError::Unavailable(format!("cannot read {}: {error}", ca.display())))?;
        Ok(Some(read.into()))
    }

    fn credential(&self, password: Option<&Secret>) -> RedisConnectionInfo {
        let mut redis = RedisConnectionInfo::default();
        if let Some(username) = &self.username {
            redis = redis.set_username(username);
        }
        if let Some(password) = password {
            redis = redis.set_password(password.expose());
        }
        redis
    }

    fn info(&self, node: &Node, password: Option<&Secret>) -> RedisResult<ConnectionInfo> {
        let redis = self.credential(password).set_db(node.database);
        Ok(node.address.clone().into_connection_info()?.set_redis_settings(redis))
    }

    fn settings(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new().set_connection_timeout(Some(self.timeout * 5)).set_response_timeout(None)
    }

    async fn single(
        &self,
        info: ConnectionInfo,
        is_tls: bool,
        certificates: TlsCertificates,
    ) -> RedisResult<Connection> {
        let client = if is_tls { Client::build_with_tls(info, certificates)? } else { Client::open(info)? };
        client.get_multiplexed_async_connection_with_config(&self.settings()).await.map(Connection::Single)
    }

    async fn of_sentinels(
        &self,
        sentinels: &[Node],
        name: &str,
        password: Option<&Secret>,
        certificates: TlsCertificates,
    ) -> RedisResult<Connection> {
        let addresses = sentinels.iter().map(|node| node.address.clone());
        let mut builder = SentinelClientBuilder::new(addresses, name, SentinelServerType::Master)?;
        let first = sentinels.first();
        builder = builder.set_client_to_redis_db(first.map_or(0, |node| node.database));
        if let Some(username) = &self.username {
            builder = builder.set_client_to_redis_username(username);
        }
        if let Some(password) = password {
            builder = builder.set_client_to_redis_password(password.expose());
        }
        if first.is_some_and(|node| node.is_tls) {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_certificates(certificates);
        }
        let mut client: SentinelClient = builder.build()?;
        client.get_async_connection_with_config(&self.settings()).await.map(Connection::Single)
    }

    async fn of_cluster(
        &self,
        nodes: &[Node],
        password: Option<&Secret>,
        certificates: TlsCertificates,
    ) -> RedisResult<Connection> {
        let infos = nodes.iter().map(|node| self.info(node, password)).collect::<RedisResult<Vec<_>>>()?;
        let mut builder = ClusterClient::builder(infos)
            .retries(1)
            .connection_timeout(self.timeout * 5)
            .overall_response_timeout(None);
        if nodes.iter().any(|node| node.is_tls) {
            builder = builder.tls(TlsMode::Secure).certs(certificates);
        }
        builder.build()?.get_async_connection().await.map(Connection::Cluster)
    }
}

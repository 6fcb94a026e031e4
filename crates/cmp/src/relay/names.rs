//! From names to addresses, in Rust: a static program has no resolver of the C library.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use hickory_resolver::TokioResolver;
use tokio::time::timeout;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// The resolver of `/etc/resolv.conf` and `/etc/hosts`.
pub(super) struct Names(Result<TokioResolver, String>);

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Names").field(&self.0.as_ref().map(|_| ())).finish()
    }
}

impl Names {
    /// Reads the system's files. Without them, only addresses can be used. Needs a runtime.
    pub(super) fn of_system() -> Self {
        let resolver = TokioResolver::builder_tokio().and_then(|mut builder| {
            // Each look-up is a new one: the addresses of a headless Service change.
            builder.options_mut().cache_size = 0;
            builder.build()
        });
        Self(resolver.map_err(|error| format!("names cannot be resolved: {error}")))
    }

    /// All addresses of `hosts` and their hosts, and why other hosts have none.
    pub(super) async fn resolve(
        &self,
        hosts: &[(String, u16)],
    ) -> (BTreeMap<SocketAddr, String>, BTreeMap<String, String>) {
        let (mut found, mut problems) = (BTreeMap::new(), BTreeMap::new());
        for (host, port) in hosts {
            match self.one(host).await {
                Ok(addresses) => {
                    found.extend(addresses.into_iter().map(|ip| (SocketAddr::new(ip, *port), host.clone())));
                }
                Err(why) => _ = problems.insert(host.clone(), why),
            }
        }
        (found, problems)
    }

    async fn one(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![ip]);
        }
        let resolver = self.0.as_ref().map_err(Clone::clone)?;
        match timeout(PATIENCE, resolver.lookup_ip(host)).await {
            Ok(Ok(found)) => Ok(found.iter().collect()),
            Ok(Err(error)) => Err(format!("`{host}` has no address: {error}")),
            Err(_) => Err(format!("`{host}`: the name server did not answer in time")),
        }
    }
}

//! Which identity each source uses, for `check`; and its name at the cloud, for `check --connect`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

use crate::config::Loaded;
use oci::RegistryConfig;
use outbound::{Identities, Identity};

/// How long a cloud may take to name an identity.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The identities of a configuration.
pub(super) struct Wanted {
    registries: BTreeMap<String, RegistryConfig>,
    /// The routes as they are written, by name.
    routes: Vec<(String, Value)>,
}

/// A place that uses an identity.
struct Use {
    place: String,
    identity: Arc<dyn Identity>,
}

impl Wanted {
    /// Those of `loaded`.
    pub(super) fn of(loaded: &Loaded) -> Self {
        let registries = loaded.config.as_ref().map(|config| config.registries.clone()).unwrap_or_default();
        let own = loaded.raw.get("routes").and_then(Value::as_array).into_iter().flatten();
        let own = own.map(|route| (route["name"].as_str().unwrap_or_default().to_owned(), route.clone()));
        let of_plugins = loaded.plugins.iter().flat_map(|plugin| &plugin.routes);
        let of_plugins = of_plugins.map(|(config, raw)| (config.name.clone(), raw.clone()));
        Self { registries, routes: own.chain(of_plugins).collect() }
    }

    /// One line for each source that uses an identity, and for each identity that nothing uses.
    pub(super) fn lines(&self, identities: &Identities) -> Vec<String> {
        let uses = self.uses(identities);
        let is_used = |identity: &Arc<dyn Identity>| uses.iter().any(|used| Arc::ptr_eq(&used.identity, identity));
        let unused = identities.all().iter().filter(|(_, identity)| !is_used(identity));
        let unused =
            unused.map(|(name, identity)| format!("  identity {name}, which nothing uses: {}", identity.describe()));
        let lines = uses.iter().map(|used| format!("  {}: {}", used.place, used.identity.describe()));
        lines.chain(unused).collect()
    }

    /// Asks the clouds who the identities are, and prints their answers to standard error. Returns whether all answered.
    pub(super) async fn ask(&self, identities: &Identities) -> bool {
        let mut all: Vec<Arc<dyn Identity>> = Vec::new();
        let named = identities.all().values().map(Arc::clone);
        for identity in self.uses(identities).into_iter().map(|used| used.identity).chain(named) {
            if !all.iter().any(|known| Arc::ptr_eq(known, &identity)) {
                all.push(identity);
            }
        }
        let mut is_good = true;
        for identity in all {
            match identity.who(Instant::now() + TIMEOUT).await {
                Ok(who) => eprintln!("identity {}: is {who}", identity.describe()),
                Err(error) => {
                    is_good = false;
                    eprintln!("identity {}: cannot be used: {error}", identity.describe());
                }
            }
        }
        is_good
    }

    fn uses(&self, identities: &Identities) -> Vec<Use> {
        let mut uses = Vec::new();
        let mut add = |place: String, identity: Option<Arc<dyn Identity>>| {
            uses.extend(identity.map(|identity| Use { place, identity }));
        };
        for (host, config) in &self.registries {
            add(format!("registry {host}"), config.identity(host, identities).ok().flatten());
        }
        for (route, raw) in &self.routes {
            let mut found = Found::default();
            found.walk(raw);
            for name in found.named {
                add(format!("route {route}, credential {name}"), identities.named(&name).ok());
            }
            for host in found.hosts.into_iter().filter(|host| !self.registries.contains_key(host)) {
                let identity = identities.automatic(&host);
                add(format!("route {route}, registry {host}"), identity);
            }
        }
        uses
    }
}

/// The names in a route.
#[derive(Default)]
struct Found {
    /// Identities of credentials.
    named: BTreeSet<String>,
    /// The hosts of images and repositories.
    hosts: BTreeSet<String>,
}

impl Found {
    fn walk(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.walk(item)),
            Value::Object(map) => {
                for (key, value) in map {
                    match (key.as_str(), value) {
                        ("credential", Value::Object(credential)) => {
                            self.named.extend(credential.get("identity").and_then(Value::as_str).map(str::to_owned));
                        }
                        ("image", Value::String(image)) => self.add_host(image),
                        ("repositories", Value::Array(all)) => {
                            all.iter().filter_map(Value::as_str).for_each(|repository| self.add_host(repository));
                        }
                        (_, value) => self.walk(value),
                    }
                }
            }
            _ => {}
        }
    }

    /// The host of a reference, which stands in it as it is.
    fn add_host(&mut self, reference: &str) {
        let host = reference.split_once('/').map(|(host, _)| host).filter(|host| !host.contains('{'));
        self.hosts.extend(host.map(str::to_owned));
    }
}

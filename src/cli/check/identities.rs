//! Which identity each source uses, for `check`; and its name at the cloud, for `check --connect`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

use super::missing::with_missing;
use crate::config::Loaded;
use oci::{Registries, RegistryConfig};
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
    /// The registry that it logs in at, as the route sees it.
    registry: Option<(Registries, String)>,
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
    pub(super) fn lines(&self, identities: &Identities, registries: &Registries) -> Vec<String> {
        let uses = self.uses(identities, registries);
        let is_used = |identity: &Arc<dyn Identity>| uses.iter().any(|used| Arc::ptr_eq(&used.identity, identity));
        let unused = identities.all().iter().filter(|(_, identity)| !is_used(identity));
        let unused =
            unused.map(|(name, identity)| format!("  identity {name}, which nothing uses: {}", identity.describe()));
        let lines = uses.iter().map(|used| format!("  {}: {}", used.place, used.identity.describe()));
        lines.chain(unused).collect()
    }

    /// Asks the clouds who the identities are, and logs in at the registries that use them. Prints the answers to standard error. Returns
    /// whether all is well.
    pub(super) async fn ask(&self, identities: &Identities, registries: &Registries) -> bool {
        let uses = self.uses(identities, registries);
        let mut all: Vec<Arc<dyn Identity>> = Vec::new();
        let named = identities.all().values();
        for identity in uses.iter().map(|used| &used.identity).chain(named) {
            if !all.iter().any(|known| Arc::ptr_eq(known, identity)) {
                all.push(Arc::clone(identity));
            }
        }
        let mut bad = Vec::new();
        for identity in all {
            match identity.who(Instant::now() + TIMEOUT).await {
                Ok(who) => eprintln!("identity {}: is {who}", identity.describe()),
                Err(error) => {
                    eprintln!("identity {}: cannot be used: {}", identity.describe(), with_missing(&error, None));
                    bad.push(identity);
                }
            }
        }
        let mut is_good = bad.is_empty();
        // A login of an identity that is not one fails for the same reason.
        let is_tried = |used: &&Use| !bad.iter().any(|bad| Arc::ptr_eq(bad, &used.identity));
        for used in uses.iter().filter(is_tried) {
            let Some((registries, host)) = &used.registry else { continue };
            match registries.log_in(host, Instant::now() + TIMEOUT).await {
                Ok(()) => eprintln!("{}: gives the identity a login", used.place),
                Err(error) => {
                    eprintln!("{}: gives the identity no login: {}", used.place, with_missing(&error, None));
                    is_good = false;
                }
            }
        }
        is_good
    }

    fn uses(&self, identities: &Identities, registries: &Registries) -> Vec<Use> {
        let mut uses = Vec::new();
        let mut add_registry = |place: String, registries: &Registries, host: &str| {
            let registry = Some((registries.clone(), host.to_owned()));
            uses.extend(registries.identity(host).map(|identity| Use { place, identity, registry }));
        };
        let mut credentials = Vec::new();
        for host in self.registries.keys() {
            add_registry(format!("registry {host}"), registries, host);
        }
        for (route, raw) in &self.routes {
            let mut found = Found::default();
            found.walk(raw, None);
            let named = found.named.into_iter().filter_map(|name| Some((identities.named(&name).ok()?, name)));
            credentials.extend(named.map(|(identity, name)| Use {
                place: format!("route {route}, credential {name}"),
                identity,
                registry: None,
            }));
            for (host, own) in found.hosts {
                let place = format!("route {route}, registry {host}");
                match own.and_then(|name| Some((identities.named(&name).ok()?, name))) {
                    Some((identity, name)) => {
                        add_registry(place, &registries.with_identity(&name, &identity), &host);
                    }
                    None if self.registries.contains_key(&host) => {}
                    None => add_registry(place, registries, &host),
                }
            }
        }
        uses.extend(credentials);
        uses
    }
}

/// The names in a route.
#[derive(Default)]
struct Found {
    /// Identities of credentials.
    named: BTreeSet<String>,
    /// The hosts of images and repositories, with the identity that the backend names for them.
    hosts: BTreeSet<(String, Option<String>)>,
}

impl Found {
    /// Notes what `value` names. `of_images` is the identity of the images in it.
    fn walk(&mut self, value: &Value, of_images: Option<&str>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.walk(item, of_images)),
            Value::Object(map) => {
                for (key, value) in map {
                    match (key.as_str(), value) {
                        ("credential", Value::Object(credential)) => {
                            self.named.extend(credential.get("identity").and_then(Value::as_str).map(str::to_owned));
                        }
                        ("digests", Value::Object(digests)) => {
                            self.walk(value, digests.get("identity").and_then(Value::as_str));
                        }
                        ("image", Value::String(image)) => self.add_host(image, of_images),
                        ("repositories", Value::Array(all)) => {
                            let all = all.iter().filter_map(Value::as_str);
                            all.for_each(|repository| self.add_host(repository, of_images));
                        }
                        (_, value) => self.walk(value, of_images),
                    }
                }
            }
            _ => {}
        }
    }

    /// The host of a reference, which stands in it as it is.
    fn add_host(&mut self, reference: &str, of_images: Option<&str>) {
        let host = reference.split_once('/').map(|(host, _)| host).filter(|host| !host.contains('{'));
        self.hosts.extend(host.map(|host| (host.to_owned(), of_images.map(str::to_owned))));
    }
}

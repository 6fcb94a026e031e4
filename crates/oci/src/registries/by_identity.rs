//! The registries as an identity sees them that a route names.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Registries, RegistriesMeans, Shared};
use crate::{config::RegistryConfig, reference::registry_key};
use domain::{
    error::BackendError,
    problem::{Path, Problems},
    section::Section,
};
use outbound::Identity;

impl Registries {
    /// The same registries for routes whose `identity` is the one called `name`. What they answer is remembered apart, since it depends on
    /// who asks.
    #[must_use]
    pub fn with_identity(&self, name: &str, identity: &Arc<dyn Identity>) -> Self {
        let shared = &self.0;
        let mut by_identity = shared.by_identity.lock();
        let new = || {
            let Shared { base, outbound, launchers, clock, .. } = &**shared;
            let means = RegistriesMeans { outbound, launchers, clock };
            // The problems are those of the registries without it.
            let mut problems = Problems::default();
            Self::new(&shared.configs, means, Some(identity), &mut Section::new(base, Path::root(), &mut problems))
        };
        by_identity.entry(name.to_owned()).or_insert_with(new).clone()
    }

    /// The identity that logs in at the registry called `host`.
    #[must_use]
    pub fn identity(&self, host: &str) -> Option<Arc<dyn Identity>> {
        let name = registry_key(host);
        let config = self.0.configs.iter().find(|(host, _)| registry_key(host) == name).map(|(_, config)| config);
        let (usual, of_route) = (RegistryConfig::default(), self.0.of_route.as_ref());
        config.unwrap_or(&usual).identity(&name, self.0.outbound.identities(), of_route).ok().flatten()
    }

    /// The permission to read that the identity needs which logs in at the registry called `host`.
    #[must_use]
    pub fn needs(&self, host: &str) -> Option<&'static str> {
        self.identity(host)?.to_read()
    }

    /// Logs in at the registry called `host` with the credential that its requests have, for `check --connect`.
    ///
    /// # Errors
    /// When there is no credential.
    pub async fn log_in(&self, host: &str, deadline: Instant) -> Result<(), BackendError> {
        self.0.registry(&registry_key(host))?.log_in(deadline).await
    }
}

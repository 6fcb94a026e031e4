//! The `registries` of a configuration.

use std::{num::NonZeroU32, path::PathBuf, sync::Arc};

use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    credentials::{Credentials, DockerConfig, Helpers, has_helper},
    reference::{is_registry, registry_key},
    registry::{Confirm404, Registry, RegistryRules},
};
use domain::{file::base_dir::BaseDir, section::Section};
use launcher::Launchers;
use outbound::{
    ClientCertificate, ClientOptions, Identities, Identity, NO_IDENTITY, Outbound, Tls, TlsKeys, UnknownIdentity,
    warn_of_cleartext,
};

/// Docker Hub's name in image references.
const HUB: &str = "docker.io";

/// How one registry is reached, and how its answers are read.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RegistryConfig {
    /// The host and port where the registry is reached, if they differ from those in image references.
    pub endpoint: Option<String>,
    /// Use `http://` instead of `https://`. Only for a registry on a trusted network.
    pub(crate) plain_http: bool,
    /// A PEM file with certificates to trust besides those of the system, relative to the configuration file.
    pub ca: Option<PathBuf>,
    /// A client certificate, for a registry that asks for one. Its files are read again every 30 s.
    pub client_certificate: Option<ClientCertificate>,
    /// Accept any certificate. An attacker on the network can then read the credential and decide what is deployed.
    pub insecure_skip_verify: bool,
    /// A Docker `config.json` with the credential, relative to the configuration file. Read again when it changes. Without this
    /// key and without an identity the requests are anonymous.
    pub docker_config: Option<PathBuf>,
    /// The credential helpers of that file that may run: `ecr-login` for the program `docker-credential-ecr-login`.
    pub(crate) credential_helpers: Vec<String>,
    /// The registry that this one mirrors. Requests go to the mirror first. If it has no answer, they go to the other registry.
    pub(crate) mirror_of: Option<String>,
    /// The identity that logs in: a name from `identities`, or `none`. Without this key and without `dockerConfig`, registries of AWS, Google
    /// and Azure use the pod's own identity there, if the pod has one.
    pub(crate) identity: Option<String>,
    /// Whether a 404 to a `HEAD` is accepted. Such a 404 has no body that shows who sent it.
    pub confirm404: Confirm404,
    /// Take a 403 for a missing tag. Artifactory's virtual repositories answer so. A lost permission then looks like a deleted
    /// tag.
    pub(crate) denied_means_missing: bool,
    /// The most requests in flight at the same time. 8 unless set, 4 for Docker Hub.
    #[schemars(range(min = 1))]
    pub concurrency: Option<usize>,
    /// The most requests that may begin per second. No limit unless set, 10 for Docker Hub.
    pub rate: Option<NonZeroU32>,
}

/// What building a registry may use.
#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    pub outbound: &'a Outbound,
    pub launchers: &'a Arc<Launchers>,
    /// The identity of the routes that use the registry, if they name one.
    pub of_route: Option<&'a Arc<dyn Identity>>,
}

impl RegistryConfig {
    /// The registry called `host`, whose entry is `section`.
    pub(super) fn build(&self, host: &str, means: Means<'_>, section: &mut Section<'_>) -> Option<Registry> {
        let (Means { outbound, of_route, .. }, base) = (means, section.base);
        let name = &*registry_key(host);
        let at = self.endpoint.as_deref().unwrap_or(if name == HUB { "registry-1.docker.io" } else { host });
        if !is_registry(at) {
            section.key("endpoint").error_with_help(
                format!("`{}` is not a host with an optional port", at.escape_debug()),
                "write it as in an image reference, such as `10.0.0.5:5000`; `plainHttp` says whether it is http",
            );
            return None;
        }
        if self.concurrency == Some(0) {
            section.key("concurrency").error("with 0 no request would ever be sent");
            return None;
        }
        if let Some(of) = self.mirror_of.as_ref().filter(|of| !is_registry(of) || registry_key(of) == name) {
            section.key("mirrorOf").error_with_help(
                format!("`{}` is not another registry's host", of.escape_debug()),
                "write the host as in image references, such as `docker.io`",
            );
        }
        let keys = TlsKeys {
            ca: self.ca.as_ref(),
            client_certificate: self.client_certificate.as_ref(),
            insecure_skip_verify: self.insecure_skip_verify,
        };
        let tls = keys.build(self.plain_http, section);
        self.check_helpers(&mut section.key("credentialHelpers"));
        let file = self.docker_config.as_ref().filter(|_| !base.is_offline()).map(|file| base.resolve(file));
        if let Some(file) = &file {
            self.check_docker_config(file, name, &mut section.key("dockerConfig"));
        }
        let client = outbound.client(self.terms(name, tls.clone()));
        let client = section.problems.note_secret(&tls.at(&section.path), client)?;
        let url = format!("{}://{at}/", if self.plain_http { "http" } else { "https" });
        let url = section.key("endpoint").note(Url::parse(&url))?;
        outbound.name_destination(Some(&url));
        if self.docker_config.is_some() && self.identity.as_ref().is_some_and(|name| name != NO_IDENTITY) {
            section.key("identity").error_with_help("it has a `dockerConfig` too", "keep one of them");
        }
        let identity = match self.identity(name, outbound.identities(), of_route) {
            _ if base.is_offline() => None,
            Err(why) => section.key("identity").note::<(), _>(Err(why)).and(None),
            Ok(identity) => identity,
        };
        if let Some(why) = identity
            .as_ref()
            .and_then(|identity| identity.flaw())
            .filter(|_| self.identity.is_none() && !base.is_lenient())
        {
            let help = "every use of it fails; docs/registries.md says what each cloud needs, and `identity: none` asks anonymously";
            section.mistake(format!("the pod's own identity for this registry cannot be used: {why}"), help);
        }
        if (file.is_some() || identity.is_some()) && self.plain_http {
            warn_of_cleartext(&url, &section.path.key("plainHttp"), section.problems);
        }
        let rules = RegistryRules { confirm_404: self.confirm404, denied_means_missing: self.denied_means_missing };
        let credentials = match identity {
            Some(identity) => Credentials::of_identity(identity, url.clone(), tls),
            None => Credentials::new(file, self.helpers(means, base)),
        };
        Some(Registry::new(name.to_owned(), url, client, credentials, rules))
    }

    /// The identity that logs in at the registry called `name`: the one that is named here, or the pod's own. The identity `of_route` takes its
    /// place at registries of its cloud, and at those of no cloud that have one of its cloud named here.
    ///
    /// # Errors
    /// When no identity has that name.
    pub fn identity(
        &self,
        name: &str,
        identities: &Identities,
        of_route: Option<&Arc<dyn Identity>>,
    ) -> Result<Option<Arc<dyn Identity>>, UnknownIdentity> {
        let own = self.own_identity(name, identities)?;
        let is_named = self.identity.as_deref().is_some_and(|named| named != NO_IDENTITY);
        let is_of_named =
            |one: &Arc<dyn Identity>| own.as_ref().is_some_and(|own| is_named && own.cloud() == one.cloud());
        // A host that names no cloud, such as a registry's own domain, is one of the cloud whose identity is named for it.
        let is_for = |one: &Arc<dyn Identity>| is_of_named(one) && own.as_ref().is_some_and(|own| !own.covers(name));
        // A registry that is reached elsewhere gets no login that is not for that place too, unless one of its cloud is named for it.
        let is_there = |one: &Arc<dyn Identity>| {
            is_of_named(one) || self.endpoint.as_ref().is_none_or(|at| one.covers(&place(at)))
        };
        Ok(of_route.filter(|one| (one.covers(name) && is_there(one)) || is_for(one)).cloned().or(own))
    }

    fn own_identity(&self, name: &str, identities: &Identities) -> Result<Option<Arc<dyn Identity>>, UnknownIdentity> {
        match self.identity.as_deref() {
            Some(NO_IDENTITY) => Ok(None),
            Some(wanted) => identities.named(wanted).map(Some),
            None if self.docker_config.is_some() => Ok(None),
            // A registry that is reached elsewhere gets no login that is not for that place too.
            None => {
                let own = identities.automatic(name);
                let there = self.endpoint.as_ref().map(|at| identities.automatic(&place(at)));
                let is_same = |own: &Arc<dyn Identity>| {
                    there.as_ref().is_none_or(|there| there.as_ref().is_some_and(|there| Arc::ptr_eq(own, there)))
                };
                Ok(own.filter(is_same))
            }
        }
    }

    /// The client options for the registry called `name`.
    fn terms(&self, name: &str, tls: Tls) -> ClientOptions {
        let (concurrency, rate) = if name == HUB { (4, NonZeroU32::new(10)) } else { (8, None) };
        ClientOptions { tls, concurrency: self.concurrency.unwrap_or(concurrency), rate: self.rate.or(rate) }
    }

    /// The helpers that its file may name.
    fn helpers(&self, means: Means<'_>, base: &BaseDir) -> Helpers {
        if self.docker_config.is_none() || self.credential_helpers.is_empty() || base.is_offline() {
            return Helpers::default();
        }
        Helpers::new(self.credential_helpers.clone(), means.launchers, base)
    }

    fn check_helpers(&self, section: &mut Section<'_>) {
        if self.docker_config.is_none() {
            if !self.credential_helpers.is_empty() {
                section.warning(
                    "never used: no `dockerConfig` names a helper",
                    "helpers run when `credHelpers` or `credsStore` of a Docker config.json names them",
                );
            }
            return;
        }
        if section.base.is_offline() || section.base.is_lenient() {
            return;
        }
        for (index, helper) in self.credential_helpers.iter().enumerate().filter(|(_, helper)| !has_helper(helper)) {
            let help = "put the program into the image (docs/runtimes.md); the clouds' registries need no helper: see docs/registries.md";
            let message =
                format!("there is no program `docker-credential-{}` in a folder of PATH", helper.escape_debug());
            section.problems.mistake(&section.path.index(index), message, help);
        }
    }

    fn check_docker_config(&self, file: &std::path::Path, name: &str, section: &mut Section<'_>) {
        let read = DockerConfig::read(file).map_err(|why| format!("{}: {why}", file.display()));
        let Some(config) = section.problems.note_secret(&section.path, read) else { return };
        let own = config.find(name, "").map_err(|why| format!("{}: {why}", file.display()));
        // An error of its own entry is reported below.
        for (key, why) in config.unreadable().filter(|(key, _)| own.is_ok() || !DockerConfig::concerns(key, name)) {
            section.warning(
                format!("{}: the entry `{}` cannot be used: {why}", file.display(), key.escape_debug()),
                "log in to it again with `docker login`; the other entries are used",
            );
        }
        if let Some(helper) = config.helper(name) {
            if !self.credential_helpers.iter().any(|allowed| allowed == helper) {
                section.error_with_help(
                    format!("the file leaves the credential for `{name}` to the helper `{helper}`, which may not run"),
                    format!("allow it: `credentialHelpers: [{helper}]`"),
                );
            }
            return;
        }
        if let Some(None) = section.note(own)
            && !config.has_entry(name)
        {
            section.warning(
                format!("the file holds no user and password for `{name}`, so its requests are anonymous"),
                "log in to it with `docker login`",
            );
        }
    }
}

/// The name of the host `at`, as clouds know it. The port of https says nothing.
fn place(at: &str) -> String {
    let at = at.to_ascii_lowercase();
    at.strip_suffix(":443").unwrap_or(&at).to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use domain::{
        clock::SystemClock,
        problem::{Path, Problems, Severity},
    };

    #[test]
    fn docker_hub_gets_fewer_requests_than_others() {
        let terms = |host: &str, entry: Value| {
            let config: RegistryConfig = serde_json::from_value(entry).unwrap();
            config.terms(&registry_key(host), Tls::default())
        };
        let of = |concurrency, rate| ClientOptions { tls: Tls::default(), concurrency, rate: NonZeroU32::new(rate) };
        for hub in ["docker.io", "index.docker.io", "registry-1.docker.io"] {
            assert_eq!(terms(hub, json!({})), of(4, 10), "{hub}");
            assert_eq!(terms(hub, json!({"concurrency": 9, "rate": 100})), of(9, 100), "{hub}");
        }
        assert_eq!(terms("ghcr.io", json!({})), of(8, 0));
        assert_eq!(terms("ghcr.io", json!({"concurrency": 2, "rate": 3})), of(2, 3));
        // A mirror of Docker Hub is another host.
        assert_eq!(terms("mirror.example", json!({"mirrorOf": "docker.io"})), of(8, 0));
    }

    #[test]
    fn the_port_of_https_says_nothing() {
        for (at, name) in [
            ("My.azurecr.io:443", "my.azurecr.io"),
            ("my.azurecr.io", "my.azurecr.io"),
            ("my.azurecr.io:8443", "my.azurecr.io:8443"),
        ] {
            assert_eq!(place(at), name);
        }
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let auths = json!({"a.example": {"auth": "dTpw"}, "b.example": {"auth": "!"}, "a.example/org": 7});
        std::fs::write(folder.path().join("docker.json"), json!({ "auths": auths }).to_string()).unwrap();
        let config: RegistryConfig = serde_json::from_value(json!({"dockerConfig": "docker.json"})).unwrap();
        let found = |host: &str| {
            let (outbound, mut problems) = (Outbound::new(Arc::new(SystemClock)), Problems::default());
            let (launchers, base) = (Arc::new(Launchers::new(PathBuf::new(), 1)), BaseDir::new(folder.path()));
            let means = Means { outbound: &outbound, launchers: &launchers, of_route: None };
            config.build(host, means, &mut Section::new(&base, Path::root(), &mut problems));
            let found = problems.into_vec().into_iter().map(|found| (found.severity, found.message));
            found.collect::<Vec<_>>()
        };
        let says = |found: &[(Severity, String)], severity, text: &str| {
            found.iter().any(|(level, message)| *level == severity && message.contains(text))
        };
        let of_a = found("a.example");
        assert!(says(&of_a, Severity::Warning, "`b.example` cannot be used") && of_a.len() == 2, "{of_a:?}");
        assert!(says(&of_a, Severity::Warning, "`a.example/org` cannot be used"), "{of_a:?}");
        assert!(says(&found("b.example"), Severity::Error, "not base64"), "{:?}", found("b.example"));
    }
}

//! The configuration of outgoing requests: addresses, the proxy, and the certificates of one destination.

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use ipnet::{AddrParseError, IpNet};
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Host;

use super::{
    ClientOptions, HttpClient, Outbound,
    addresses::is_inner_name,
    error::UrlError,
    tls::{ClientCertificate, Tls},
};
use domain::{
    file::base_dir::BaseDir,
    problem::{Path, Problems},
    secret::SecretRef,
    section::Section,
};

/// Settings of all outgoing requests.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OutboundConfig {
    /// Addresses and networks (`10.0.0.0/8`) that names may have even if these are private, link-local or this machine's.
    /// Not needed for names that only exist in a cluster or an inner network: such names may always have private addresses. Not needed
    /// for `localhost` either, which may always have this machine's addresses.
    pub(crate) allow_addresses: Vec<String>,
    /// A proxy for all requests. No proxy is taken from the environment.
    pub proxy: Option<ProxyConfig>,
}

/// A forward proxy.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProxyConfig {
    /// The proxy's URL: `http://proxy.example.com:3128`. Requests to `https://` URLs go through a tunnel (`CONNECT`).
    pub url: String,
    /// Hosts to reach without the proxy: names with everything below them (`svc.cluster.local`), addresses, networks.
    /// `localhost` and its addresses are always among them.
    #[serde(default)]
    pub except: Vec<String>,
    /// The user name at the proxy. Needs `password`.
    pub username: Option<String>,
    /// The password of `username`.
    pub password: Option<SecretRef>,
}

/// A checked proxy.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// The proxy's URL.
    pub url: Url,
    /// Hosts that are reached without the proxy.
    pub except: Vec<String>,
    /// The user name and password at the proxy.
    pub credential: Option<(String, SecretRef)>,
    /// The folder to which the password's path is relative.
    pub base: BaseDir,
}

/// The keys of a backend or a registry that configure TLS.
#[derive(Debug, Clone, Copy, Default)]
pub struct TlsKeys<'a> {
    /// `ca`
    pub ca: Option<&'a PathBuf>,
    /// `clientCertificate`
    pub client_certificate: Option<&'a ClientCertificate>,
    /// `insecureSkipVerify`
    pub insecure_skip_verify: bool,
}

impl OutboundConfig {
    /// The networks and the proxy. Problems are noted below `path`.
    pub fn build(&self, base: &BaseDir, path: &Path, problems: &mut Problems) -> (Vec<IpNet>, Option<Proxy>) {
        let at = path.key("allowAddresses");
        let nets = self.allow_addresses.iter().enumerate();
        let nets = nets.filter_map(|(index, text)| problems.note(&at.index(index), network(text))).collect();
        (nets, self.proxy.as_ref().and_then(|proxy| proxy.build(base, &path.key("proxy"), problems)))
    }
}

impl ProxyConfig {
    fn build(&self, base: &BaseDir, path: &Path, problems: &mut Problems) -> Option<Proxy> {
        if let Some(password) = &self.password {
            password.check(base, &path.key("password"), problems);
        }
        let credential = match (&self.username, &self.password) {
            (Some(username), Some(password)) => Some((username.clone(), password.clone())),
            (None, None) => None,
            _ => {
                problems.error(path, "`username` and `password` go together");
                None
            }
        };
        for (index, name) in self.except.iter().enumerate() {
            if name.is_empty() || name.contains([',', '*', '/', ' ']) && network(name).is_err() {
                let help = "write a name, which includes everything below it (`example.com`), an address or a network (`10.0.0.0/8`)";
                problems.error_with_help(
                    &path.key("except").index(index),
                    format!("`{name}` is neither a name nor a network"),
                    help,
                );
            }
        }
        let url = problems.note(&path.key("url"), fixed_url(&self.url))?;
        // A proxy of an inner network rarely speaks TLS.
        if credential.is_some() && !url.host_str().is_some_and(is_inner_name) {
            warn_of_cleartext(&url, &path.key("url"), problems);
        }
        Some(Proxy { url, except: self.except.clone(), credential, base: base.clone() })
    }
}

impl TlsKeys<'_> {
    /// The client with these TLS options, and otherwise with the defaults. Problems of the files are noted at their key
    /// of `section`.
    pub fn client(self, is_plain: bool, outbound: &Outbound, section: &mut Section<'_>) -> Option<Arc<HttpClient>> {
        let tls = self.build(is_plain, section);
        let at = tls.at(&section.path);
        section.problems.note_secret(&at, outbound.client(ClientOptions { tls, ..ClientOptions::default() }))
    }

    /// The TLS options with resolved paths. Notes options without effect and dangerous ones at their key of `section`.
    pub fn build(self, is_plain: bool, section: &mut Section<'_>) -> Tls {
        let keys = [
            ("ca", self.ca.is_some()),
            ("clientCertificate", self.client_certificate.is_some()),
            ("insecureSkipVerify", self.insecure_skip_verify),
        ];
        for (key, _) in keys.into_iter().filter(|(_, is_there)| *is_there && is_plain) {
            section.key(key).warning("it has no effect: the URL begins with http://, so there is no TLS", "use https");
        }
        if is_plain {
            return Tls::default();
        }
        if self.insecure_skip_verify {
            section.key("insecureSkipVerify").warning(
                "everybody between the gateway and this destination can read its credential and change the answers, which \
                 deletes Applications",
                "name the CA's certificate as `ca` instead",
            );
        }
        if self.insecure_skip_verify && self.ca.is_some() {
            section.key("ca").error("it has no effect: with `insecureSkipVerify` no certificate is checked");
        }
        let base = section.base;
        Tls {
            ca: self.ca.map(|file| base.resolve(file)).filter(|file| !base.may_lack(file)),
            client: self
                .client_certificate
                .map(|files| ClientCertificate { cert: base.resolve(&files.cert), key: base.resolve(&files.key) })
                .filter(|files| !base.may_lack(&files.cert) && !base.may_lack(&files.key)),
            is_checked: !self.insecure_skip_verify,
        }
    }
}

/// A text is neither an address nor a network.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is neither an address nor a network such as 10.0.0.0/8")]
struct NetworkError {
    text: String,
    /// Why it is not a network.
    #[source]
    cause: AddrParseError,
}

fn network(text: &str) -> Result<IpNet, NetworkError> {
    let address = text.parse::<IpAddr>().map(IpNet::from);
    address.or_else(|_| text.parse()).map_err(|cause| NetworkError { text: text.to_owned(), cause })
}

/// Whether `url` holds a user or a password.
#[must_use]
pub fn names_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Whether an answer of `from` may lead to `url` with the same credential: scheme, host and port are equal, and `url` holds
/// no user.
#[must_use]
pub fn stays(from: &Url, url: &Url) -> bool {
    url.origin() == from.origin() && !names_user(url)
}

/// Whether the connection cannot be intercepted: it is https, or on this machine.
#[must_use]
pub fn is_safe(url: &Url) -> bool {
    let is_own = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || is_own
}

/// Warns at `path` of a credential that is sent to `url`, if anybody in between could read it. Within a cluster that may be wanted.
pub fn warn_of_cleartext(url: &Url, path: &Path, problems: &mut Problems) {
    if !is_safe(url) {
        warn_of_cleartext_to(url.host_str().unwrap_or_default(), "https://", path, problems);
    }
}

/// As [`warn_of_cleartext`], for requests to `host` without TLS. With TLS its URL begins with `scheme`.
pub fn warn_of_cleartext_to(host: &str, scheme: &str, path: &Path, problems: &mut Problems) {
    let message =
        format!("the credential goes to {host} in cleartext: everybody in between can read it, and change the answers");
    let help = format!("use TLS: a URL that begins with {scheme}");
    if is_inner_name(host) { problems.notice(path, message, help) } else { problems.warning(path, message, help) }
}

/// Parses a URL of the configuration that is not a template.
///
/// # Errors
/// When `text` is not a URL with `http` or `https` and a host, or holds a user or a password.
pub fn fixed_url(text: &str) -> Result<Url, UrlError> {
    let url = Url::parse(text).map_err(|cause| UrlError::Syntax { text: text.to_owned(), cause })?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(UrlError::NotHttp);
    }
    if names_user(&url) {
        return Err(UrlError::HasUser);
    }
    Ok(url)
}

//! The entries of `allowedHosts`: which hosts a parameter may choose.

use reqwest::Url;
use url::Host;

use outbound::names_user;

/// An entry of `allowedHosts`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AllowedHost {
    /// The host, or of an entry with `*.` the name after it.
    name: String,
    is_zone: bool,
    port: Option<u16>,
}

/// A text is not an entry of `allowedHosts`.
#[derive(Debug, thiserror::Error)]
#[error("`{entry}` is neither a host nor `*.` and what its name ends with; a port follows a `:`")]
pub(super) struct AllowedHostError {
    /// The text.
    entry: String,
    /// The URL parser's error, if it is not part of a URL at all.
    #[source]
    cause: Option<url::ParseError>,
}

impl AllowedHost {
    /// Parses `inventory.example.com`, `10.0.0.1:8080`, or `*.example.com` (all names below `example.com`).
    pub(super) fn parse(entry: &str) -> Result<Self, AllowedHostError> {
        let wrong = |cause| AllowedHostError { entry: entry.to_owned(), cause };
        let (zone, is_zone) = entry.strip_prefix("*.").map_or((entry, false), |zone| (zone, true));
        let url = Url::parse(&format!("http://{zone}/")).map_err(|cause| wrong(Some(cause)))?;
        let name = url.host_str().unwrap_or_default().to_owned();
        let is_plain = url.path() == "/" && url.query().is_none() && url.fragment().is_none() && !names_user(&url);
        let is_address = !matches!(url.host(), Some(Host::Domain(_)));
        if !is_plain || name.contains('*') || zone.contains("//") || (is_zone && is_address) {
            return Err(wrong(None));
        }
        // The URL parser drops the default port of the scheme (`:80`), so the port is read from the text.
        let port = zone.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        Ok(Self { name, is_zone, port: port.filter(|_| !zone.ends_with(']')) })
    }

    /// Whether this entry allows the host and port of `url`. An address, `localhost` and a name without a dot match no `*.` entry.
    pub(super) fn matches(&self, url: &Url) -> bool {
        let port = self.port.or_else(|| if url.scheme() == "https" { Some(443) } else { Some(80) });
        if url.port_or_known_default() != port {
            return false;
        }
        match url.host() {
            Some(Host::Domain(name)) if self.is_zone => {
                let below = name.strip_suffix(&self.name).and_then(|rest| rest.strip_suffix('.'));
                below.is_some_and(|below| !below.is_empty())
            }
            Some(_) => !self.is_zone && url.host_str() == Some(&self.name),
            None => false,
        }
    }
}

/// Whether the host of `url` is an address, or a name of letters, digits, `.`, `-` and `_`. URL parsers accept more characters,
/// on which other programs fail.
pub(super) fn is_name(url: &Url) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !matches!(url.host(), Some(Host::Domain(name)) if !name.chars().all(fits))
}

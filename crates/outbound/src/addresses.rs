//! Which addresses may get requests. A name is resolved when it is used, and the client connects only to addresses that passed
//! the check here. So a name cannot change its address after the check (DNS rebinding).

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use async_trait::async_trait;
use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Host;

/// Resolves names. A trait, so that a name can have any address in tests.
#[async_trait]
pub trait Names: fmt::Debug + Send + Sync {
    /// The addresses of `host`.
    ///
    /// # Errors
    /// When the name has no address, or the lookup fails.
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The names of the operating system: `/etc/hosts`, DNS and so on.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemNames;

#[async_trait]
impl Names for SystemNames {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// Resolves names, and keeps the addresses that may get requests.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    names: Arc<dyn Names>,
    allowed: Arc<[IpNet]>,
    /// The host of the configured proxy, which may have any address.
    proxy: Option<Arc<str>>,
    /// Whether names come from answers, so that also names of an inner network have no inner address.
    is_led: bool,
    /// Whether metadata addresses may get requests: only for identities at clouds, and never because `allowed` has them.
    is_metadata: bool,
}

/// The error for a name without an address that may get requests.
#[derive(Debug, thiserror::Error)]
#[error("the name {name} is at {address}, {what}, and gets no requests there{}", self.advice())]
pub(crate) struct RefusedAddress {
    name: String,
    address: IpAddr,
    what: Inner,
    is_led: bool,
}

/// A URL has a metadata address in place of a name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MetadataError {
    /// By the name of the host at Google.
    #[error("{0} is {kind}, which only identities ask", kind = Inner::Metadata)]
    Name(String),
    /// By its number.
    #[error("{0} is {kind}, which only identities ask (`identities` in the configuration)", kind = Inner::Metadata)]
    Address(IpAddr),
}

impl RefusedAddress {
    /// The advice for the error. Services of a cluster are often called `<name>.<namespace>`, which has the form of a public name.
    fn advice(&self) -> String {
        if self.what == Inner::Metadata {
            return ": only identities ask there".to_owned();
        }
        let is_short = !self.is_led && self.what == Inner::Private && self.name.matches('.').count() == 1;
        let name =
            if is_short { format!("; a service of this cluster is called {}.svc", self.name) } else { String::new() };
        format!(" unless that is allowed: `outbound: {{ allowAddresses: [{}] }}`{name}", self.address)
    }
}

/// The kinds of addresses inside a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inner {
    /// The machine itself.
    Loopback,
    /// The local link.
    LinkLocal,
    /// A cloud's metadata service, or an agent that issues credentials.
    Metadata,
    /// Private networks, and networks shared within a provider (RFC 1918, 4193, 6598).
    Private,
    /// Addresses that no server can have.
    Reserved,
}

impl Addresses {
    /// Permits public addresses and those in `allowed`. The host `proxy` may have any address.
    pub(crate) fn new(names: Arc<dyn Names>, allowed: &[IpNet], proxy: Option<&str>) -> Self {
        Self { names, allowed: allowed.into(), proxy: proxy.map(Into::into), is_led: false, is_metadata: false }
    }

    /// Permits metadata addresses too.
    pub(crate) fn with_metadata(self) -> Self {
        Self { is_metadata: true, ..self }
    }

    /// The same for names that come from answers. Otherwise a forged answer could choose an inner host for a request.
    pub(crate) fn led(&self) -> Self {
        Self { is_led: true, ..self.clone() }
    }

    fn may_ask(&self, name: &str, address: IpAddr) -> Result<(), Inner> {
        if is_metadata(address) {
            return if self.is_metadata { Ok(()) } else { Err(Inner::Metadata) };
        }
        let Some(what) = Inner::of(address) else { return Ok(()) };
        let is_permitted = match what {
            Inner::Loopback => !self.is_led && is_below(name, &["localhost"]),
            Inner::Private => !self.is_led && is_inner_name(name),
            Inner::LinkLocal | Inner::Metadata | Inner::Reserved => false,
        };
        let is_proxy = self.proxy.as_deref() == Some(name);
        if is_permitted || is_proxy || self.allow(address) { Ok(()) } else { Err(what) }
    }

    /// Whether requests may go to the address that `url` has in place of a name. Only metadata addresses are refused: the operator wrote all
    /// others, or an answer led to them and was checked.
    ///
    /// # Errors
    /// When they may not. The text has the reason.
    pub(crate) fn check_literal(&self, url: &reqwest::Url) -> Result<(), MetadataError> {
        let address = match url.host() {
            Some(Host::Ipv4(ip)) => IpAddr::from(ip),
            Some(Host::Ipv6(ip)) => ip.into(),
            // A proxy would resolve it.
            Some(Host::Domain(name))
                if !self.is_metadata && is_below(name, &["metadata.google.internal", "metadata.goog"]) =>
            {
                return Err(MetadataError::Name(name.to_owned()));
            }
            _ => return Ok(()),
        };
        if !is_metadata(address) || self.is_metadata {
            return Ok(());
        }
        Err(MetadataError::Address(address))
    }

    /// Whether the configuration allows `address`.
    pub(crate) fn allow(&self, address: IpAddr) -> bool {
        if is_metadata(address) {
            return self.is_metadata;
        }
        let plain = address.to_canonical();
        self.allowed.iter().any(|net| net.contains(&address) || net.contains(&plain))
    }

    /// The addresses of `name` that may get requests.
    async fn find(&self, name: &str) -> Result<Vec<IpAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let found = self.names.lookup(name).await?;
        let mut refused = None;
        let mut good = Vec::with_capacity(found.len());
        for address in found {
            match self.may_ask(name, address) {
                Ok(()) => good.push(address),
                Err(what) => {
                    let is_led = self.is_led;
                    refused = refused.or(Some(RefusedAddress { name: name.to_owned(), address, what, is_led }));
                }
            }
        }
        match refused {
            Some(refused) if good.is_empty() => Err(refused.into()),
            _ => Ok(good),
        }
    }
}

impl Resolve for Addresses {
    fn resolve(&self, name: Name) -> Resolving {
        let addresses = self.clone();
        Box::pin(async move {
            let found = addresses.find(name.as_str()).await?;
            Ok(Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// Whether clouds serve credentials at `address`: the metadata services of AWS, Azure and Google, and EKS Pod Identity's agent.
fn is_metadata(address: IpAddr) -> bool {
    const V6: [Ipv6Addr; 3] = [
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
        Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    ];
    let v4 = match address {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(ip) if V6.contains(&ip) => return true,
        IpAddr::V6(ip) => embedded(ip),
    };
    v4.is_some_and(|ip| matches!(ip.octets(), [169, 254, 169, 254] | [169, 254, 170, 23]))
}

/// Whether only the DNS of an inner network can answer for `name`: it has no dot, ends as names in a cluster do, or ends
/// with a suffix for private use (`.internal`, RFC 8375's `home.arpa`, RFC 6762's `.local`).
pub fn is_inner_name(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    !name.contains('.') || is_below(name, &["svc", "local", "internal", "home.arpa"])
}

/// Whether `name` is one of `zones`, or below one.
pub(crate) fn is_below(name: &str, zones: &[&str]) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    zones.iter().any(|zone| name.strip_suffix(zone).is_some_and(|below| below.is_empty() || below.ends_with('.')))
}

impl Inner {
    /// The kind of `address`. `None` for a public address.
    #[must_use]
    pub fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(ip) => Self::of_v4(ip),
            IpAddr::V6(ip) => match embedded(ip) {
                Some(ip) => Self::of_v4(ip),
                None => Self::of_v6(ip),
            },
        }
    }

    fn of_v4(ip: Ipv4Addr) -> Option<Self> {
        Some(match ip.octets() {
            [127, ..] => Self::Loopback,
            // The second is Alibaba's metadata service, inside the shared network.
            [169, 254, ..] | [100, 100, 100, 200] => Self::LinkLocal,
            [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] | [198, 18..=19, ..] => Self::Private,
            // "This network" (Linux takes 0.0.0.0 for itself), protocol assignments, multicast, broadcast, and unused
            // networks.
            [0 | 224..=255, ..] | [192, 0, 0, _] => Self::Reserved,
            _ => return None,
        })
    }

    fn of_v6(ip: Ipv6Addr) -> Option<Self> {
        // Amazon's metadata service, inside its unique local network.
        const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
        if ip.is_loopback() {
            Some(Self::Loopback)
        } else if ip.is_unicast_link_local() || ip == METADATA {
            Some(Self::LinkLocal)
        } else if ip.is_unique_local() || matches!(ip.segments(), [0xfec0..=0xfeff, ..] | [0x64, 0xff9b, 1, ..]) {
            // The last prefix is translated to IPv4 inside a private network, to any address (RFC 8215).
            Some(Self::Private)
        } else if ip.is_unspecified() || ip.is_multicast() {
            Some(Self::Reserved)
        } else {
            None
        }
    }
}

/// The IPv4 address inside `ip`: mapped, translated (`64:ff9b::/96`, RFC 6052) or tunnelled (`2002::/16`, RFC 3056).
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let (high, low) = match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => (high, low),
        // `::` and `::1` hold no IPv4 address.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => (high, low),
        _ => return ip.to_ipv4_mapped(),
    };
    Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "this machine itself",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a metadata address",
            Self::Private => "a private address",
            Self::Reserved => "a reserved address",
        })
    }
}

#[cfg(test)]
mod tests;

//! Where a store is: one server, a primary that Sentinels name, or a cluster.

use std::net::IpAddr;

use redis::{ConnectionAddr, IntoConnectionInfo as _};

/// One server.
#[derive(Debug, Clone)]
pub struct Node {
    /// Host and port, and whether TLS is used.
    pub(super) address: ConnectionAddr,
    pub(super) database: i64,
    pub(super) is_tls: bool,
}

impl Node {
    fn is_remote(&self) -> bool {
        match &self.address {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => {
                let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
                host != "localhost" && !address.is_ok_and(|address| address.is_loopback())
            }
            _ => false,
        }
    }
}

/// Why a text is not the URL of a store. It repeats nothing of the text, which may have a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// A URL of Sentinels without the primary's name.
    #[error("a Sentinel URL names the primary: redis+sentinel://host:26379,host:26379/name")]
    NoPrimary,
    /// Another scheme.
    #[error("a store's URL begins with redis://, rediss:// or redis+sentinel://")]
    Scheme,
    /// A query or a fragment.
    #[error("a store's URL has no `?` and no `#`")]
    Parts,
    /// No URL.
    #[error("is not a URL such as redis://host:6379/0")]
    Syntax,
    /// A user or a password.
    #[error("a URL holds no credential; use `username` and `password`")]
    Credential,
}

/// Where a store is.
#[derive(Debug, Clone)]
pub enum Address {
    /// One server.
    Single(Node),
    /// The primary of this name, as these Sentinels know it.
    Sentinel {
        /// The Sentinels.
        sentinels: Vec<Node>,
        /// The primary's name.
        name: String,
    },
    /// A cluster with these nodes, and others.
    Cluster(Vec<Node>),
}

impl Address {
    /// Parses `redis://`, `rediss://` or `redis+sentinel://`.
    ///
    /// # Errors
    /// When it is none of these, or holds a password.
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        let Some((scheme, rest)) = ["redis+sentinel://", "rediss+sentinel://"]
            .iter()
            .find_map(|scheme| Some((scheme, url.strip_prefix(scheme)?)))
        else {
            return Self::parse_node(url).map(Self::Single);
        };
        let scheme = scheme.replace("+sentinel", "");
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (name, database) = path.split_once('/').unwrap_or((path, "0"));
        if name.is_empty() {
            return Err(AddressError::NoPrimary);
        }
        let node = |host: &str| {
            let host = if host.contains(':') { host.to_owned() } else { format!("{host}:26379") };
            Self::parse_node(&format!("{scheme}{host}/{database}"))
        };
        let sentinels = hosts.split(',').map(node).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::Sentinel { sentinels, name: name.to_owned() })
    }

    /// Whether some server of it may be on another host. Sentinels and nodes of a cluster name others.
    pub(crate) fn is_remote(&self) -> bool {
        match self {
            Self::Single(node) => node.is_remote(),
            Self::Sentinel { .. } | Self::Cluster(_) => true,
        }
    }

    /// The host of a server that is used without TLS, and is not this machine.
    pub fn in_cleartext(&self) -> Option<String> {
        let nodes = match self {
            Self::Single(node) => std::slice::from_ref(node),
            Self::Sentinel { sentinels: nodes, .. } | Self::Cluster(nodes) => nodes,
        };
        nodes.iter().filter(|node| !node.is_tls && node.is_remote()).find_map(|node| match &node.address {
            ConnectionAddr::Tcp(host, _) => Some(host.clone()),
            _ => None,
        })
    }

    /// Parses the URL of one server.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(crate) fn parse_node(url: &str) -> Result<Node, AddressError> {
        let is_tls = url.starts_with("rediss://");
        if !is_tls && !url.starts_with("redis://") {
            return Err(AddressError::Scheme);
        }
        if url.contains(['?', '#']) {
            return Err(AddressError::Parts);
        }
        let info = url.into_connection_info().map_err(|_| AddressError::Syntax)?;
        if info.redis_settings().password().is_some() || info.redis_settings().username().is_some() {
            return Err(AddressError::Credential);
        }
        Ok(Node { address: info.addr().clone(), database: info.redis_settings().db(), is_tls })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_all_kinds_are_understood() {
        for (url, expected) in [
            ("redis://valkey:6379/0", "single valkey:6379 0"),
            ("redis://valkey", "single valkey:6379 0"),
            ("rediss://valkey.example.com:7000/3", "single valkey.example.com:7000 3"),
            ("redis://[::1]:6379", "single ::1:6379 0"),
            ("redis+sentinel://a:1,b/main", "sentinels a:1 b:26379 of main 0"),
            ("rediss+sentinel://a/main/2", "sentinels a:26379 of main 2"),
        ] {
            let shown = match Address::parse(url).unwrap() {
                Address::Single(node) => format!("single {} {}", node.address, node.database),
                Address::Sentinel { sentinels, name } => {
                    let nodes: Vec<String> = sentinels.iter().map(|node| node.address.to_string()).collect();
                    format!("sentinels {} of {name} {}", nodes.join(" "), sentinels[0].database)
                }
                Address::Cluster(_) => unreachable!(),
            };
            assert_eq!(shown, expected, "{url}");
        }
    }

    #[test]
    fn only_loopback_is_this_host() {
        for (url, is_remote) in [
            ("redis://127.0.0.1", false),
            ("redis://127.9.9.9:1", false),
            ("rediss://localhost:6379", false),
            ("redis://[::1]:6379", false),
            ("redis://localhost.example.com", true),
            ("redis://10.0.0.1", true),
            ("redis://valkey.gateway", true),
            ("redis+sentinel://127.0.0.1:1,10.0.0.1/main", true),
            ("redis+sentinel://127.0.0.1:1,localhost/main", true),
        ] {
            assert_eq!(Address::parse(url).unwrap().is_remote(), is_remote, "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused_without_repeating_them() {
        for url in [
            "http://valkey:6379",
            "valkey:6379",
            "",
            "redis://",
            "redis://user:c4n4ry@valkey:6379",
            "redis://:c4n4ry@valkey",
            "redis://valkey?password=c4n4ry",
            "redis+sentinel://a,b",
            "redis://valkey/c4n4ry",
            "rediss://valkey/#insecure",
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(!error.contains("c4n4ry"), "{url}: {error}");
        }
    }
}

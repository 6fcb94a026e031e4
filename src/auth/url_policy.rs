//! The way to whoever vouches for callers. Whoever stands in it decides who may call, so it is https, or does not leave the machine.

use reqwest::Url;
use url::Host;

use crate::clients::outbound::fixed_url;

/// A URL of the configuration that may be asked who calls.
///
/// # Errors
/// When it may not.
pub(crate) fn safe_url(text: &str) -> Result<Url, String> {
    let url = fixed_url(text)?;
    if is_safe(&url) {
        Ok(url)
    } else {
        Err("it is not https, so whoever is in between could let anybody in".to_owned())
    }
}

/// Whether nobody is in between: https, or this machine.
pub(crate) fn is_safe(url: &Url) -> bool {
    let is_own = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || is_own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_asked_in_the_clear() {
        for (url, expected) in [
            ("https://i.example/keys", true),
            ("http://127.0.0.1:5556/keys", true),
            ("http://localhost/keys", true),
            ("http://[::1]/keys", true),
            ("http://i.example/keys", false),
            ("http://localhost.i.example/keys", false),
            ("http://10.0.0.1/keys", false),
            ("ftp://localhost/keys", false),
        ] {
            assert_eq!(safe_url(url).is_ok(), expected, "{url}");
        }
    }
}

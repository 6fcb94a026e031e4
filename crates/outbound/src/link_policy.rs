//! Where an answer may lead the gateway: a redirect, a token server, or a set of keys that an answer names.

use std::net::IpAddr;

use reqwest::Url;
use url::Host;

use super::{Inner, names_user};

/// Checks a URL to which an answer of `from` leads. The URL must be as safe as `from`: https if `from` is https, without a user
/// or password, and without an inner address, except on the same host or if it is
/// allowed (`outbound.allowAddresses`, [`super::HttpClient::allows`]).
///
/// # Errors
/// When the URL is not as safe. The error names the reason.
pub fn check_link(url: &Url, from: &Url, allows: impl Fn(IpAddr) -> bool) -> Result<(), String> {
    let host = url.host().ok_or("names no host")?;
    if names_user(url) {
        return Err("holds a user or a password".to_owned());
    }
    let is_plain = url.scheme() == "http" && from.scheme() == "http";
    if url.scheme() != "https" && !is_plain {
        return Err(format!("is `{}`, not https", url.scheme()));
    }
    if from.host() == Some(host.clone()) {
        return Ok(());
    }
    let is_inner = match host {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        Host::Ipv4(ip) => Inner::of(ip.into()).is_some() && !allows(ip.into()),
        Host::Ipv6(ip) => Inner::of(ip.into()).is_some() && !allows(ip.into()),
    };
    if is_inner {
        return Err(format!(
            "has the inner address {host}, which is another host than the one that leads there, and is not in `outbound.allowAddresses`"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_leads_only_to_safe_urls() {
        let check = |url: &str, from: &str| {
            check_link(&Url::parse(url).unwrap(), &Url::parse(from).unwrap(), |ip| ip == IpAddr::from([10, 9, 8, 7]))
        };
        let public = "https://r.example";
        for good in [
            "https://auth.example/token",
            "https://r.example:8443/token",
            "https://8.8.8.8/token",
            "https://10.9.8.7/token",
        ] {
            assert_eq!(check(good, public), Ok(()), "{good}");
        }
        assert_eq!(check("http://127.0.0.1:5001/token", "http://127.0.0.1:5000"), Ok(()));
        assert_eq!(check("http://auth.example/token", "http://r.example"), Ok(()));
        for bad in [
            "http://auth.example/token",
            "ftp://auth.example/",
            "https://user@auth.example/",
            "https://10.0.0.1/token",
            "https://169.254.169.254/latest/meta-data",
            "https://127.0.0.1/token",
            "https://[::1]/token",
            "https://[fd00::1]/token",
            "https://[fe80::1]/token",
            "https://[::ffff:10.0.0.1]/token",
            "https://0.0.0.0/",
            "https://localhost/token",
            "https://localhost./token",
            "https://0177.1/token",
            "https://0.1.2.3/token",
            "https://100.100.100.200/latest/meta-data",
            "data:text/plain,x",
        ] {
            assert!(check(bad, public).is_err(), "{bad}");
        }
    }
}

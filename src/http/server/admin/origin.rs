//! Which site a browser's request comes from, and whether its connection is private enough for a session.

use http::{header, request::Parts, uri::Authority};
use url::{Host, Position, Url};

/// The message for requests that another site made a browser send.
pub(super) const FOREIGN: &str = "a page of another site sent this; nothing was done";

/// Whether no other site made a browser send the request. Programs say nothing about it. Browsers say it in `Sec-Fetch-Site`, which no script
/// can set. Old ones have `Origin` only.
pub(super) fn is_own(head: &Parts) -> bool {
    let text = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap_or_default());
    match (text("sec-fetch-site"), text("origin")) {
        // `none`: the person typed the address.
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        (None, None) => true,
        (None, Some(origin)) => {
            let origin = Url::parse(origin).ok();
            let origin = origin.as_ref().map(|origin| &origin[Position::BeforeHost..Position::AfterPort]);
            origin.is_some_and(|origin| host(head).eq_ignore_ascii_case(origin) && !origin.is_empty())
        }
    }
}

/// Where browsers of this page were sent: the host and the port.
fn host(head: &Parts) -> &str {
    let named = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    head.uri.authority().map(Authority::as_str).or(named).unwrap_or_default()
}

/// Whether the request names this machine as its host: only then may a session travel in cleartext. A foreign name that leads here (DNS
/// rebinding) is not one of these.
pub(super) fn is_loopback(head: &Parts) -> bool {
    match Url::parse(&format!("http://{}/", host(head))).ok().as_ref().and_then(Url::host) {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(headers: &[(&str, &str)]) -> Parts {
        let request = http::Request::builder().uri("/");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn another_site_is_recognised() {
        for own in [
            &[][..],
            &[("sec-fetch-site", "same-origin"), ("origin", "null")],
            &[("sec-fetch-site", "none")],
            &[("origin", "http://gateway:4356"), ("host", "gateway:4356")],
            &[("origin", "https://gateway"), ("host", "GATEWAY")],
        ] {
            assert!(is_own(&head(own)), "{own:?}");
        }
        for foreign in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site"), ("origin", "http://gateway"), ("host", "gateway")],
            &[("sec-fetch-site", "")],
            &[("origin", "null"), ("host", "gateway")],
            &[("origin", "http://evil.example"), ("host", "gateway")],
            &[("origin", "http://gateway:1"), ("host", "gateway:2")],
            &[("origin", "http://gateway")],
        ] {
            assert!(!is_own(&head(foreign)), "{foreign:?}");
        }
    }

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        let is_loopback = |host: &str| is_loopback(&head(&[("host", host)]));
        for own in ["localhost", "LOCALHOST:4356", "127.0.0.1:1", "127.9.9.9", "[::1]:4356", "gateway.localhost"] {
            assert!(is_loopback(own), "{own}");
        }
        for foreign in [
            "",
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "[::2]",
            "0.0.0.0",
            "a@localhost@evil.example",
            "evil.example/localhost",
        ] {
            assert!(!is_loopback(foreign), "{foreign}");
        }
    }
}

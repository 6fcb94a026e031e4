//! The destinations that the configuration names. Only these have their own labels in metrics, so that no request can add
//! a label. All others share the label [`OTHER`].

use std::collections::HashSet;

use foldhash::quality::RandomState;
use parking_lot::RwLock;
use reqwest::Url;
use url::Position;

/// The name of destinations from templates, redirects and answers.
const OTHER: &str = "other";
/// The limit of names. A configuration has far fewer.
const MAX_NAMES: usize = 1000;

/// Destinations by host and port, as a URL writes them.
#[derive(Debug, Default)]
pub(crate) struct Named(RwLock<HashSet<Box<str>, RandomState>>);

impl Named {
    /// Adds the destination of `url`, and returns its name.
    pub(crate) fn add<'a>(&self, url: &'a Url) -> &'a str {
        let name = name(url);
        let mut names = self.0.write();
        if names.contains(name) || names.len() < MAX_NAMES && names.insert(name.into()) { name } else { OTHER }
    }

    /// The name of the destination with the origin `origin`, or [`OTHER`].
    pub(crate) fn of_origin<'a>(&self, origin: &'a str) -> &'a str {
        let name = origin.split_once("://").map_or(origin, |(_, name)| name);
        if self.0.read().contains(name) { name } else { OTHER }
    }

    /// The name of the destination of `url`, or [`OTHER`].
    pub(crate) fn of<'a>(&self, url: &'a Url) -> &'a str {
        let name = name(url);
        if self.0.read().contains(name) { name } else { OTHER }
    }
}

fn name(url: &Url) -> &str {
    &url[Position::BeforeHost..Position::BeforePath]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_configured_destinations_have_names() {
        let url = |text: &str| Url::parse(text).unwrap();
        let named = Named::default();
        assert_eq!(named.add(&url("https://user@h.example:8443/a?b=c")), "h.example:8443");
        named.add(&url("https://h.example:443/"));
        assert_eq!(named.of(&url("https://h.example:8443/x")), "h.example:8443");
        assert_eq!(named.of(&url("https://h.example/")), "h.example");
        assert_eq!(named.of(&url("https://evil.example/h.example")), OTHER);
        for number in 0..2 * MAX_NAMES {
            named.add(&url(&format!("https://h{number}.example/")));
        }
        assert_eq!(named.of(&url("https://h1.example/")), "h1.example");
        assert_eq!(named.of(&url(&format!("https://h{}.example/", 2 * MAX_NAMES - 1))), OTHER);
    }
}

//! Image references: `registry/repository:tag` or `registry/repository@digest`.

use std::fmt;

use super::Digest;

/// The names of Docker Hub. The first one is that of image references.
const HUB_NAMES: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// A registry, a repository, and a tag or digest in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The host, and the port unless it is the default: `registry.example.com:5000`.
    pub registry: String,
    /// The name within the registry: `org/front`. Docker Hub's official images are in `library/`.
    pub repository: String,
    /// The tag. `None` when it has only a digest.
    pub tag: Option<String>,
    /// The digest that pins the reference, if there is one.
    pub digest: Option<Digest>,
}

impl Reference {
    /// Parses a whole reference. The registry must be named: the gateway never guesses it.
    ///
    /// # Errors
    /// When a part does not follow the grammar of the OCI distribution specification 1.1.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!("`{}` is not an image reference: {why}", text.chars().take(200).collect::<String>().escape_debug())
        };
        let (registry, rest) = text.split_once('/').ok_or_else(|| wrong("it names no registry"))?;
        if !is_registry(registry) {
            return Err(wrong(
                "the part before the first `/` must be a registry's host, such as `registry.example.com`",
            ));
        }
        let (name, digest) = match rest.split_once('@') {
            Some((name, digest)) => (name, Some(Digest::parse(digest).map_err(|why| wrong(&why))?)),
            None => (rest, None),
        };
        let (repository, tag) = match name.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (name, None),
        };
        if !is_repository(repository) {
            return Err(wrong("the repository holds lower-case letters, digits and single separators"));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong(
                "a tag holds at most 128 letters, digits, `.`, `_` and `-`, and starts with none of `.` and `-`",
            ));
        }
        if tag.is_none() && digest.is_none() {
            return Err(wrong("it names neither a tag nor a digest"));
        }
        let registry = canonical_registry(registry);
        let is_official = registry == "docker.io" && !repository.contains('/');
        let repository = if is_official { format!("library/{repository}") } else { repository.to_owned() };
        Ok(Self { registry: registry.to_owned(), repository, tag: tag.map(str::to_owned), digest })
    }

    /// `registry/repository:tag@digest`
    #[must_use]
    pub fn text(&self) -> String {
        let tag = self.tag.iter().flat_map(|tag| [":", tag]);
        let digest = self.digest.iter().flat_map(|digest| ["@", digest.as_str()]);
        [&self.registry, "/", &self.repository].into_iter().chain(tag).chain(digest).collect()
    }

    /// The end of the path after `manifests/` in the registry's API: the digest if there is one, else the tag.
    #[must_use]
    pub fn selector(&self) -> &str {
        self.digest.as_ref().map(Digest::as_str).or(self.tag.as_deref()).unwrap_or("latest")
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// Whether only the tag keeps `text` from being a reference: the name before it is one, and no tag may be written so.
#[must_use]
pub fn has_impossible_tag(text: &str) -> bool {
    let Some((name, tag)) = text.rsplit_once(':') else { return false };
    !tag.is_empty() && !is_tag(tag) && Reference::parse(&format!("{name}:x")).is_ok()
}

/// Docker Hub goes by several names; all others keep the one that is written.
#[must_use]
pub fn canonical_registry(host: &str) -> &str {
    let is_hub = HUB_NAMES.iter().any(|name| name.eq_ignore_ascii_case(host));
    if is_hub { HUB_NAMES[0] } else { host }
}

/// The one name of a registry, to compare: hosts have no case, and https has the port 443.
#[must_use]
pub(crate) fn registry_key(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    canonical_registry(host.strip_suffix(":443").unwrap_or(&host)).to_owned()
}

/// Whether `text` can be a repository's name.
#[must_use]
pub fn is_repository(text: &str) -> bool {
    text.len() <= 255 && text.split('/').all(is_component)
}

/// Whether `text` is a part of a repository's name, by `<name>` of the OCI distribution specification 1.1, "Pulling manifests":
/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`.
fn is_component(text: &str) -> bool {
    let is_of_word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_separator = |text: &[u8]| matches!(text, b"" | b"." | b"_" | b"__") || text.iter().all(|byte| *byte == b'-');
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_of_word)
        && bytes.last().is_some_and(is_of_word)
        && bytes.split(is_of_word).all(is_separator)
}

/// Whether `text` is a tag, by `<reference>` of the OCI distribution specification 1.1, "Pulling manifests":
/// `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`.
fn is_tag(text: &str) -> bool {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    match text.as_bytes() {
        [first, rest @ ..] if rest.len() < 128 => {
            is_of_word(first) && rest.iter().all(|byte| is_of_word(byte) || matches!(byte, b'.' | b'-'))
        }
        _ => false,
    }
}

/// Whether `text` is a host with an optional port: `localhost:5000`, `registry.example.com`, `[::1]:5000`.
#[must_use]
pub fn is_registry(text: &str) -> bool {
    is_host_and_port(text) && (text.contains(['.', ':']) || text == "localhost")
}

fn is_host_and_port(text: &str) -> bool {
    // The colons of an address are in brackets.
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = |port: &str| (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_of_address = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let is_host = match address {
        Some(address) => !address.is_empty() && address.bytes().all(is_of_address),
        None => host.split('.').all(is_label),
    };
    is_host && port.is_none_or(is_port)
}

/// Whether `text` is letters, digits and dashes, with no dash at an end.
fn is_label(text: &str) -> bool {
    let has_dash = text.starts_with('-') || text.ends_with('-');
    !text.is_empty() && !has_dash && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    #[test]
    fn the_parts_of_a_reference() {
        let reference = Reference::parse("registry.example.com:5000/org/front:feature-1").unwrap();
        assert_eq!(reference.registry, "registry.example.com:5000");
        assert_eq!(reference.repository, "org/front");
        assert_eq!(reference.selector(), "feature-1");
        assert_eq!(reference.to_string(), "registry.example.com:5000/org/front:feature-1");
        let digest = format!("sha256:{}", "a".repeat(64));
        let pinned = Reference::parse(&format!("localhost/front:1@{digest}")).unwrap();
        assert_eq!(pinned.selector(), digest);
        assert!(Reference::parse("[::1]:5000/front:1").is_ok());
    }

    #[test]
    fn a_tag_alone_may_be_impossible() {
        let long = format!("h.example/front:{}", "a".repeat(129));
        for text in ["h.example/front:feat/x", "h.example/front:.x", "h.example:5000/front:ü", &long] {
            assert!(has_impossible_tag(text) && Reference::parse(text).is_err(), "{text}");
        }
        for text in ["h.example/front:x", "h.example/front:", "h.example/Front:.x", "h.example:5000/front", "front:.x"]
        {
            assert!(!has_impossible_tag(text), "{text}");
        }
    }

    const TAG: &str = "^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$";
    const REPOSITORY: &str = r"^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$";
    const HOST_AND_PORT: &str = r"^(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[0-9a-fA-F:.]+\])(?::[0-9]{1,5})?$";

    proptest! {
        #[test]
        fn names_are_what_the_specification_says(
            tag in "[a-zA-Z0-9_.\n/ä-]{0,4}[a-z._-]{0,130}",
            repository in "[a-z0-9._/A-]{0,3}[a-b._/-]{0,8}",
            host in "[\\[:a-f]{0,2}[a-cA0-2.:-]{0,8}[\\]ä]?(:[0-9]{0,6})?",
        ) {
            let fits = |pattern: &str, text: &str| Regex::new(pattern).unwrap().is_match(text);
            prop_assert_eq!(is_tag(&tag), fits(TAG, &tag));
            prop_assert_eq!(is_repository(&repository), fits(REPOSITORY, &repository));
            prop_assert_eq!(is_host_and_port(&host), fits(HOST_AND_PORT, &host));
        }
    }

    #[test]
    fn docker_hub_has_one_name() {
        for name in ["docker.io", "index.docker.io", "registry-1.docker.io", "Docker.IO"] {
            let reference = Reference::parse(&format!("{name}/nginx:1")).unwrap();
            assert_eq!(reference.to_string(), "docker.io/library/nginx:1");
        }
        assert_eq!(Reference::parse("docker.io/org/nginx:1").unwrap().repository, "org/nginx");
        assert_eq!(Reference::parse("r.example/nginx:1").unwrap().repository, "nginx");
    }

    #[test]
    fn a_registry_has_one_key() {
        for (host, key) in [
            ("Registry.Example.com", "registry.example.com"),
            ("registry.example.com:443", "registry.example.com"),
            ("R.example:5000", "r.example:5000"),
            ("Index.Docker.io:443", "docker.io"),
            ("[FD00::1]:443", "[fd00::1]"),
        ] {
            assert_eq!(registry_key(host), key, "{host}");
        }
    }

    #[test]
    fn what_is_no_reference_says_why() {
        for (bad, why) in [
            ("front:1", "names no registry"),
            ("org/front:1", "must be a registry's host"),
            ("h.example/Front:1", "lower-case"),
            ("h.example/../front:1", "lower-case"),
            ("h.example/a//b:1", "lower-case"),
            ("h.example/front:-x", "a tag holds"),
            ("h.example/front:", "a tag holds"),
            ("h.example/front", "neither a tag nor a digest"),
            ("h.example/front@sha256:12", "not a sha256 digest"),
            ("h.example\r\n/front:1", "must be a registry's host"),
        ] {
            let error = Reference::parse(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}

//! Registries: their names, challenges, answers and credentials.

use appset_gateway::{
    clients::{
        oci::{
            Missing, Reference,
            challenge::Challenge,
            credentials::{DockerConfig, RegistryCredential},
            lookup::missing,
            manifest::{Manifest, OciImageConfig},
            token::Purpose,
        },
        outbound::Reply,
    },
    domain::secret::Secrets,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, StatusCode};
use regex::RegexBuilder;
use serde_json::Value;
use url::{Host, Url};

use super::messages::is_one_line;

/// A challenge survives being written and read again, and sends a credential only to a safe URL.
pub fn www_authenticate(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Some(challenge) = Challenge::parse(text) else { return };
    let Challenge::Bearer { realm, service, scope } = &challenge else { return };
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut printed = format!("Bearer realm=\"{}\"", quoted(realm));
    for (name, value) in [("service", service), ("scope", scope)] {
        printed.extend(value.iter().map(|value| format!(",{name}=\"{}\"", quoted(value))));
    }
    assert_eq!(Challenge::parse(&printed).as_ref(), Some(&challenge), "{printed}");
    let registry = Url::parse("https://registry.example.com/v2/").unwrap();
    match Purpose::check(realm, service.clone(), scope.clone().unwrap_or_default(), &registry) {
        Ok(purpose) => is_safe(&purpose.realm),
        Err(error) => is_one_line(&error),
    }
}

/// Panics unless `url` may get a credential that a public registry asks for.
fn is_safe(url: &Url) {
    assert_eq!(url.scheme(), "https", "{url}");
    assert!(url.username().is_empty() && url.password().is_none(), "{url}");
    let is_public = match url.host() {
        Some(Host::Domain(name)) => name.trim_end_matches('.') != "localhost",
        Some(Host::Ipv4(ip)) => !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified()),
        Some(Host::Ipv6(ip)) => {
            !(ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unique_local() || ip.is_unspecified())
        }
        None => false,
    };
    assert!(is_public, "{url}");
}

/// A credential comes from an entry whose host is the requested registry, and from no other.
pub fn docker_config(data: &[u8]) {
    let config = match DockerConfig::parse(data) {
        Ok(config) => config,
        Err(error) => return is_one_line(&error),
    };
    let Ok(document) = serde_json::from_slice::<Value>(data) else { return };
    let auths: Vec<(&String, &Value)> = document["auths"].as_object().into_iter().flatten().collect();
    let own = auths.iter().map(|(key, _)| host_of(key));
    for registry in own.chain(["registry.example.com", "docker.io", "localhost:5000", "unlisted.example"]) {
        for repository in ["org/front", "library/nginx", ""] {
            let helper = config.helper(registry);
            assert!(helper.is_none_or(|name| document.to_string().contains(&Value::from(name).to_string())));
            match config.find(registry, repository) {
                Ok(Some(credential)) => {
                    let entry = auths.iter().find(|(key, entry)| covers(key, registry) && holds(entry, &credential));
                    assert!(entry.is_some(), "{registry} gets a credential that is not its own");
                    assert!(config.knows(registry), "{registry}");
                }
                Ok(None) => {}
                Err(error) => assert!(auths.iter().any(|(key, _)| error.contains(key.as_str())), "{error}"),
            }
        }
    }
}

fn host_of(key: &str) -> &str {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let host = key.split('/').next().unwrap_or_default();
    if host.ends_with("docker.io") { "docker.io" } else { host }
}

/// Whether the host of `key`, in which a `*` stands for text without a dot, is `registry`.
fn covers(key: &str, registry: &str) -> bool {
    let pattern = regex::escape(host_of(key)).replace(r"\*", "[^.]*");
    RegexBuilder::new(&format!("^{pattern}$")).case_insensitive(true).build().unwrap().is_match(registry)
}

/// Whether `entry` holds `credential`.
fn holds(entry: &Value, credential: &RegistryCredential) -> bool {
    match credential {
        RegistryCredential::Identity(token) => entry["identitytoken"] == *token.expose(),
        RegistryCredential::Password { username, password } => {
            let decode = |auth: &str| STANDARD.decode(auth.trim()).ok();
            let pair = format!("{username}:{}", password.expose()).into_bytes();
            let is_decoded =
                |auth: Vec<u8>| auth.starts_with(&pair) && auth[pair.len()..].iter().all(|byte| *byte == 0);
            (entry["username"] == **username && entry["password"] == *password.expose())
                || entry["auth"].as_str().and_then(decode).is_some_and(is_decoded)
        }
    }
}

/// A reference survives being written and read again, and its URL leads to its repository and its tag or digest.
pub fn reference(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let reference = match Reference::parse(text) {
        Ok(reference) => reference,
        Err(error) => return is_one_line(&error),
    };
    assert_eq!(Reference::parse(&reference.to_string()).as_ref(), Ok(&reference), "{reference}");
    let path = format!("/v2/{}/manifests/{}", reference.repository, reference.selector());
    let Ok(url) = Url::parse(&format!("https://{}{path}", reference.registry)) else { return };
    assert_eq!(url.path(), path, "{reference}");
    assert!(url.query().is_none() && url.fragment().is_none() && url.username().is_empty(), "{reference}");
    if let Some(Host::Domain(name)) = url.host() {
        let asked = reference.registry.rsplit_once(':').map_or(&*reference.registry, |(host, _)| host);
        assert!(asked.eq_ignore_ascii_case(name), "{reference} is asked at {name}");
    }
}

/// A 404 proves that an image is missing only with a registry's own error body. A manifest names only digests that it contains.
pub fn registry_answer(data: &[u8]) {
    let reply = Reply {
        status: StatusCode::NOT_FOUND,
        headers: HeaderMap::new(),
        body: data.to_vec().into(),
        secrets: Secrets::default(),
        rest: None,
        attempts: 1,
    };
    if let Ok(missing) = missing(&reply) {
        let document: Value = serde_json::from_slice(data).expect("what is accepted is JSON");
        let errors = document["errors"].as_array().expect("a list of errors");
        let codes: Vec<&str> = errors.iter().filter_map(|error| error["code"].as_str()).collect();
        assert_eq!(codes.len(), errors.len());
        let is_proof = |code: &&str| ["MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND"].contains(code);
        assert!(!codes.is_empty() && codes.iter().all(is_proof), "{codes:?}");
        assert_eq!(missing == Missing::Repository, codes.contains(&"NAME_UNKNOWN"));
    }
    match Manifest::parse(data) {
        Ok(manifest) => {
            let document: Value = serde_json::from_slice(data).expect("what is accepted is JSON");
            assert_eq!(document["schemaVersion"], 2);
            let text = document.to_string();
            let digests = manifest.images().chain(manifest.image_config()).map(|image| &image.digest);
            assert!(digests.into_iter().all(|digest| text.contains(digest.as_str())));
        }
        Err(error) => is_one_line(&error),
    }
    match OciImageConfig::parse(data) {
        Ok(config) => assert!(config.platform().is_none_or(|platform| !platform.to_string().is_empty())),
        Err(error) => is_one_line(&error),
    }
}

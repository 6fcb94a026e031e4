//! Registries: their names, challenges, answers and credentials.

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use domain::secret::Secrets;
use http::{HeaderMap, StatusCode};
use oci::{
    Missing, Reference,
    challenge::Challenge,
    credentials::{DockerConfig, RegistryCredential},
    lookup::missing,
    manifest::{Manifest, OciImageConfig},
    token::Purpose,
};
use outbound::Reply;
use regex::RegexBuilder;
use serde_json::Value;
use url::{Host, Url};

use super::messages::is_one_line;

/// Challenges survive being written and read again, and send a credential only to a safe URL.
pub(super) fn www_authenticate(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let challenges = Challenge::read(text);
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let print = |challenge: &Challenge| {
        let Challenge::Bearer { realm, service, scope } = challenge else { return "Basic".to_owned() };
        let mut printed = format!("Bearer realm=\"{}\"", quoted(realm));
        for (name, value) in [("service", service), ("scope", scope)] {
            printed.extend(value.iter().map(|value| format!(",{name}=\"{}\"", quoted(value))));
        }
        printed
    };
    let printed = challenges.iter().map(print).collect::<Vec<_>>().join(", ");
    assert_eq!(Challenge::read(&printed), challenges, "{printed}");
    let registry = Url::parse("https://registry.example.com/v2/").unwrap();
    for challenge in challenges {
        let Challenge::Bearer { realm, service, scope } = challenge else { continue };
        match Purpose::check(&realm, service, scope.unwrap_or_default(), &registry, |_| false) {
            Ok(purpose) => is_safe(&purpose.realm),
            Err(error) => is_one_line(&error.to_string()),
        }
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
pub(super) fn docker_config(data: &[u8]) {
    let config = match DockerConfig::parse(data) {
        Ok(config) => config,
        Err(error) => return is_one_line(&error.to_string()),
    };
    let Ok(document) = serde_json::from_slice::<Value>(data) else { return };
    let fields = document.as_object().into_iter().flatten();
    let auths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("auths")).map(|(_, auths)| auths);
    let auths: Vec<(&String, &Value)> = auths.filter_map(Value::as_object).flatten().collect();
    let own = auths.iter().map(|(key, _)| host_of(key));
    for registry in own.chain(["registry.example.com", "docker.io", "localhost:5000", "unlisted.example"]) {
        for repository in ["org/front", "library/nginx", ""] {
            let helper = config.helper(registry);
            assert!(helper.is_none_or(|name| document.to_string().contains(&Value::from(name).to_string())));
            match config.find(registry, repository) {
                Ok(Some(credential)) => {
                    let entry = auths.iter().find(|(key, entry)| covers(key, registry) && holds(entry, &credential));
                    assert!(entry.is_some(), "{registry} gets a credential that is not its own");
                    assert!(config.has_entry(registry), "{registry}");
                }
                Ok(None) => {}
                Err(error) => {
                    is_one_line(&error.to_string());
                    assert!(config.has_entry(registry), "{registry}: {error}");
                }
            }
        }
    }
}

fn host_of(key: &str) -> &str {
    let after = |scheme: &str| {
        key.get(..scheme.len()).filter(|start| start.eq_ignore_ascii_case(scheme)).map(|_| &key[scheme.len()..])
    };
    let key = after("https://").or_else(|| after("http://")).unwrap_or(key);
    let host = key.split('/').next().unwrap_or_default();
    let host = host.strip_suffix(":443").unwrap_or(host);
    if host.to_ascii_lowercase().ends_with("docker.io") { "docker.io" } else { host }
}

/// Whether the host of `key`, in which a `*` stands for text without a dot, is `registry`.
fn covers(key: &str, registry: &str) -> bool {
    let pattern = regex::escape(host_of(key)).replace(r"\*", "[^.]*");
    RegexBuilder::new(&format!("^{pattern}$")).case_insensitive(true).build().unwrap().is_match(registry)
}

/// Whether `entry` holds `credential`.
fn holds(entry: &Value, credential: &RegistryCredential) -> bool {
    let fields = || entry.as_object().into_iter().flatten();
    let texts = |name: &'static str| {
        fields().filter(move |(field, _)| field.eq_ignore_ascii_case(name)).filter_map(|(_, value)| value.as_str())
    };
    match credential {
        RegistryCredential::Identity(token) => texts("identitytoken").any(|own| own == token.expose()),
        RegistryCredential::Password { username, password } => {
            let decode = |auth: &str| {
                let bare: String =
                    auth.chars().filter(|c| !matches!(c, '\r' | '\n' | '=') && !c.is_whitespace()).collect();
                let lenient = GeneralPurposeConfig::new()
                    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
                    .with_decode_allow_trailing_bits(true);
                GeneralPurpose::new(&STANDARD, lenient).decode(bare).ok()
            };
            let is_decoded = |auth: Vec<u8>| {
                let pair = str::from_utf8(&auth).ok().and_then(|pair| pair.split_once(':'));
                pair.is_some_and(|(user, secret)| user == username && secret.trim_matches('\0') == password.expose())
            };
            let is_older = texts("password").any(|own| own == password.expose())
                && (username.is_empty() || texts("username").any(|own| own == username));
            is_older || texts("auth").filter_map(decode).any(is_decoded)
        }
    }
}

/// A reference survives being written and read again, and its URL leads to its repository and its tag or digest.
pub(super) fn reference(data: &[u8]) {
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
pub(super) fn registry_answer(data: &[u8]) {
    let reply = Reply {
        status: StatusCode::NOT_FOUND,
        headers: HeaderMap::new(),
        body: data.to_vec().into(),
        secrets: Secrets::default(),
        retry_after: None,
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
        Err(error) => is_one_line(&error.to_string()),
    }
    match OciImageConfig::parse(data) {
        Ok(config) => assert!(config.platform().is_none_or(|platform| !platform.to_string().is_empty())),
        Err(error) => is_one_line(&error.to_string()),
    }
}

//! Registries as the identity of a route sees them.

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::secret::{Secret, Secrets};
use oci::RegistryConfig;
use outbound::{Call, ClusterLogin, Identities, Identity, Login, LoginPlace};
use reqwest::Url;

use super::*;

/// An identity of a cloud, for registries at this machine. All of a cloud have the same user name. At the cloud `tokens`, they have a refresh
/// token.
#[derive(Debug)]
struct Tenant(&'static str, &'static str);

#[async_trait]
impl Identity for Tenant {
    fn describe(&self) -> String {
        self.0.to_owned()
    }

    fn cloud(&self) -> &'static str {
        self.1
    }

    fn covers(&self, name: &str) -> bool {
        name.starts_with("127.0.0.1")
    }

    fn flaw(&self) -> Option<&str> {
        Some("it is half an identity").filter(|_| self.1 == "half")
    }

    fn check_url(&self, _: &Url) -> Result<(), String> {
        Ok(())
    }

    async fn authorize(&self, call: Call, _: bool) -> Result<Call, BackendError> {
        Ok(call)
    }

    async fn log_in(&self, _: LoginPlace<'_>, _: bool, _: Instant) -> Result<Login, BackendError> {
        let secret = Secret::from(self.0.to_owned());
        Ok(match self.1 {
            "tokens" => Login::RefreshToken(secret),
            _ => Login::Password { username: "of-the-cloud".to_owned(), password: secret },
        })
    }

    async fn log_in_to_cluster(&self, _: ClusterLogin<'_>, _: bool, _: Instant) -> Result<Secret, BackendError> {
        unreachable!("no test logs in to a cluster by it")
    }

    async fn who(&self, _: Instant) -> Result<String, BackendError> {
        Ok(self.0.to_owned())
    }

    fn account(&self) -> Arc<str> {
        self.0.into()
    }

    fn secrets(&self) -> Secrets {
        Secrets::default()
    }
}

/// Who asks decides what is answered, so nothing that one tenant was shown is remembered for another.
#[tokio::test]
async fn what_one_identity_sees_is_not_remembered_for_another() {
    let only_a = format!("Basic {}", STANDARD.encode("of-the-cloud:a"));
    let registry = Upstream::start(move |request| match request.header("authorization") {
        None => request.answer(401, "WWW-Authenticate: Basic realm=\"x\"", ""),
        Some(seen) if seen == only_a => found(request),
        Some(_) => request.answer(403, "", ""),
    })
    .await;
    let registries = registries(&plain(&registry.address));
    let [of_a, of_b] = ["a", "b"].map(|name| {
        let identity: Arc<dyn Identity> = Arc::new(Tenant(name, "one"));
        registries.with_identity(name, &identity)
    });
    let reference = Reference::parse(&format!("{}/org/app:1", registry.address)).unwrap();
    let ask = async |registries: &Registries| {
        let patience = Patience { deadline: deadline(), max_age: Duration::from_mins(1), joins: true };
        registries.look_up(&reference, patience).await
    };
    let digest = expect_digest(ask(&of_a).await);
    let count = registry.requests().len();
    expect_digest(ask(&of_a).await);
    assert_eq!(registry.requests().len(), count, "it is remembered for the one who asked");
    refused(ask(&of_b).await, ErrorKind::Denied, "403");
    refused(ask(&registries).await, ErrorKind::Denied, "");
    let text = registry.address.to_string();
    let contents = async |registries: &Registries| registries.contents(&text, "org/app", &digest, deadline()).await;
    assert!(contents(&of_a).await.is_ok());
    assert!(of_b.known_contents(&digest).is_none() && contents(&of_b).await.is_err());
    // Routes with the same identity share what they know.
    let again: Arc<dyn Identity> = Arc::new(Tenant("a", "one"));
    assert!(registries.with_identity("a", &again).known_contents(&digest).is_some());
}

/// A registry or its token server that makes one identity pause leaves the others alone, though they have the same user name.
#[tokio::test]
async fn a_throttled_identity_does_not_rest_the_others() {
    let of_b = format!("Basic {}", STANDARD.encode("of-the-cloud:b"));
    let by_password = Upstream::start(move |request| match request.header("authorization") {
        None => request.answer(401, "WWW-Authenticate: Basic realm=\"x\"", ""),
        Some(seen) if seen == of_b => found(request),
        Some(_) => request.answer(429, "Retry-After: 60", ""),
    })
    .await;
    let by_token = Upstream::start(|request| {
        if request.target == "/token" {
            let is_b = request.body.ends_with(b"refresh_token=b");
            return if is_b {
                request.answer(200, JSON, r#"{"token":"t"}"#)
            } else {
                request.answer(429, "Retry-After: 60", "")
            };
        }
        if request.header("authorization") == Some("Bearer t") {
            return found(request);
        }
        let host = request.header("host").unwrap();
        request.answer(401, &format!("WWW-Authenticate: Bearer realm=\"http://{host}/token\",service=\"s\""), "")
    })
    .await;
    for (registry, cloud) in [(by_password, "one"), (by_token, "tokens")] {
        let registries = registries(&plain(&registry.address));
        let image = format!("{}/org/app:1", registry.address);
        let [of_a, of_b] = ["a", "b"].map(|name| {
            let identity: Arc<dyn Identity> = Arc::new(Tenant(name, cloud));
            registries.with_identity(name, &identity)
        });
        assert!(matches!(look_up(&of_a, &image).await.unwrap_err().kind, ErrorKind::Throttled { .. }), "{cloud}");
        let count = registry.requests().len();
        assert!(matches!(look_up(&of_a, &image).await.unwrap_err().kind, ErrorKind::Throttled { .. }), "{cloud}");
        // Without a token, the registry is asked again which one it wants.
        let again = registry.requests().split_off(count);
        assert!(
            again.iter().all(|request| request.header("authorization").is_none() && request.target != "/token"),
            "{cloud}"
        );
        expect_digest(look_up(&of_b, &image).await);
    }
}

/// A registry of the pod's own cloud gets the pod's identity, unless its entry says otherwise or leads elsewhere.
#[test]
fn the_pods_own_identity_goes_to_its_cloud() {
    let automatic = outbound::AutomaticIdentity {
        covers: |name| name.starts_with("127.0.0.1"),
        identity: Arc::new(Tenant("pod", "one")),
    };
    let identities = Identities::new(std::collections::BTreeMap::new(), vec![automatic]);
    for (entry, name, expected) in [
        (json!({}), "127.0.0.1:5000", Some("pod")),
        (json!({}), "registry.corp", None),
        (json!({"identity": "none"}), "127.0.0.1:5000", None),
        (json!({"dockerConfig": "config.json"}), "127.0.0.1:5000", None),
        (json!({"endpoint": "zot.corp:5000"}), "127.0.0.1:5000", None),
        (json!({"endpoint": "127.0.0.1:6000"}), "127.0.0.1:5000", Some("pod")),
        (json!({"endpoint": "zot.corp:443"}), "127.0.0.1:5000", None),
        // The name of an image decides, and not only where it is reached.
        (json!({"endpoint": "127.0.0.1:6000"}), "registry.corp", None),
    ] {
        let config: RegistryConfig = serde_json::from_value(entry.clone()).unwrap();
        let found = config.identity(name, &identities, None).unwrap();
        assert_eq!(found.map(|one| one.describe()).as_deref(), expected, "{name}: {entry}");
    }
}

/// Half an identity of the pod is a mistake where a registry would use it, and nowhere else.
#[test]
fn half_an_identity_is_a_mistake_of_the_registry_that_would_use_it() {
    for (name, entry, is_mistake) in [
        ("127.0.0.1:5000", json!({}), true),
        ("127.0.0.1:5000", json!({"identity": "none"}), false),
        ("registry.corp", json!({}), false),
    ] {
        let config: BTreeMap<String, RegistryConfig> = serde_json::from_value(json!({ name: entry })).unwrap();
        let automatic = outbound::AutomaticIdentity {
            covers: |name| name.starts_with("127.0.0.1"),
            identity: Arc::new(Tenant("pod", "half")),
        };
        let (clock, mut problems) = (Arc::new(ManualClock::default()), Problems::default());
        let identities = Identities::new(BTreeMap::new(), vec![automatic]);
        let outbound = Arc::new(Outbound::new(clock.clone()).with_identities(identities));
        let (base, path) = (BaseDir::new(Path::new("/nonexistent")), problem::Path::root().key("registries"));
        let launchers = Arc::new(Launchers::new(env!("CARGO_BIN_EXE_appset-gateway").into(), 1));
        let means = RegistriesMeans { outbound: &outbound, launchers: &launchers, clock: &(clock as _) };
        drop(Registries::build(&config, means, &mut Section::new(&base, path, &mut problems)));
        let problems = problems.into_vec();
        let says = problems.iter().any(|problem| problem.message.contains("cannot be used: it is half an identity"));
        assert_eq!(says, is_mistake, "{problems:?}");
    }
}

/// A login goes to registries of its cloud, and to those whose entry names an identity of that cloud.
#[test]
fn the_identity_of_a_route_goes_nowhere_else() {
    let tenant = |name, cloud| -> Arc<dyn Identity> { Arc::new(Tenant(name, cloud)) };
    let named = [("same", tenant("same", "one")), ("other", tenant("other", "two"))];
    let identities = Identities::new(named.into_iter().map(|(name, one)| (name.to_owned(), one)).collect(), Vec::new());
    let of_route = tenant("route", "one");
    for (entry, name, expected) in [
        (json!({}), "127.0.0.1:5000", Some("route")),
        (json!({}), "registry.corp", None),
        (json!({"endpoint": "127.0.0.1:6000"}), "127.0.0.1:5000", Some("route")),
        // It is reached elsewhere, and nobody said that the login is for that place.
        (json!({"endpoint": "zot.corp:5000"}), "127.0.0.1:5000", None),
        (json!({"endpoint": "zot.corp:5000", "identity": "same"}), "127.0.0.1:5000", Some("route")),
        (json!({"identity": "same"}), "registry.corp", Some("route")),
        // It belongs to another cloud.
        (json!({"identity": "other"}), "registry.corp", Some("other")),
        (json!({"endpoint": "zot.corp:5000", "identity": "other"}), "127.0.0.1:5000", Some("other")),
    ] {
        let config: RegistryConfig = serde_json::from_value(entry.clone()).unwrap();
        let found = config.identity(name, &identities, Some(&of_route)).unwrap();
        assert_eq!(found.map(|one| one.describe()).as_deref(), expected, "{name}: {entry}");
    }
}

//! Registries as the identity of a route sees them.

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::secret::{Secret, Secrets};
use oci::RegistryConfig;
use outbound::{Call, Identities, Identity, Login, LoginPlace};
use reqwest::Url;

use super::*;

/// An identity of a cloud with a password, for registries at this machine.
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

    fn check_url(&self, _: &Url) -> Result<(), String> {
        Ok(())
    }

    async fn authorize(&self, call: Call, _: bool) -> Result<Call, BackendError> {
        Ok(call)
    }

    async fn log_in(&self, _: LoginPlace<'_>, _: bool, _: Instant) -> Result<Login, BackendError> {
        Ok(Login::Password { username: self.0.to_owned(), password: Secret::from("p".to_owned()) })
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
    let only_a = format!("Basic {}", STANDARD.encode("a:p"));
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
    ] {
        let config: RegistryConfig = serde_json::from_value(entry.clone()).unwrap();
        let found = config.identity(name, &identities, Some(&of_route)).unwrap();
        assert_eq!(found.map(|one| one.describe()).as_deref(), expected, "{name}: {entry}");
    }
}

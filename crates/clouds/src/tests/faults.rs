//! Each step of each identity with each fault: the error names the step and the cloud's reason, holds no secret, and is remembered. Nothing
//! else is tried in its place.

mod fault;
mod way;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use self::{
    fault::{Fault, faults},
    way::{KEY_ID, Way, ways},
};
use super::cloud::Cloud;
use domain::error::BackendError;
use outbound::{Call, Identity, LoginPlace, Tls};

const SECRETS: [&str; 8] = [
    "web-identity-token",
    "secret-key-of-aws",
    "session-token-of-aws",
    "ecr-password",
    "google-token",
    "entra-token",
    "acr-refresh-token",
    "imds-session",
];

/// The identity of `way` at `cloud`.
fn identity(way: &Way, cloud: &Cloud) -> Arc<dyn Identity> {
    let federation = json!({
        "type": "external_account", "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": format!("{}v1/token", cloud.url),
        "credential_source": {"file": cloud.token()},
    });
    std::fs::write(cloud.folder.path().join("federation.json"), federation.to_string()).unwrap();
    let config: Value =
        serde_json::from_str(&way.config.to_string().replace("{federation}", "federation.json")).unwrap();
    cloud.identity(&config, &cloud.pod(&way.pod))
}

/// How many cases are tried at once. On a busy machine, more would reach their deadlines.
const AT_ONCE: usize = 24;

/// What the identity is used for.
#[derive(Debug, Clone, Copy)]
enum Use {
    /// A login at a registry.
    Login,
    /// A request to a service of the cloud.
    Request,
    /// The name of the identity, which `check --connect` asks for.
    Name,
}

impl Use {
    async fn attempt(
        self,
        identity: &dyn Identity,
        way: &Way,
        cloud: &Cloud,
        wait: Duration,
    ) -> Result<(), BackendError> {
        let deadline = Instant::now() + wait;
        match self {
            Self::Login => {
                let base = reqwest::Url::parse(&cloud.url).unwrap();
                let place = LoginPlace { name: way.host, base: &base, tls: &Tls::default() };
                identity.log_in(place, false, deadline).await.map(drop)
            }
            Self::Request => {
                let url = reqwest::Url::parse(way.service()).unwrap();
                identity.authorize(Call::get(url, 1, deadline), false).await.map(drop)
            }
            Self::Name => identity.who(deadline).await.map(drop),
        }
    }
}

#[tokio::test]
async fn each_step_with_each_fault() {
    let mut cases = Vec::new();
    for way in ways() {
        let way = Arc::new(way);
        let logins = way.steps.iter().map(|step| (Use::Login, *step));
        let requests = way.steps_to_request().map(|step| (Use::Request, step));
        let names = way.naming().into_iter().map(|step| (Use::Name, step));
        for (used, step) in logins.chain(requests).chain(names) {
            for fault in faults(step) {
                cases.push((Arc::clone(&way), used, step, fault));
            }
        }
    }
    assert_eq!(cases.len(), 503, "a step, a fault or a way is missing or new");
    while !cases.is_empty() {
        let some = cases.split_off(cases.len().saturating_sub(AT_ONCE)).into_iter();
        let some =
            some.map(|(way, used, step, fault)| tokio::spawn(async move { check(&way, used, step, fault).await }));
        for case in some.collect::<Vec<_>>() {
            case.await.unwrap();
        }
    }
}

/// Without a fault, each way ends at a credential for requests.
#[tokio::test]
async fn each_way_to_a_request() {
    for way in ways() {
        let cloud = Cloud::start(|_| None).await;
        let identity = identity(&way, &cloud);
        Use::Request.attempt(&*identity, &way, &cloud, Duration::from_secs(20)).await.unwrap();
        assert_eq!(cloud.steps(), way.steps_to_request().collect::<Vec<_>>());
        Use::Name.attempt(&*identity, &way, &cloud, Duration::from_secs(20)).await.unwrap();
        let named = cloud.steps().split_off(way.steps_to_request().count());
        assert!(way.naming().is_none_or(|step| named == [step]), "{named:?}");
    }
}

async fn check(way: &Way, used: Use, step: &'static str, (name, replied, says): Fault) {
    let cloud = Cloud::start(move |request| (request.step() == step).then(|| replied.clone())).await;
    let identity = identity(way, &cloud);
    let wait = if name == "silent" { Duration::from_millis(400) } else { Duration::from_secs(30) };
    let message = used.attempt(&*identity, way, &cloud, wait).await.unwrap_err().message;
    assert!(message.contains(says), "{step}, {name}: {message}");
    assert!(!SECRETS.iter().any(|secret| message.contains(secret)), "{step}, {name}: {message}");
    // The steps before it, then this one, and nothing in its place.
    let known: Vec<_> = match used {
        Use::Name => way.steps_to_request().chain(way.naming()).collect(),
        Use::Login | Use::Request => way.steps.to_vec(),
    };
    let (steps, at) = (cloud.steps(), known.iter().position(|known| *known == step).unwrap());
    assert!(steps.iter().all(|request| known[..=at].contains(request)), "{step}, {name}: {steps:?}");
    // A way that begins with ECR has nothing but the keys.
    let signed_by_keys =
        |headers: &BTreeMap<String, String>| headers.get("authorization").is_some_and(|by| by.contains(KEY_ID));
    let weaker = cloud.requests.lock().iter().filter(|request| signed_by_keys(&request.headers)).count();
    assert!(weaker == 0 || way.steps[0].starts_with("ecr"), "{step}, {name}: {steps:?}");
    // A name is looked up by hand, and again each time.
    if name != "silent" && !matches!(used, Use::Name) {
        let again = used.attempt(&*identity, way, &cloud, wait).await.unwrap_err();
        assert_eq!(again.message, message, "{step}, {name}");
        assert_eq!(cloud.steps(), steps, "{step}, {name}: a failure rests");
    }
}

#[tokio::test]
async fn the_token_file() {
    let of_pod = ["web identity", "pod identity", "google sts", "entra"];
    let mut count = 0;
    for way in ways().into_iter().filter(|way| of_pod.contains(&way.steps[0])) {
        count += 1;
        let cloud = Cloud::start(|_| None).await;
        let base = reqwest::Url::parse(&cloud.url).unwrap();
        let place = LoginPlace { name: way.host, base: &base, tls: &Tls::default() };
        let fresh = || identity(&way, &cloud);
        let deadline = Instant::now() + Duration::from_secs(20);
        for (content, says) in [(Some(" \n"), "is empty"), (None, "cannot read the pod's token file")] {
            match content {
                Some(content) => std::fs::write(cloud.token(), content).unwrap(),
                None => std::fs::remove_file(cloud.token()).unwrap(),
            }
            let error = fresh().log_in(place, false, deadline).await.unwrap_err();
            assert!(error.message.contains(says) && error.message.contains(&cloud.token()), "{}", error.message);
            assert_eq!(cloud.steps(), [""; 0]);
        }
        // Kubernetes replaces the file: the next use reads the new token.
        std::fs::write(cloud.token(), "rotated-token").unwrap();
        fresh().log_in(place, false, deadline).await.unwrap();
        let first = cloud.last(way.steps[0]);
        assert!(format!("{first:?}").contains("rotated-token"), "{first:?}");
        // So does an identity that runs, at its next exchange.
        let running = fresh();
        running.log_in(place, false, deadline).await.unwrap();
        let count = cloud.steps().len();
        std::fs::write(cloud.token(), "rotated-again").unwrap();
        running.log_in(place, false, deadline).await.unwrap();
        assert_eq!(cloud.steps().len(), count, "what was issued for the old token is still good");
        // Longer than all logins last. What this cloud issues then has ended, which does not matter here.
        cloud.pass(13 * 3600);
        _ = running.log_in(place, false, deadline).await;
        let next = cloud.last(way.steps[0]);
        assert!(format!("{next:?}").contains("rotated-again"), "{next:?}");
    }
    assert_eq!(count, 6, "each way that begins with the pod's token");
}

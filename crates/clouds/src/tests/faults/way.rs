//! The ways from a pod to a login, whose steps are tried with each fault.

use serde_json::{Value, json};

/// A way to a login: its configuration, the environment, and the steps.
pub(super) struct Way {
    /// The identity. `{federation}` is a file of Google's type `external_account`.
    pub config: Value,
    /// The pod's environment.
    pub pod: Vec<(&'static str, &'static str)>,
    /// The steps, in order.
    pub steps: &'static [&'static str],
    /// The registry.
    pub host: &'static str,
}

/// A private registry of ECR.
const ECR: &str = "123456789012.dkr.ecr.eu-central-1.amazonaws.com";
/// ECR Public.
const PUBLIC: &str = "public.ecr.aws";
/// The id of the keys in the environment, which are weaker than all else that AWS's ways have there.
pub(super) const KEY_ID: &str = "AKIASTATIC";

impl Way {
    /// A service of the cloud that takes requests with the identity's credential.
    pub(super) fn service(&self) -> &'static str {
        match self.steps.last() {
            Some(&"acr") => "https://management.azure.com/subscriptions",
            Some(step) if step.starts_with("ecr") => "https://eks.eu-central-1.amazonaws.com/clusters",
            _ => "https://container.googleapis.com/v1/projects",
        }
    }

    /// The step that names the identity, after those to a credential for requests, if the cloud has one.
    pub(super) fn naming(&self) -> Option<&'static str> {
        match self.steps {
            ["google metadata"] => Some("google email"),
            [first, ..] if first.starts_with("google") || self.steps.ends_with(&["acr"]) => None,
            _ => Some("caller"),
        }
    }

    /// The steps to a credential for requests: all but the registry's.
    pub(super) fn steps_to_request(&self) -> impl Iterator<Item = &'static str> {
        self.steps.iter().copied().filter(|step| !step.starts_with("ecr") && *step != "acr")
    }
}

type Variable = (&'static str, &'static str);

const REGION: Variable = ("AWS_REGION", "eu-central-1");
const KEYS: [Variable; 2] = [("AWS_ACCESS_KEY_ID", KEY_ID), ("AWS_SECRET_ACCESS_KEY", "static")];
const WEB: [Variable; 2] =
    [("AWS_WEB_IDENTITY_TOKEN_FILE", "{token}"), ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod")];
const AGENT: [Variable; 2] = [
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "{url}v1/credentials"),
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "{token}"),
];

/// All ways.
pub(super) fn ways() -> Vec<Way> {
    aws().into_iter().chain(google()).chain(azure()).collect()
}

fn aws() -> Vec<Way> {
    let endpoints = json!({"sts": "{url}", "ecr": "{url}", "ecrPublic": "{url}", "metadata": "{url}"});
    let role = "arn:aws:iam::210987654321:role/read";
    let of = |own: &[Variable]| [own, &[REGION], &KEYS].concat();
    let way = |more: Value, pod: &[Variable], steps: &'static [&'static str], host| {
        let mut config = json!({"aws": {"endpoints": endpoints}});
        config["aws"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Way { config, pod: of(pod), steps, host }
    };
    vec![
        way(json!({"roleArn": role}), &WEB, &["web identity", "assume role", "ecr"], ECR),
        way(json!({}), &WEB, &["web identity", "ecr public"], PUBLIC),
        way(json!({}), &AGENT, &["pod identity", "ecr"], ECR),
        way(json!({}), &AGENT, &["pod identity", "ecr public"], PUBLIC),
        way(json!({"source": "instance"}), &[], &["instance session", "instance role", "instance keys", "ecr"], ECR),
        way(json!({}), &[], &["ecr"], ECR),
        way(json!({}), &[], &["ecr public"], PUBLIC),
    ]
}

fn google() -> Vec<Way> {
    let (account, host) = ("reader@project.iam.gserviceaccount.com", "europe-docker.pkg.dev");
    let both = json!({"metadata": "{url}", "iamCredentials": "{url}"});
    let api = json!({"iamCredentials": "{url}"});
    let way = |config: Value, steps: &'static [&'static str]| Way {
        config: json!({ "google": config }),
        pod: Vec::new(),
        steps,
        host,
    };
    vec![
        way(json!({"endpoints": both}), &["google metadata"]),
        way(json!({"endpoints": both, "serviceAccount": account}), &["google metadata", "google impersonation"]),
        way(
            json!({"endpoints": api, "serviceAccount": account, "credentialsFile": "{federation}"}),
            &["google sts", "google impersonation"],
        ),
    ]
}

fn azure() -> Vec<Way> {
    let endpoints = json!({"authority": "{url}", "metadata": "{url}"});
    let host = "my.azurecr.io";
    let pod = vec![
        ("AZURE_FEDERATED_TOKEN_FILE", "{token}"),
        ("AZURE_CLIENT_ID", "client-1"),
        ("AZURE_TENANT_ID", "tenant-1"),
    ];
    let managed = json!({"azure": {"endpoints": endpoints, "source": "managedIdentity"}});
    vec![
        Way { config: json!({"azure": {"endpoints": endpoints}}), pod: pod.clone(), steps: &["entra", "acr"], host },
        // The pod has a workload identity too, which the configuration does not name.
        Way { config: managed, pod, steps: &["azure metadata", "acr"], host },
    ]
}

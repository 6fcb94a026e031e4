//! Logins at clusters of clouds. A Secret names a program for them; the gateway runs none, and logs in by an identity of its own in place of it.

use serde::Deserialize;

use super::rules::{Rules, unusable};
use domain::error::BackendError;
use outbound::{Outbound, kubernetes::CloudLogin};

/// The login of a cluster of EKS.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AwsAuthConfig {
    cluster_name: String,
    #[serde(rename = "roleARN")]
    role_arn: String,
    profile: String,
}

/// A program that prints a token.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExecProviderConfig {
    command: String,
    args: Vec<String>,
}

/// A cluster of a cloud.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CloudCluster {
    /// The cloud, in the words of identities.
    cloud: &'static str,
    name: Option<String>,
    role: Option<String>,
    audience: Option<String>,
}

impl CloudCluster {
    /// The cluster of `awsAuthConfig`.
    ///
    /// # Errors
    /// When it has a profile, which is a file of Argo CD.
    pub(super) fn of_aws(config: &AwsAuthConfig) -> Result<Self, BackendError> {
        if !config.profile.is_empty() {
            return Err(unusable(
                "its `awsAuthConfig` has a `profile`, a file that the gateway does not have; use `roleARN`",
            ));
        }
        let filled = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let (name, role) = (filled(&config.cluster_name), filled(&config.role_arn));
        Ok(Self { cloud: "AWS", name, role, audience: None })
    }

    /// The cluster for which `program` would print a token.
    ///
    /// # Errors
    /// When the program is not one of a cloud.
    pub(super) fn of_program(program: &ExecProviderConfig) -> Result<Self, BackendError> {
        let command = program.command.rsplit('/').next().unwrap_or_default();
        let flag = |names: &[&str]| {
            let args = &program.args;
            let given = |(index, arg): (usize, &String)| match arg.split_once('=') {
                Some((name, value)) if names.contains(&name) => Some(value.to_owned()),
                None if names.contains(&arg.as_str()) => args.get(index + 1).cloned(),
                _ => None,
            };
            args.iter().enumerate().find_map(given).filter(|value| !value.is_empty())
        };
        let of_aws = || -> Result<Self, BackendError> {
            if flag(&["--profile"]).is_some() {
                return Err(unusable(
                    "its program is run with `--profile`, a file that the gateway does not have; use a role",
                ));
            }
            let name = flag(&["--cluster-name", "--cluster-id", "-i"]);
            Ok(Self { cloud: "AWS", name, role: flag(&["--role-arn", "--role", "-r"]), audience: None })
        };
        match (command, program.args.first().map(String::as_str)) {
            ("argocd-k8s-auth", Some("aws")) | ("aws", Some("eks")) | ("aws-iam-authenticator", _) => of_aws(),
            ("argocd-k8s-auth", Some("gcp")) | ("gke-gcloud-auth-plugin", _) => {
                Ok(Self { cloud: "Google", ..Self::default() })
            }
            ("argocd-k8s-auth", Some("azure")) | ("kubelogin", _) => {
                Ok(Self { cloud: "Azure", audience: flag(&["--server-id"]), ..Self::default() })
            }
            _ => Err(unusable(format!(
                "its `execProviderConfig` runs `{}`, and the gateway runs no program of a Secret: it logs in to EKS, GKE and AKS by identities, \
                 and else by `bearerToken`, `certData`, or `username` and `password`",
                command.escape_debug()
            ))),
        }
    }

    /// The login of the identity that there is for the cluster's cloud.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn login(self, rules: &Rules, outbound: &Outbound) -> Result<CloudLogin, BackendError> {
        let named = rules.identities.iter().find(|identity| identity.cloud() == self.cloud).cloned();
        let identity = named.or_else(|| outbound.identities().automatic_at(self.cloud)).ok_or_else(|| {
            unusable(format!(
                "it is a cluster of {}, where the pod has no identity; name one of `identities` in `clusters.identities`",
                self.cloud
            ))
        })?;
        Ok(CloudLogin { identity, name: self.name, role: self.role, audience: self.audience })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str, args: &[&str]) -> Result<CloudCluster, String> {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let program = ExecProviderConfig { command: command.to_owned(), args };
        CloudCluster::of_program(&program).map_err(|error| error.message)
    }

    #[test]
    fn programs_of_clouds_are_known_by_their_arguments() {
        let text = |text: &str| Some(text.to_owned());
        let aws = |name: &str, role: Option<&str>| CloudCluster {
            cloud: "AWS",
            name: text(name),
            role: role.and_then(text),
            audience: None,
        };
        let role = "arn:aws:iam::123456789012:role/argocd";
        assert_eq!(
            of("argocd-k8s-auth", &["aws", "--cluster-name", "prod", "--role-arn", role]),
            Ok(aws("prod", Some(role)))
        );
        assert_eq!(of("aws", &["eks", "get-token", "--cluster-name=prod"]), Ok(aws("prod", None)));
        assert_eq!(
            of("/usr/bin/aws-iam-authenticator", &["token", "-i", "prod", "-r", role]),
            Ok(aws("prod", Some(role)))
        );
        assert_eq!(of("argocd-k8s-auth", &["gcp"]).map(|cluster| cluster.cloud), Ok("Google"));
        assert_eq!(
            of("kubelogin", &["get-token", "--server-id", "app"]).map(|cluster| cluster.audience),
            Ok(text("app"))
        );
        for (command, args, says) in [
            ("sh", &["-c", "secret"][..], "runs `sh`"),
            ("argocd-k8s-auth", &["other"], "runs `argocd-k8s-auth`"),
            ("aws", &["eks", "get-token", "--profile", "prod"], "--profile"),
        ] {
            let why = of(command, args).unwrap_err();
            assert!(why.contains(says) && !why.contains("secret"), "{why}");
        }
    }
}

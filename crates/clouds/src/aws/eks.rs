//! Tokens for clusters of EKS: a signed request for the name of the caller, which the cluster sends to STS. Source: aws-iam-authenticator,
//! `pkg/token`; `aws eks get-token` makes the same.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::Url;
use tokio::time::Instant;

use super::{
    AwsCredentials, AwsIdentity, credentials, is_role,
    sign::{Scope, presigned},
    sts::{Hop, Sts},
};
use crate::kept::Kept;
use domain::{clock::Timestamp, error::BackendError, secret::Secret};
use outbound::ClusterLogin;

/// What a token begins with.
const PREFIX: &str = "k8s-aws-v1.";
/// The header with the cluster's name. It is signed, so that no other cluster can use the token.
const CLUSTER: &str = "x-k8s-aws-id";
/// How long the signature is good, in seconds. EKS takes no longer ones, and itself counts 15 minutes.
const LIFE: &str = "60";

impl AwsIdentity {
    /// The token for the API server of `cluster`. With `afresh`, the one before was refused.
    ///
    /// # Errors
    /// When the cluster has no name, or there are no credentials by `deadline`.
    pub(crate) async fn cluster_token(
        &self,
        cluster: ClusterLogin<'_>,
        afresh: bool,
        deadline: Instant,
    ) -> Result<Secret, BackendError> {
        let missing = || BackendError::invalid_output("a login at EKS needs the cluster's name at AWS");
        let name = cluster.name.ok_or_else(missing)?;
        let credentials = match cluster.role {
            Some(role) => self.assumed(role, afresh, deadline).await?,
            None => self.credentials(afresh, deadline).await?,
        };
        let Sts { url, region } = &self.core.sts;
        token(name, (url, region), &credentials, self.core.exchanges.clock.now())
    }

    /// The credentials of `role`, assumed with those of this identity.
    async fn assumed(&self, role: &str, afresh: bool, deadline: Instant) -> Result<Arc<AwsCredentials>, BackendError> {
        if !is_role(role) {
            return Err(BackendError::invalid_output("its `roleARN` is not the ARN of a role"));
        }
        let kept = {
            let mut roles = self.roles.lock();
            let new = || Arc::new(Kept::new(&self.core.exchanges.clock));
            Arc::clone(roles.entry(role.to_owned()).or_insert_with(new))
        };
        let (core, own) = (Arc::clone(&self.core), Arc::clone(&self.credentials));
        let hop = Hop { role: role.to_owned(), external_id: None };
        let issue = move |until| {
            let (core, own, hop) = (Arc::clone(&core), Arc::clone(&own), hop.clone());
            async move {
                let with = credentials(&core, &own, false, until).await?;
                core.sts.assume_role(&core.exchanges, &with, &hop, &core.session, until).await
            }
        };
        kept.get(afresh, deadline, issue).await
    }
}

/// The token of `credentials` for the cluster called `cluster`, made at `now` for `sts` in `region`.
///
/// # Errors
/// When `sts` has no host.
pub(crate) fn token(
    cluster: &str,
    (sts, region): (&Url, &str),
    credentials: &AwsCredentials,
    now: Timestamp,
) -> Result<Secret, BackendError> {
    let host = &sts[url::Position::BeforeHost..url::Position::AfterPort];
    if host.is_empty() {
        return Err(BackendError::invalid_input("the endpoint of STS has no host"));
    }
    let headers = vec![("host".to_owned(), host.to_owned()), (CLUSTER.to_owned(), cluster.to_owned())];
    let fields = [("Action", "GetCallerIdentity"), ("Version", "2011-06-15"), ("X-Amz-Expires", LIFE)];
    let query = presigned("/", &fields, headers, credentials, Scope { service: "sts", region }, now);
    let url = format!("{}://{host}/?{query}", sts.scheme());
    Ok(Secret::from(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(url))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_signed_request_about_its_cluster() {
        let credentials = AwsCredentials {
            key_id: "AKIDEXAMPLE".to_owned(),
            secret_key: Secret::from("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned()),
            session_token: Some(Secret::from("a/b+c=".to_owned())),
        };
        let sts = Url::parse("https://sts.eu-central-1.amazonaws.com/").unwrap();
        let of = |cluster: &str| {
            let token = token(cluster, (&sts, "eu-central-1"), &credentials, Timestamp(1_440_938_160_000)).unwrap();
            let encoded = token.expose().strip_prefix(PREFIX).unwrap().to_owned();
            Url::parse(&String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).unwrap()).unwrap()).unwrap()
        };
        let url = of("prod");
        let value = |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        for (name, expected) in [
            ("Action", "GetCallerIdentity"),
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", "AKIDEXAMPLE/20150830/eu-central-1/sts/aws4_request"),
            ("X-Amz-Date", "20150830T123600Z"),
            ("X-Amz-Expires", "60"),
            ("X-Amz-Security-Token", "a/b+c="),
            ("X-Amz-SignedHeaders", "host;x-k8s-aws-id"),
            // botocore 1.43.11 signs the same request so, at this time and with these keys.
            ("X-Amz-Signature", "de19ea5a50220154ba4266cc0b3ab7b9275398aa571cbf0b2b385474107df971"),
        ] {
            assert_eq!(value(name).as_deref(), Some(expected), "{name}");
        }
        assert_ne!(of("test").query(), url.query(), "the name of the cluster is signed");
    }
}

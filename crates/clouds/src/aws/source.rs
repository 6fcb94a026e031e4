//! Where an AWS identity begins: how the pod proves who it is. Which way is taken depends on what is configured and on the pod's environment,
//! never on whether a way fails.

use std::{fmt, path::PathBuf};

use http::{HeaderValue, Method};
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;
use url::Host;

use super::{AwsCredentials, sts::Sts};
use crate::{
    exchange::{Exchanges, get, life_until, sensitive},
    kept::Issued,
    pod::{Pod, token_file},
};
use domain::{error::BackendError, secret::Secret};
use outbound::{Call, Reply};

/// The instance metadata service.
const INSTANCE: &str = "http://169.254.169.254/";
/// Hosts of credential endpoints that plain http may reach: botocore's list.
const PLAIN_HOSTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"];

/// How the pod proves who it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(rename = "AwsSource")]
#[serde(rename_all = "camelCase")]
pub(crate) enum SourceKind {
    /// By what the pod's environment names: a web identity (IRSA), else EKS Pod Identity, else static keys.
    #[default]
    Pod,
    /// The instance's role, by the instance metadata service (`IMDSv2`). Every pod of the machine could use it.
    Instance,
}

/// The way that is taken, with all that it needs.
#[derive(Clone)]
pub(crate) enum Source {
    /// IRSA: a token of the pod's service account, exchanged by STS.
    WebIdentity { file: PathBuf, role: String, session: String },
    /// EKS Pod Identity: an agent on the node.
    PodIdentity { url: Url, file: Option<PathBuf> },
    /// Keys in the environment.
    Keys(AwsCredentials),
    /// The instance metadata service.
    Instance { url: Url },
}

/// Why the environment names no identity of AWS that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AwsSourceError {
    /// One variable is set without the other.
    #[error("the environment has {there}, and lacks {lacks}")]
    Half { there: &'static str, lacks: &'static str },
    /// The region is not one.
    #[error("the environment's {variable} is `{}`, which is not a region", .region.escape_debug())]
    Region { variable: &'static str, region: String },
    /// The credential endpoint is not a URL.
    #[error("AWS_CONTAINER_CREDENTIALS_FULL_URI is not a URL: {0}")]
    AgentNotUrl(#[source] url::ParseError),
    /// The credential endpoint may be anybody's.
    #[error("AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor the address of an agent of AWS")]
    NoAgent,
    /// The address of the metadata service is not a URL.
    #[error(transparent)]
    Metadata(#[from] url::ParseError),
}

impl Source {
    /// The way that `kind` and `pod` say. `None` if the pod has no identity.
    ///
    /// # Errors
    /// When the environment names one by half.
    pub(crate) fn find(
        kind: SourceKind,
        pod: &Pod,
        session: &str,
        metadata: Option<&Url>,
    ) -> Result<Option<Self>, AwsSourceError> {
        if kind == SourceKind::Instance {
            let url = metadata.cloned().map_or_else(|| Url::parse(INSTANCE), Ok)?;
            return Ok(Some(Self::Instance { url }));
        }
        let half = |there, lacks| AwsSourceError::Half { there, lacks };
        let both = |one, two| match (pod.get(one), pod.get(two)) {
            (Some(one), Some(two)) => Ok(Some((one.to_owned(), two.to_owned()))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(half(one, two)),
            (None, Some(_)) => Err(half(two, one)),
        };
        if let Some(file) = pod.get("AWS_WEB_IDENTITY_TOKEN_FILE") {
            let role = pod.get("AWS_ROLE_ARN");
            let role = role.ok_or(half("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"))?;
            let session = pod.get("AWS_ROLE_SESSION_NAME").unwrap_or(session);
            return Ok(Some(Self::WebIdentity { file: file.into(), role: role.into(), session: session.into() }));
        }
        // Half of a better identity must not become a weaker one.
        if pod.get("AWS_ROLE_ARN").is_some() {
            return Err(half("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"));
        }
        if let Some(url) = pod.get("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
            let url = agent_url(url)?;
            let file = pod.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(PathBuf::from);
            return Ok(Some(Self::PodIdentity { url, file }));
        }
        if pod.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").is_some() {
            return Err(half("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"));
        }
        let keys = both("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")?;
        Ok(keys.map(|(key_id, secret)| {
            let session_token = pod.get("AWS_SESSION_TOKEN").map(|token| Secret::from(token.to_owned()));
            Self::Keys(AwsCredentials { key_id, secret_key: Secret::from(secret), session_token })
        }))
    }

    /// New credentials.
    ///
    /// # Errors
    /// When none arrive by `deadline`.
    pub(crate) async fn issue(
        &self,
        exchanges: &Exchanges,
        sts: &Sts,
        deadline: Instant,
    ) -> Result<Issued<AwsCredentials>, BackendError> {
        match self {
            Self::WebIdentity { file, role, session } => {
                sts.web_identity(exchanges, role, session, &token_file(file)?, deadline).await
            }
            Self::PodIdentity { url, file } => pod_identity(exchanges, url, file.as_ref(), deadline).await,
            // They do not end. After this time the log of AWS shows anew who uses them.
            Self::Keys(keys) => Ok(Issued { value: keys.clone(), lasts: std::time::Duration::from_hours(1) }),
            Self::Instance { url } => instance(exchanges, url, deadline).await,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WebIdentity { role, .. } => write!(f, "{role} by the pod's web identity (IRSA)"),
            Self::PodIdentity { .. } => f.write_str("the role of EKS Pod Identity"),
            Self::Keys(keys) => write!(f, "the key {} of the environment", keys.key_id),
            Self::Instance { .. } => f.write_str("the instance's role (IMDSv2)"),
        }
    }
}

/// The URL of a credential endpoint in the environment.
fn agent_url(text: &str) -> Result<Url, AwsSourceError> {
    let url = Url::parse(text).map_err(AwsSourceError::AgentNotUrl)?;
    let is_loopback = match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        _ => false,
    };
    let is_known = url.host_str().is_some_and(|host| PLAIN_HOSTS.contains(&host));
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback || is_known => Ok(url),
        _ => Err(AwsSourceError::NoAgent),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AgentReply {
    access_key_id: String,
    secret_access_key: Secret,
    token: Secret,
    expiration: String,
}

/// Credentials of EKS Pod Identity's agent.
async fn pod_identity(
    exchanges: &Exchanges,
    url: &Url,
    file: Option<&PathBuf>,
    deadline: Instant,
) -> Result<Issued<AwsCredentials>, BackendError> {
    let step = "EKS Pod Identity";
    let mut call = get(url.clone(), deadline);
    let token = file.map(|file| token_file(file)).transpose()?;
    if let Some(token) = &token {
        call.headers.insert(http::header::AUTHORIZATION, sensitive("", token.expose())?);
    }
    let advice = "the agent runs on each node as an add-on of EKS, and the NetworkPolicy must allow port 80 of \
                  169.254.170.23 or fd00:ec2::23 (`cloudIdentity: eksPodIdentity` in the chart)";
    read_keys(step, exchanges, &exchanges.ask_metadata(step, call, token.as_slice(), advice).await?)
}

/// Credentials of the instance's role. A pod is one hop further than the machine, so the hop limit must be 2.
async fn instance(exchanges: &Exchanges, url: &Url, deadline: Instant) -> Result<Issued<AwsCredentials>, BackendError> {
    let step = "the instance metadata service";
    let advice = "the hop limit of the instance must be 2 for pods (`HttpPutResponseHopLimit`), and the NetworkPolicy must allow \
                  169.254.169.254:80";
    let at = |path: &str| url.join(path).map_err(|error| BackendError::invalid_output(format!("{step}: {error}")));
    let mut call = Call { method: Method::PUT, ..get(at("latest/api/token")?, deadline) };
    call.headers.insert("x-aws-ec2-metadata-token-ttl-seconds", HeaderValue::from_static("300"));
    let session = exchanges.ask_metadata(step, call, &[], advice).await?;
    // A page of a proxy is text too.
    let is_token =
        |text: &&str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "+/=_-.".contains(c));
    let session = std::str::from_utf8(&session.body).ok().map(str::trim).filter(is_token);
    let session =
        session.ok_or_else(|| BackendError::invalid_output(format!("{step}: the reply is not a session token")))?;
    let session = Secret::from(session.to_owned());
    let with_session = |path: &str| {
        let mut call = get(at(path)?, deadline);
        call.headers.insert("x-aws-ec2-metadata-token", sensitive("", session.expose())?);
        Ok::<_, BackendError>(call)
    };
    let secrets = [session.clone()];
    let roles = "latest/meta-data/iam/security-credentials/";
    let role = exchanges.ask_metadata(step, with_session(roles)?, &secrets, advice).await?;
    let role = String::from_utf8_lossy(&role.body).trim().to_owned();
    let is_name = |c: char| c.is_ascii_alphanumeric() || "+=,.@_-".contains(c);
    if role.is_empty() || !role.chars().all(is_name) {
        return Err(BackendError::invalid_output(format!("{step}: its list of roles is not the name of a role")));
    }
    let path = format!("{roles}{role}");
    read_keys(step, exchanges, &exchanges.ask_metadata(step, with_session(&path)?, &secrets, advice).await?)
}

/// The credentials in the reply of an agent or a metadata service. No error quotes it.
fn read_keys(step: &str, exchanges: &Exchanges, reply: &Reply) -> Result<Issued<AwsCredentials>, BackendError> {
    let wrong =
        |_| BackendError::invalid_output(format!("{step}: the reply holds no credentials as AWS documents them"));
    let keys: AgentReply = serde_json::from_slice(&reply.body).map_err(wrong)?;
    let lasts = life_until(&keys.expiration, reply, exchanges.clock.now()).map_err(|error| error.within(step))?;
    let AgentReply { access_key_id: key_id, secret_access_key: secret_key, token, .. } = keys;
    Ok(Issued { value: AwsCredentials { key_id, secret_key, session_token: Some(token) }, lasts })
}

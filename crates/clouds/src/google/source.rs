//! Where an identity at Google begins: the metadata server, or a federated token of the pod's service account. Source: Google Cloud's
//! documentation of metadata, of workload identity federation (AIP-4117), and of its STS.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use http::HeaderValue;
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{CLOUD_PLATFORM, IAM};
use crate::{
    exchange::{Exchanges, form, get, json_refusal},
    kept::Issued,
    oauth::{self, claim},
    pod::{Pod, token_file},
};
use domain::{
    error::{BackendError, ErrorKind},
    file::{self, FileError},
    secret::Secret,
};
use outbound::{Call, Reply};

/// The metadata server.
const METADATA_HOST: &str = "metadata.google.internal";
/// The pod's service account there.
const ACCOUNT: &str = "computeMetadata/v1/instance/service-accounts/default/";
/// The header that requests to the metadata server must have, and that its replies have.
const FLAVOR: &str = "metadata-flavor";
/// Why the metadata server often does not answer.
const ADVICE: &str = "the NetworkPolicy must allow 169.254.169.254:80 (`cloudIdentity: gke` in the chart), and the cluster must have \
                      Workload Identity";

/// The way that is taken, with all that it needs.
pub(super) enum Source {
    /// The metadata server.
    Metadata { url: Url },
    /// Workload identity federation: a token in a file, exchanged by STS.
    Federated(Box<Federation>),
}

/// The file of the type `external_account`.
#[derive(Debug, Deserialize)]
pub(super) struct Federation {
    #[serde(rename = "type")]
    kind: String,
    audience: String,
    subject_token_type: String,
    token_url: Url,
    service_account_impersonation_url: Option<Url>,
    credential_source: CredentialSource,
}

#[derive(Debug, Deserialize)]
struct CredentialSource {
    file: Option<PathBuf>,
    format: Option<Format>,
}

#[derive(Debug, Deserialize)]
struct Format {
    #[serde(rename = "type")]
    kind: String,
    subject_token_field_name: Option<String>,
}

/// Why the environment names no identity of Google that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GoogleSourceError {
    /// The metadata server's host is not one.
    #[error("GCE_METADATA_HOST: {0}")]
    Host(#[from] url::ParseError),
    /// The file of a federation cannot be used.
    #[error("{}: {cause}", .file.display())]
    Federation {
        file: PathBuf,
        #[source]
        cause: FederationError,
    },
}

/// Why a file does not describe a federation. It quotes nothing of the file, which may hold a key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FederationError {
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is of another type.
    #[error("it is not of the type `external_account`: only federation needs no stored key")]
    Type,
    /// A key is missing, or has another form.
    #[error("it lacks a key that the type `external_account` has, or one has another form")]
    Form,
    /// Its token is in no file.
    #[error("its `credential_source` names no `file`, and no other source is supported")]
    NoFile,
    /// The token would be sent in cleartext.
    #[error("a URL in it is not https")]
    NotHttps,
    /// It impersonates by another request.
    #[error("its `service_account_impersonation_url` does not end in `:generateAccessToken`")]
    Impersonation,
    /// The token's place in the file is not known.
    #[error("its `format` is json, and names no `subject_token_field_name`")]
    Format,
}

impl Federation {
    /// Reads `file`.
    ///
    /// # Errors
    /// When it is not a file of the type `external_account` whose token is in a file.
    fn read(file: &Path) -> Result<Self, FederationError> {
        let text = file::secret(file)?;
        // Without serde's text, which may quote a key.
        let kind: Option<Value> = serde_json::from_str(&text).ok();
        let kind = kind.as_ref().and_then(|value| value.get("type")?.as_str());
        if kind != Some("external_account") {
            return Err(FederationError::Type);
        }
        let read: Self = serde_json::from_str(&text).map_err(|_| FederationError::Form)?;
        if read.credential_source.file.is_none() {
            return Err(FederationError::NoFile);
        }
        for url in [Some(&read.token_url), read.service_account_impersonation_url.as_ref()].into_iter().flatten() {
            let is_local = url.host_str().is_some_and(|host| host == "localhost" || host == "127.0.0.1");
            if url.scheme() != "https" && !is_local {
                return Err(FederationError::NotHttps);
            }
        }
        let account = read.service_account_impersonation_url.as_ref();
        if account.is_some_and(|url| !url.path().ends_with(":generateAccessToken")) {
            return Err(FederationError::Impersonation);
        }
        let format = read.credential_source.format.as_ref();
        if format.is_some_and(|format| format.kind == "json" && format.subject_token_field_name.is_none()) {
            return Err(FederationError::Format);
        }
        Ok(read)
    }
}

impl Source {
    /// The metadata server, at `url` if that is given.
    ///
    /// # Errors
    /// When the environment names another host that is not one.
    pub(super) fn metadata(url: Option<Url>, pod: &Pod) -> Result<Self, GoogleSourceError> {
        let host = pod.get("GCE_METADATA_HOST").unwrap_or(METADATA_HOST);
        let of_host = || Url::parse(&format!("http://{host}/"));
        Ok(Self::Metadata { url: url.map_or_else(of_host, Ok)? })
    }

    /// The federation that `file` describes.
    ///
    /// # Errors
    /// When it is not a file of the type `external_account` whose token is in a file.
    pub(super) fn of_file(file: &Path) -> Result<Option<Self>, GoogleSourceError> {
        let federation = Federation::read(file);
        let federation = federation.map_err(|cause| GoogleSourceError::Federation { file: file.to_owned(), cause })?;
        Ok(Some(Self::Federated(Box::new(federation))))
    }

    /// The account that the file wants to be impersonated, and the URL for that.
    pub(super) fn impersonated(&self) -> Option<(String, Url)> {
        let Self::Federated(federation) = self else { return None };
        let url = federation.service_account_impersonation_url.clone()?;
        let account = url.path().rsplit('/').next()?.strip_suffix(":generateAccessToken")?.to_owned();
        Some((account, url))
    }

    /// The scope of a token that impersonates, as Google's own libraries have it.
    pub(super) const fn scope_to_impersonate(&self) -> &'static str {
        match self {
            Self::Metadata { .. } => CLOUD_PLATFORM,
            Self::Federated(_) => IAM,
        }
    }

    /// A new token with `scopes`.
    ///
    /// # Errors
    /// When none arrives by `deadline`.
    pub(super) async fn issue(
        &self,
        exchanges: &Exchanges,
        scopes: &[String],
        deadline: Instant,
    ) -> Result<Issued<Secret>, BackendError> {
        match self {
            Self::Metadata { url } => {
                let step = "the metadata server";
                let mut url = at(url, "token")?;
                url.query_pairs_mut().append_pair("scopes", &scopes.join(","));
                oauth::token(step, &ask(exchanges, step, url, deadline).await?)
            }
            Self::Federated(federation) => federation.issue(exchanges, scopes, deadline).await,
        }
    }

    /// The name of the identity.
    ///
    /// # Errors
    /// When the metadata server does not say.
    pub(super) async fn who(&self, exchanges: &Exchanges, deadline: Instant) -> Result<String, BackendError> {
        match self {
            Self::Metadata { url } => {
                let step = "the metadata server";
                let reply = ask(exchanges, step, at(url, "email")?, deadline).await?;
                let email = String::from_utf8_lossy(&reply.body).trim().to_owned();
                // Without a service account of its own, the pod is called by its workload identity pool.
                let is_name = |c: char| c.is_ascii_alphanumeric() || "-._@:".contains(c);
                if email.is_empty() || email.len() > 200 || !email.chars().all(is_name) {
                    let why = format!("{step}: the reply is not the email of a service account");
                    return Err(BackendError::invalid_output(why));
                }
                Ok(email)
            }
            Self::Federated(federation) => {
                let subject = claim(&federation.subject()?, "sub");
                let subject = subject.as_ref().and_then(Value::as_str).unwrap_or("a token that does not say whose");
                Ok(format!("{subject} at {}", federation.audience))
            }
        }
    }
}

fn at(url: &Url, name: &str) -> Result<Url, BackendError> {
    url.join(&format!("{ACCOUNT}{name}"))
        .map_err(|why| BackendError::invalid_output(format!("the metadata server: {why}")))
}

async fn ask(exchanges: &Exchanges, step: &str, url: Url, deadline: Instant) -> Result<Reply, BackendError> {
    let mut call: Call = get(url, deadline);
    call.headers.insert(FLAVOR, HeaderValue::from_static("Google"));
    let reply = exchanges.ask_metadata(step, call, &[], ADVICE).await?;
    if reply.headers.get(FLAVOR).is_none_or(|flavor| flavor != "Google") {
        let why = format!("{step}: the reply lacks `Metadata-Flavor: Google`, so it is not Google's");
        return Err(BackendError::invalid_output(why));
    }
    Ok(reply)
}

impl Federation {
    /// The token that proves who the pod is.
    fn subject(&self) -> Result<Secret, BackendError> {
        let denied = |why: String| BackendError::new(ErrorKind::Denied, why);
        let CredentialSource { file, format } = &self.credential_source;
        let file = file.as_deref().ok_or_else(|| denied("`credential_source` names no `file`".to_owned()))?;
        let content = token_file(file)?;
        let field = match format {
            Some(Format { kind, subject_token_field_name: Some(field) }) if kind == "json" => field,
            _ => return Ok(content),
        };
        let value: Option<Value> = serde_json::from_str(content.expose()).ok();
        let token = value.as_ref().and_then(|value| value.get(field)?.as_str());
        let token = token.ok_or_else(|| denied(format!("the pod's token file {} has no `{field}`", file.display())))?;
        Ok(Secret::from(token.to_owned()))
    }

    async fn issue(
        &self,
        exchanges: &Exchanges,
        scopes: &[String],
        deadline: Instant,
    ) -> Result<Issued<Secret>, BackendError> {
        let step = "Google's STS";
        let (subject, scope) = (self.subject()?, scopes.join(" "));
        let fields = [
            ("audience", &*self.audience),
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("scope", &*scope),
            ("subject_token", subject.expose()),
            ("subject_token_type", &*self.subject_token_type),
        ];
        let call = form(self.token_url.clone(), &fields, deadline);
        let reply = exchanges.send(step, call, std::slice::from_ref(&subject), json_refusal).await?;
        oauth::token(step, &reply)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metadata { .. } => f.write_str("the pod's service account by the metadata server"),
            Self::Federated(federation) => {
                debug_assert_eq!(federation.kind, "external_account");
                write!(f, "the pod's token federated by {}", federation.audience)
            }
        }
    }
}

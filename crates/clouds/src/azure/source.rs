//! Where an identity of Entra ID begins: a federated token of the pod's service account, or the instance metadata service. Source: the
//! Microsoft identity platform's "client credentials flow", and Azure's documentation of managed identities.

use std::{fmt, path::PathBuf};

use http::HeaderValue;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::AzureConfig;
use crate::{
    exchange::{Exchanges, form, get, json_refusal},
    kept::Issued,
    oauth,
    pod::{Pod, token_file},
};
use domain::{error::BackendError, secret::Secret};

/// The authority of the public cloud.
const AUTHORITY: &str = "https://login.microsoftonline.com/";
/// The instance metadata service.
const INSTANCE: &str = "http://169.254.169.254/";

/// How the pod proves who it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(rename = "AzureSource")]
#[serde(rename_all = "camelCase")]
pub(crate) enum SourceKind {
    /// By the token of workload identity that the pod's environment names.
    #[default]
    Pod,
    /// A managed identity of the machine, by the instance metadata service. Every pod of the machine could use it.
    ManagedIdentity,
}

/// The way that is taken, with all that it needs.
pub(crate) enum Source {
    /// Workload identity: the authority exchanges a token of the pod's service account.
    Federated { authority: Url, tenant: String, client: String, file: PathBuf },
    /// The instance metadata service.
    Managed { url: Url, client: Option<String> },
}

/// Why the environment names no identity of Entra ID that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AzureSourceError {
    /// A variable is set without the token.
    #[error("the environment has {there}, and lacks AZURE_FEDERATED_TOKEN_FILE")]
    Half { there: &'static str },
    /// A value is set nowhere.
    #[error("neither `{key}` nor the environment's {variable} is set")]
    NotSet { key: &'static str, variable: &'static str },
    /// The authority is not a URL.
    #[error("AZURE_AUTHORITY_HOST is not a URL: {0}")]
    AuthorityNotUrl(#[source] url::ParseError),
    /// The authority would get the token in cleartext.
    #[error("AZURE_AUTHORITY_HOST is not https")]
    AuthorityNotHttps,
    /// The address of the metadata service is not a URL.
    #[error(transparent)]
    Metadata(#[from] url::ParseError),
}

impl Source {
    /// The way that `config` and `pod` say. `None` if the pod has no identity.
    ///
    /// # Errors
    /// When the environment names one by half.
    pub(crate) fn find(
        config: &AzureConfig,
        pod: &Pod,
        authority: Option<Url>,
        metadata: Option<Url>,
    ) -> Result<Option<Self>, AzureSourceError> {
        if config.source == SourceKind::ManagedIdentity {
            let url = metadata.map_or_else(|| Url::parse(INSTANCE), Ok)?;
            return Ok(Some(Self::Managed { url, client: config.client_id.clone() }));
        }
        let Some(file) = pod.get("AZURE_FEDERATED_TOKEN_FILE") else {
            // Half of workload identity must not become an anonymous request.
            let half = ["AZURE_CLIENT_ID", "AZURE_TENANT_ID"].into_iter().find(|name| pod.get(name).is_some());
            return half.map_or(Ok(None), |there| Err(AzureSourceError::Half { there }));
        };
        let value = |own: &Option<String>, variable, key| {
            let value = own.clone().or_else(|| pod.get(variable).map(str::to_owned));
            value.ok_or(AzureSourceError::NotSet { key, variable })
        };
        let tenant = value(&config.tenant_id, "AZURE_TENANT_ID", "tenantId")?;
        let client = value(&config.client_id, "AZURE_CLIENT_ID", "clientId")?;
        let authority = if let Some(authority) = authority {
            authority
        } else {
            let url = Url::parse(pod.get("AZURE_AUTHORITY_HOST").unwrap_or(AUTHORITY));
            let url = url.map_err(AzureSourceError::AuthorityNotUrl)?;
            if url.scheme() != "https" {
                return Err(AzureSourceError::AuthorityNotHttps);
            }
            url
        };
        Ok(Some(Self::Federated { authority, tenant, client, file: file.into() }))
    }

    /// A new token for `scope`.
    ///
    /// # Errors
    /// When none arrives by `deadline`.
    pub(crate) async fn issue(
        &self,
        exchanges: &Exchanges,
        scope: &str,
        deadline: Instant,
    ) -> Result<Issued<Secret>, BackendError> {
        let step = "Entra ID";
        let bad = |why: url::ParseError| BackendError::invalid_output(format!("{step}: {why}"));
        match self {
            Self::Federated { authority, tenant, client, file } => {
                let assertion = token_file(file)?;
                let url = authority.join(&format!("{tenant}/oauth2/v2.0/token")).map_err(bad)?;
                let fields = [
                    ("client_assertion", assertion.expose()),
                    ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
                    ("client_id", client),
                    ("grant_type", "client_credentials"),
                    ("scope", scope),
                ];
                let call = form(url, &fields, deadline);
                let reply = exchanges.send(step, call, std::slice::from_ref(&assertion), json_refusal).await?;
                oauth::token(step, &reply)
            }
            Self::Managed { url, client } => {
                let step = "the instance metadata service";
                let mut url = url.join("metadata/identity/oauth2/token").map_err(bad)?;
                let resource = scope.strip_suffix("/.default").unwrap_or(scope);
                url.query_pairs_mut().append_pair("api-version", "2018-02-01").append_pair("resource", resource);
                if let Some(client) = client {
                    url.query_pairs_mut().append_pair("client_id", client);
                }
                let mut call = get(url, deadline);
                call.headers.insert("metadata", HeaderValue::from_static("true"));
                let advice = "the NetworkPolicy must allow 169.254.169.254:80";
                oauth::token(step, &exchanges.ask_metadata(step, call, &[], advice).await?)
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Federated { tenant, client, .. } => {
                write!(f, "{client} of the tenant {tenant} by the pod's workload identity")
            }
            Self::Managed { client: Some(client), .. } => write!(f, "the managed identity {client}"),
            Self::Managed { client: None, .. } => f.write_str("the machine's managed identity"),
        }
    }
}

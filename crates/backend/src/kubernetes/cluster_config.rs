//! The `config` of a cluster Secret: how to log in to the cluster, and how its certificate is checked. Source: Argo CD, "Declarative setup",
//! "Clusters". No error quotes a value.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use serde::Deserialize;
use serde_json::Value;
use url::{Host, Url};
use zeroize::Zeroizing;

use super::{
    cluster_login::{AwsAuthConfig, CloudCluster, ExecProviderConfig},
    rules::{Rules, unusable},
};
use domain::{document, error::BackendError, secret::Secret};
use outbound::{
    GivenTls, Outbound, is_safe,
    kubernetes::{ApiLogin, ApiServer},
};

/// What messages call the certificates of a Secret.
const CERTIFICATES: [&str; 3] = ["tlsClientConfig.caData", "tlsClientConfig.certData", "tlsClientConfig.keyData"];

/// The login of a Secret.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClusterConfig {
    username: String,
    password: Option<Secret>,
    bearer_token: Option<Secret>,
    tls_client_config: TlsClientConfig,
    proxy_url: String,
    aws_auth_config: Option<AwsAuthConfig>,
    exec_provider_config: Option<ExecProviderConfig>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct TlsClientConfig {
    insecure: bool,
    server_name: String,
    cert_data: String,
    key_data: Option<Secret>,
    ca_data: String,
}

impl ClusterConfig {
    /// The login in `json`, the `config` of a Secret.
    ///
    /// # Errors
    /// When it is another document. No text quotes it.
    pub(super) fn read(json: &[u8]) -> Result<Self, BackendError> {
        // Without the cause, which may quote a value.
        let wrong = |_| unusable("its `config` is not the JSON object that Argo CD documents");
        let mut config = document::parse(json).map_err(wrong)?;
        drop_nulls(&mut config);
        document::read_object(config).map_err(wrong)
    }

    /// Whether it has a login of its own beside TLS. Argo CD logs in to its own cluster by its service account otherwise.
    pub(super) fn has_login(&self) -> bool {
        filled(self.bearer_token.as_ref()).is_some()
            || filled(self.password.as_ref()).is_some()
            || !self.username.is_empty()
    }

    /// The server at `url`, and the secrets that its login is made of.
    ///
    /// # Errors
    /// When the login cannot be used, or anybody in between could read it.
    pub(super) fn server(
        &self,
        url: Url,
        rules: &Rules,
        outbound: &Outbound,
    ) -> Result<(ApiServer, Vec<Secret>), BackendError> {
        if !self.proxy_url.is_empty() {
            return Err(unusable(
                "it has a `proxyUrl`, which the gateway does not use; `outbound.proxy` is the gateway's",
            ));
        }
        let (login, secrets) = self.login(rules, outbound)?;
        let is_open = self.tls_client_config.insecure || !is_safe(&url);
        if is_open && !rules.allow_insecure {
            return Err(unusable(
                "it does not check the server's certificate (`insecure: true`) or has a plain `http://` URL, so somebody in between could \
                 change the answers; name the CA as `caData`, or set `clusters.allowInsecure: true`",
            ));
        }
        let tls = self.tls_client_config.given(&url)?;
        let server = ApiServer::given(url, tls, login, outbound).map_err(|error| unusable(error.to_string()))?;
        Ok((server, secrets))
    }

    /// The login, and the secrets that it is made of.
    fn login(&self, rules: &Rules, outbound: &Outbound) -> Result<(ApiLogin, Vec<Secret>), BackendError> {
        let sensitive = |text: String| {
            let invalid = |_| unusable("its login holds characters that no header can carry");
            let mut value = HeaderValue::try_from(text).map_err(invalid)?;
            value.set_sensitive(true);
            Ok::<_, BackendError>(ApiLogin::Header(value))
        };
        if let Some(token) = filled(self.bearer_token.as_ref()) {
            return Ok((sensitive(format!("Bearer {}", token.expose()))?, vec![token.clone()]));
        }
        if !self.username.is_empty() {
            let password = filled(self.password.as_ref());
            let pair = format!("{}:{}", self.username, password.map_or("", Secret::expose));
            let pair = Zeroizing::new(pair);
            return Ok((
                sensitive(format!("Basic {}", STANDARD.encode(&*pair)))?,
                password.cloned().into_iter().collect(),
            ));
        }
        let cloud = match (&self.aws_auth_config, &self.exec_provider_config) {
            (Some(aws), _) => CloudCluster::of_aws(aws)?,
            (None, Some(program)) => CloudCluster::of_program(program)?,
            (None, None) => return Ok((ApiLogin::Certificate, Vec::new())),
        };
        Ok((ApiLogin::Cloud(cloud.login(rules, outbound)?), Vec::new()))
    }
}

impl TlsClientConfig {
    fn given(&self, url: &Url) -> Result<GivenTls, BackendError> {
        let decoded = |name: &str, text: &str| {
            let not = |_| unusable(format!("its `{name}` is not base64"));
            let text: String = text.split_whitespace().collect();
            STANDARD.decode(text).map_err(not)
        };
        let pem = |name: &str, text: &str| if text.is_empty() { Ok(None) } else { decoded(name, text).map(Some) };
        let [ca, cert, key] = [
            pem(CERTIFICATES[0], &self.ca_data)?,
            pem(CERTIFICATES[1], &self.cert_data)?,
            pem(CERTIFICATES[2], filled(self.key_data.as_ref()).map_or("", Secret::expose))?,
        ];
        let client = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, Zeroizing::new(key))),
            (None, None) => None,
            _ => return Err(unusable("it has only one of `certData` and `keyData`")),
        };
        let is_name = |name: &String| matches!(Host::parse(name), Ok(Host::Domain(_)));
        let server_name = Some(self.server_name.clone()).filter(|name| !name.is_empty());
        if server_name.as_ref().is_some_and(|name| !is_name(name)) {
            return Err(unusable("its `serverName` is not a name"));
        }
        let host = url.host().ok_or_else(|| unusable("its `server` has no host"))?.to_owned();
        let server_name = server_name.filter(|name| *name != host.to_string());
        Ok(GivenTls { host, ca, client, server_name, is_checked: !self.insecure, names: CERTIFICATES })
    }
}

/// The secret if it is not empty, as Go writes one that is not there.
fn filled(secret: Option<&Secret>) -> Option<&Secret> {
    secret.filter(|secret| !secret.expose().is_empty())
}

/// Removes keys without a value, which Go writes and reads as if they were not there.
fn drop_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(drop_nulls);
    }
}

//! Entra ID: from the pod's federated token or a managed identity to tokens for APIs, and to logins at Azure Container Registry.

mod source;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use self::source::{AzureSourceError, Source, SourceKind};
use crate::{
    context::{Context, endpoint_url},
    exchange::{Exchanges, form, json_refusal, life},
    kept::{Issued, Kept},
    logins::Logins,
    oauth::{bear, claim},
};
use domain::{
    error::BackendError,
    problem::{Path, Problems},
    secret::{Secret, Secrets},
};
use outbound::{Call, ClusterLogin, Identity, Login, LoginPlace};

/// Registries' hosts, and the scope of the tokens that they exchange. Source: the audiences of azure-containerregistry.
const REGISTRIES: [(&str, &str); 3] = [
    (".azurecr.io", "https://containerregistry.azure.net/.default"),
    (".azurecr.cn", "https://management.chinacloudapi.cn/.default"),
    (".azurecr.us", "https://management.usgovcloudapi.net/.default"),
];
/// The clouds beside the public one, by the end of their authorities' hosts, with the scope of their registries.
const SOVEREIGN: [(&str, &str); 3] = [
    (".microsoftonline.us", REGISTRIES[2].1),
    (".chinacloudapi.cn", REGISTRIES[1].1),
    (".partner.microsoftonline.cn", REGISTRIES[1].1),
];
/// The application of AKS, which the tokens for its clusters are for. Source: kubelogin, "AKS AAD Server".
const AKS: &str = "6dae42f8-4368-4678-94ff-3960e28e3630";
/// The life of a registry's refresh token if it names none.
const REFRESH_LIFE: Duration = Duration::from_hours(1);

/// An application or a managed identity of Entra ID.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[schemars(rename = "AzureIdentity")]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AzureConfig {
    /// How the pod proves who it is.
    source: SourceKind,
    /// The tenant. Without it, that of the environment (`AZURE_TENANT_ID`).
    tenant_id: Option<String>,
    /// The application or the managed identity. Without it, that of the environment (`AZURE_CLIENT_ID`).
    client_id: Option<String>,
    /// The scope of tokens for `http` requests. Without it, that of the URL's host: `https://<host>/.default`.
    scope: Option<String>,
    /// Other endpoints than Azure's public ones.
    endpoints: EndpointsConfig,
}

/// Endpoints in place of Azure's public ones: URLs.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[schemars(rename = "AzureEndpoints")]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct EndpointsConfig {
    /// The authority. Without it, that of the environment (`AZURE_AUTHORITY_HOST`), else `https://login.microsoftonline.com`.
    authority: Option<String>,
    /// The instance metadata service.
    metadata: Option<String>,
}

/// An identity of Entra ID.
pub(crate) struct AzureIdentity {
    source: Arc<Source>,
    scope: Option<String>,
    /// The scope of the registries of the identity's own cloud.
    home: &'static str,
    exchanges: Exchanges,
    /// By scope.
    tokens: Mutex<HashMap<String, Arc<Kept<Secret>>>>,
    logins: Logins,
}

/// Whether a registry's host is one of Azure Container Registry.
pub(crate) fn covers(host: &str) -> bool {
    registry_scope(host).is_some()
}

/// The pod's own identity. `None` if it has none.
pub(crate) fn automatic(context: &Context<'_>) -> Option<Result<Arc<dyn Identity>, AzureSourceError>> {
    let source = Source::find(&AzureConfig::default(), context.pod, None, None).transpose()?;
    Some(source.map(|source| Arc::new(AzureIdentity::new(source, None, context)) as Arc<dyn Identity>))
}

/// The scope for the registry at `host`.
fn registry_scope(host: &str) -> Option<&'static str> {
    let found = REGISTRIES.iter().find(|(suffix, _)| host.strip_suffix(suffix).is_some_and(is_label));
    found.map(|(_, scope)| *scope)
}

/// The scope for the registries of the cloud that is logged in to by `authority`.
fn home_scope(authority: &Url) -> &'static str {
    let host = authority.host_str().unwrap_or_default();
    SOVEREIGN.iter().find(|(end, _)| host.ends_with(end)).map_or(REGISTRIES[0].1, |(_, scope)| *scope)
}

fn is_label(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
}

impl AzureConfig {
    /// The identity. With a problem noted, it is one that only fails.
    pub(crate) fn build(&self, context: &Context<'_>, path: &Path, problems: &mut Problems) -> Arc<dyn Identity> {
        let at = path.key("endpoints");
        let mut endpoint =
            |key: &str, url: &Option<String>| url.as_ref().and_then(|url| endpoint_url(url, &at.key(key), problems));
        let authority = endpoint("authority", &self.endpoints.authority);
        let metadata = endpoint("metadata", &self.endpoints.metadata);
        for (key, value) in [("tenantId", &self.tenant_id), ("clientId", &self.client_id)] {
            let is_id =
                |value: &String| value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
            if value.as_ref().is_some_and(|value| value.is_empty() || !is_id(value)) {
                problems
                    .error(&path.key(key), "it is not an id of Entra ID, such as 8d8a5ec1-7f3f-4b5e-9a44-2f9a0f3a1b5c");
            }
        }
        let found = Source::find(self, context.pod, authority, metadata);
        let source = match context.found(found, ("AZURE_FEDERATED_TOKEN_FILE", covers), path, problems) {
            Ok(source) => source,
            Err(other) => return other,
        };
        Arc::new(AzureIdentity::new(source, self.scope.clone(), context))
    }
}

impl AzureIdentity {
    fn new(source: Source, scope: Option<String>, context: &Context<'_>) -> Self {
        // A managed identity needs no authority. The environment says in which cloud it is.
        let of_environment = || context.pod.get("AZURE_AUTHORITY_HOST").and_then(|url| Url::parse(url).ok());
        let home = match &source {
            Source::Federated { authority, .. } => home_scope(authority),
            Source::Managed { .. } => of_environment().map_or(REGISTRIES[0].1, |url| home_scope(&url)),
        };
        let exchanges = context.exchanges.clone().of(&described(&source));
        let logins = Logins::new(&exchanges.clock);
        Self { source: Arc::new(source), scope, home, exchanges, tokens: Mutex::default(), logins }
    }

    /// The scope for requests to `url`.
    fn scope(&self, url: &Url) -> String {
        let host = || format!("https://{}/.default", url.host_str().unwrap_or_default());
        self.scope.clone().unwrap_or_else(host)
    }

    /// Where the token for `scope` is kept.
    fn kept(&self, scope: &str) -> Arc<Kept<Secret>> {
        let mut tokens = self.tokens.lock();
        Arc::clone(tokens.entry(scope.to_owned()).or_insert_with(|| Arc::new(Kept::new(&self.exchanges.clock))))
    }

    async fn token(&self, scope: &str, afresh: bool, deadline: Instant) -> Result<Arc<Secret>, BackendError> {
        token(&self.source, &self.exchanges, (&self.kept(scope), scope), afresh, deadline).await
    }
}

/// The token in `kept`, or a new one of `source` for `scope`.
async fn token(
    source: &Arc<Source>,
    exchanges: &Exchanges,
    (kept, scope): (&Kept<Secret>, &str),
    afresh: bool,
    deadline: Instant,
) -> Result<Arc<Secret>, BackendError> {
    let issue = |until| {
        let (source, exchanges, scope) = (Arc::clone(source), exchanges.clone(), scope.to_owned());
        async move { source.issue(&exchanges, &scope, until).await }
    };
    kept.get(afresh, deadline, issue).await
}

fn described(source: &Source) -> String {
    format!("Azure, {source}")
}

/// A login for the registry `service` at `base`, in exchange for `token`. Source: ACR's documentation of its authentication ("AAD-OAuth").
async fn exchange(
    exchanges: &Exchanges,
    base: &Url,
    service: Option<&str>,
    token: &Secret,
    deadline: Instant,
) -> Result<Issued<Login>, BackendError> {
    #[derive(Deserialize)]
    struct ExchangeReply {
        refresh_token: Secret,
    }
    let step = "the registry's token exchange";
    let bad = |what: &str| BackendError::invalid_output(format!("{step}: {what}"));
    let url = base.join("oauth2/exchange").map_err(|error| bad(&error.to_string()))?;
    let service = service.or_else(|| base.host_str()).unwrap_or_default();
    let fields = [("grant_type", "access_token"), ("service", service), ("access_token", token.expose())];
    let call = form(url, &fields, deadline);
    let reply = exchanges.send(step, call, std::slice::from_ref(token), json_refusal).await?;
    // No error quotes the reply, which holds the token.
    let read: ExchangeReply =
        serde_json::from_slice(&reply.body).map_err(|_| bad("the reply is not a token, with `refresh_token`"))?;
    let [ends, begins] = ["exp", "iat"].map(|name| claim(&read.refresh_token, name).and_then(|time| time.as_u64()));
    let lasts = ends.zip(begins).and_then(|(ends, begins)| ends.checked_sub(begins)).map(Duration::from_secs);
    Ok(Issued { value: Login::RefreshToken(read.refresh_token), lasts: life(lasts.unwrap_or(REFRESH_LIFE)) })
}

#[async_trait]
impl Identity for AzureIdentity {
    fn describe(&self) -> String {
        described(&self.source)
    }

    fn cloud(&self) -> &'static str {
        "Azure"
    }

    fn covers(&self, name: &str) -> bool {
        covers(name)
    }

    fn to_read(&self) -> Option<&'static str> {
        Some("the identity must have the role AcrPull at the registry")
    }

    fn check_url(&self, _: &Url) -> Result<(), String> {
        Ok(())
    }

    async fn authorize(&self, call: Call, afresh: bool) -> Result<Call, BackendError> {
        let token = self.token(&self.scope(&call.url), afresh, call.deadline).await?;
        bear(call, &token)
    }

    async fn log_in(&self, place: LoginPlace<'_>, afresh: bool, deadline: Instant) -> Result<Login, BackendError> {
        let of_base = || place.base.host_str().and_then(registry_scope);
        let scope = registry_scope(place.name).or_else(of_base).unwrap_or(self.home);
        // Reached at another place, it is still called by its name.
        let service = Some(place.name).filter(|name| registry_scope(name).is_some()).map(str::to_owned);
        let key = format!("{} {}", place.name, place.base);
        let own = (Arc::clone(&self.source), self.exchanges.clone(), self.kept(scope));
        let credential = move |afresh, until| {
            let (source, exchanges, kept) = own.clone();
            async move { token(&source, &exchanges, (&kept, scope), afresh, until).await }
        };
        let (exchanges, base) = (self.exchanges.with_tls(place.tls)?, place.base.clone());
        let issue = move |token: Arc<Secret>, until| {
            let (exchanges, base, service) = (exchanges.clone(), base.clone(), service.clone());
            async move { exchange(&exchanges, &base, service.as_deref(), &token, until).await }
        };
        self.logins.get(key, (afresh, deadline), credential, issue).await
    }

    async fn log_in_to_cluster(
        &self,
        cluster: ClusterLogin<'_>,
        afresh: bool,
        deadline: Instant,
    ) -> Result<Secret, BackendError> {
        let scope = format!("{}/.default", cluster.audience.unwrap_or(AKS));
        Ok((*self.token(&scope, afresh, deadline).await?).clone())
    }

    async fn who(&self, deadline: Instant) -> Result<String, BackendError> {
        let scope = self.scope.as_deref().unwrap_or(self.home);
        let token = self.token(scope, false, deadline).await?;
        let text = |name: &str| claim(&token, name).and_then(|value| value.as_str().map(str::to_owned));
        let id = ["appid", "azp", "oid", "sub"].iter().find_map(|name| text(name));
        let tenant = text("tid").map(|tenant| format!(" of the tenant {tenant}")).unwrap_or_default();
        Ok(id.map_or_else(|| "a token that does not say whose".to_owned(), |id| format!("{id}{tenant}")))
    }

    fn account(&self) -> Arc<str> {
        Arc::clone(&self.exchanges.account)
    }

    fn secrets(&self) -> Secrets {
        self.tokens.lock().values().filter_map(|kept| kept.current()).map(|token| (*token).clone()).collect()
    }
}

impl fmt::Debug for AzureIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

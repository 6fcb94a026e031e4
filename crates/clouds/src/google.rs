//! Google: from the metadata server or a federated token, by impersonation if that is configured, to tokens for APIs and registries.

mod source;

use std::{fmt, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use self::source::{GoogleSourceError, Source};
use crate::{
    context::{Context, endpoint_url},
    exchange::{Exchanges, json_refusal, life_until, post},
    kept::{Issued, Kept},
    oauth::bear,
};
use domain::{
    error::BackendError,
    problem::{Path, Problems},
    secret::{Secret, Secrets},
};
use outbound::{Call, ClusterLogin, Identity, Login, LoginPlace};

/// The scope of all of Google Cloud's APIs: what a token may do depends on IAM.
const CLOUD_PLATFORM: &str = "https://www.googleapis.com/auth/cloud-platform";
/// The scope for impersonation.
const IAM: &str = "https://www.googleapis.com/auth/iam";
/// The API that issues tokens of other service accounts.
const IAM_CREDENTIALS: &str = "https://iamcredentials.googleapis.com/";
/// How long a token of an impersonated account lasts.
const LIFETIME: &str = "3600s";
/// The user name for tokens at registries.
const USER: &str = "oauth2accesstoken";

/// A service account, or the identity that the pod has at Google.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[schemars(rename = "GoogleIdentity")]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GoogleConfig {
    /// The service account to impersonate: its email. Without it, the pod's own identity is used.
    service_account: Option<String>,
    /// A file of the type `external_account`, relative to the configuration file. Without it, the one that the environment names
    /// (`GOOGLE_APPLICATION_CREDENTIALS`), else the metadata server.
    credentials_file: Option<PathBuf>,
    /// The scopes of tokens; all of Google Cloud's APIs unless set. What a token may do depends on IAM.
    scopes: Vec<String>,
    /// Other endpoints than Google's public ones.
    endpoints: EndpointsConfig,
}

/// Endpoints in place of Google's public ones: URLs.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[schemars(rename = "GoogleEndpoints")]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct EndpointsConfig {
    /// The metadata server.
    metadata: Option<String>,
    /// The API that issues tokens of service accounts, without `v1/`.
    iam_credentials: Option<String>,
}

/// An identity at Google.
pub(crate) struct GoogleIdentity {
    core: Arc<Core>,
    token: Kept<Secret>,
}

struct Core {
    source: Source,
    scopes: Vec<String>,
    /// The account to impersonate, and the URL for that.
    impersonated: Option<(String, Url)>,
    exchanges: Exchanges,
}

/// Whether a registry's host is one of Artifact Registry or Container Registry.
pub(crate) fn covers(host: &str) -> bool {
    let is_label =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let of = |suffix| host.strip_suffix(suffix).is_some_and(is_label);
    host == "gcr.io" || of(".gcr.io") || of("-docker.pkg.dev")
}

/// The pod's own identity. `None` if its environment names none.
pub(crate) fn automatic(context: &Context<'_>) -> Option<Result<Arc<dyn Identity>, GoogleSourceError>> {
    let file = context.pod.get("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from);
    let source = match (file, context.pod.get("GCE_METADATA_HOST")) {
        (Some(file), _) => Source::of_file(&file).transpose()?,
        (None, Some(_)) => Source::metadata(None, context.pod),
        (None, None) => return None,
    };
    Some(source.map(|source| {
        let core = Core::new(source, &GoogleConfig::default(), context);
        Arc::new(GoogleIdentity::new(core)) as Arc<dyn Identity>
    }))
}

impl GoogleConfig {
    /// The identity. With a problem noted, it is one that only fails.
    pub(crate) fn build(&self, context: &Context<'_>, path: &Path, problems: &mut Problems) -> Arc<dyn Identity> {
        let at = path.key("endpoints");
        let mut endpoint =
            |key: &str, url: &Option<String>| url.as_ref().and_then(|url| endpoint_url(url, &at.key(key), problems));
        let metadata = endpoint("metadata", &self.endpoints.metadata);
        let credentials_api = endpoint("iamCredentials", &self.endpoints.iam_credentials);
        if let Some(account) = self.service_account.as_ref().filter(|account| !is_email(account)) {
            problems.error_with_help(
                &path.key("serviceAccount"),
                format!("`{}` is not the email of a service account", account.escape_debug()),
                "write `<name>@<project>.iam.gserviceaccount.com`",
            );
        }
        let of_environment = context.pod.get("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from);
        let file = self.credentials_file.as_ref().map(|file| context.base.resolve(file));
        let found = match file.or(of_environment.filter(|_| metadata.is_none())) {
            Some(_) if context.is_lenient => Ok(None),
            Some(file) => Source::of_file(&file),
            None => Source::metadata(metadata, context.pod).map(Some),
        };
        let source = match context.found(found, ("GOOGLE_APPLICATION_CREDENTIALS", covers), path, problems) {
            Ok(source) => source,
            Err(other) => return other,
        };
        let mut core = Core::new(source, self, context);
        if let (Some(account), Some(api)) = (&self.service_account, credentials_api) {
            core.impersonated = impersonation(account, &api);
        }
        Arc::new(GoogleIdentity::new(core))
    }
}

/// Whether `text` has the form of a service account's email.
fn is_email(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let parts = text.split_once('@');
    parts.is_some_and(|(name, domain)| {
        !name.is_empty() && domain.contains('.') && (name.to_owned() + domain).chars().all(is_plain)
    })
}

/// `account`, and where the API at `api` issues its tokens.
fn impersonation(account: &str, api: &Url) -> Option<(String, Url)> {
    let url = api.join(&format!("v1/projects/-/serviceAccounts/{account}:generateAccessToken")).ok()?;
    Some((account.to_owned(), url))
}

impl Core {
    fn new(source: Source, config: &GoogleConfig, context: &Context<'_>) -> Self {
        let scopes = match &config.scopes {
            scopes if scopes.is_empty() => vec![CLOUD_PLATFORM.to_owned()],
            scopes => scopes.clone(),
        };
        let api = Url::parse(IAM_CREDENTIALS).ok();
        let named = config.service_account.as_ref().zip(api.as_ref());
        let impersonated = match named {
            Some((account, api)) => impersonation(account, api),
            None => source.impersonated(),
        };
        Self { source, scopes, impersonated, exchanges: context.exchanges.clone() }
    }

    fn describe(&self) -> String {
        let account = self.impersonated.as_ref().map(|(account, _)| format!(", then {account}"));
        format!("Google, {}{}", self.source, account.unwrap_or_default())
    }

    async fn issue(&self, deadline: Instant) -> Result<Issued<Secret>, BackendError> {
        let Some((account, url)) = &self.impersonated else {
            return self.source.issue(&self.exchanges, &self.scopes, deadline).await;
        };
        let scopes = [self.source.scope_to_impersonate().to_owned()];
        let own = self.source.issue(&self.exchanges, &scopes, deadline).await?.value;
        impersonate(&self.exchanges, account, url, (&own, &self.scopes), deadline).await
    }
}

/// A token of `account`, for the token of an identity that may create tokens of it.
async fn impersonate(
    exchanges: &Exchanges,
    account: &str,
    url: &Url,
    (own, scopes): (&Secret, &[String]),
    deadline: Instant,
) -> Result<Issued<Secret>, BackendError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ImpersonationReply {
        access_token: Secret,
        expire_time: String,
    }
    let step = format!("generateAccessToken of {account}");
    let body = json!({"scope": scopes, "lifetime": LIFETIME}).to_string();
    let call = bear(post(url.clone(), "application/json", Bytes::from(body), deadline), own)?;
    let reply = exchanges.send(&step, call, &[], json_refusal).await?;
    // No error quotes the reply, which holds the token.
    let wrong = |_| BackendError::invalid_output(format!("{step}: the reply is not a token, with `accessToken`"));
    let read: ImpersonationReply = serde_json::from_slice(&reply.body).map_err(wrong)?;
    let lasts = life_until(&read.expire_time, &reply, exchanges.clock.now()).map_err(|error| error.within(&step))?;
    Ok(Issued { value: read.access_token, lasts })
}

impl GoogleIdentity {
    fn new(core: Core) -> Self {
        let exchanges = core.exchanges.clone().of(&core.describe());
        let core = Core { exchanges, ..core };
        Self { token: Kept::new(&core.exchanges.clock), core: Arc::new(core) }
    }

    async fn token(&self, afresh: bool, deadline: Instant) -> Result<Arc<Secret>, BackendError> {
        let issue = |until| {
            let core = Arc::clone(&self.core);
            async move { core.issue(until).await }
        };
        self.token.get(afresh, deadline, issue).await
    }
}

#[async_trait]
impl Identity for GoogleIdentity {
    fn describe(&self) -> String {
        self.core.describe()
    }

    fn cloud(&self) -> &'static str {
        "Google"
    }

    fn covers(&self, name: &str) -> bool {
        covers(name)
    }

    fn to_read(&self) -> Option<&'static str> {
        Some("the identity must have roles/artifactregistry.reader on the repository")
    }

    fn check_url(&self, _: &Url) -> Result<(), String> {
        Ok(())
    }

    async fn authorize(&self, call: Call, afresh: bool) -> Result<Call, BackendError> {
        let token = self.token(afresh, call.deadline).await?;
        bear(call, &token)
    }

    async fn log_in(&self, _: LoginPlace<'_>, afresh: bool, deadline: Instant) -> Result<Login, BackendError> {
        let password = (*self.token(afresh, deadline).await?).clone();
        Ok(Login::Password { username: USER.to_owned(), password })
    }

    async fn log_in_to_cluster(
        &self,
        _: ClusterLogin<'_>,
        afresh: bool,
        deadline: Instant,
    ) -> Result<Secret, BackendError> {
        Ok((*self.token(afresh, deadline).await?).clone())
    }

    async fn who(&self, deadline: Instant) -> Result<String, BackendError> {
        self.token(false, deadline).await?;
        match &self.core.impersonated {
            Some((account, _)) => Ok(account.clone()),
            None => self.core.source.who(&self.core.exchanges, deadline).await,
        }
    }

    fn account(&self) -> Arc<str> {
        Arc::clone(&self.core.exchanges.account)
    }

    fn secrets(&self) -> Secrets {
        self.token.current().map(|token| (*token).clone()).into_iter().collect()
    }
}

impl fmt::Debug for GoogleIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

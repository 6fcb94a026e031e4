//! IAM roles: from the pod's proof, by as many roles as are configured, to a signed request or a login at ECR.

mod ecr;
mod eks;
mod endpoint;
mod sign;
mod source;
mod sts;

use std::{collections::HashMap, fmt, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use self::{
    ecr::PUBLIC_REGION,
    endpoint::{EcrHost, Variant, is_region, of_url},
    sign::{Scope, sign},
    source::{AwsSourceError, Source, SourceKind},
    sts::{Hop, Sts},
};
use crate::{
    context::{Context, endpoint_url},
    exchange::Exchanges,
    kept::{Issued, Kept},
    logins::Logins,
    pod::Pod,
};
use domain::{
    error::BackendError,
    problem::{Path, Problems},
    secret::{Secret, Secrets},
};
use outbound::{Call, ClusterLogin, Identity, Login, LoginPlace, Reply};

/// The name of sessions, unless the configuration or the environment has another.
const SESSION: &str = "appset-gateway";
/// What replies say of credentials that ended, beside a 401.
const ENDED: [&str; 3] = ["ExpiredToken", "ExpiredTokenException", "RequestExpired"];

/// An IAM role, or the identity that the pod has at AWS.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[schemars(rename = "AwsIdentity")]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AwsConfig {
    /// The region of STS, of ECR for registries with other hosts than ECR's, and of signatures for hosts that name none. Without it,
    /// that of the environment (`AWS_REGION`).
    region: Option<String>,
    /// How the pod proves who it is.
    source: SourceKind,
    /// The role to assume with that. Without it, the pod's own role is used.
    role_arn: Option<String>,
    /// The external id that the role's owner demands.
    external_id: Option<String>,
    /// Roles to assume before `roleArn`, one with the credentials of the other.
    via: Vec<HopConfig>,
    /// The name of sessions in AWS's logs; `appset-gateway` unless set.
    session_name: Option<String>,
    /// The service that signatures of `http` requests name, such as `execute-api`. Without it, that in the URL's host.
    service: Option<String>,
    /// Use endpoints with validated cryptography (FIPS 140).
    fips: bool,
    /// Use endpoints that have IPv6 addresses too.
    dual_stack: bool,
    /// Other endpoints than AWS's public ones.
    endpoints: EndpointsConfig,
}

/// A role on the way to another one.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "AwsRole")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HopConfig {
    /// The role.
    role_arn: String,
    /// The external id that its owner demands.
    external_id: Option<String>,
}

/// Endpoints in place of AWS's public ones, such as those of a VPC: URLs.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[schemars(rename = "AwsEndpoints")]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct EndpointsConfig {
    /// The Security Token Service.
    sts: Option<String>,
    /// ECR's API.
    ecr: Option<String>,
    /// ECR Public's API.
    ecr_public: Option<String>,
    /// The instance metadata service.
    metadata: Option<String>,
}

/// Credentials of AWS.
#[derive(Debug, Clone)]
pub(crate) struct AwsCredentials {
    /// The id of the key, which is not a secret.
    pub key_id: String,
    /// The secret key.
    pub secret_key: Secret,
    /// The session token of temporary credentials.
    pub session_token: Option<Secret>,
}

/// An identity at AWS.
pub(crate) struct AwsIdentity {
    core: Arc<Core>,
    credentials: Arc<Kept<AwsCredentials>>,
    logins: Logins,
    /// Of the roles by which it logs in to clusters, by their ARNs.
    roles: Mutex<HashMap<String, Arc<Kept<AwsCredentials>>>>,
}

/// All that getting credentials needs.
struct Core {
    source: Source,
    hops: Vec<Hop>,
    session: String,
    region: Option<String>,
    service: Option<String>,
    variant: Variant,
    sts: Sts,
    ecr: Option<Url>,
    ecr_public: Option<Url>,
    exchanges: Exchanges,
}

/// Whether a registry's host is one of ECR.
pub(crate) fn covers(host: &str) -> bool {
    EcrHost::read(host).is_some()
}

/// The pod's own identity. `None` if it has none.
pub(crate) fn automatic(context: &Context<'_>) -> Option<Result<Arc<dyn Identity>, AwsSourceError>> {
    let source = Source::find(SourceKind::Pod, context.pod, SESSION, None).transpose()?;
    Some(source.and_then(|source| {
        let core = Core::new(&AwsConfig::default(), source, region_of(context.pod)?, context);
        Ok(Arc::new(AwsIdentity::new(core)) as Arc<dyn Identity>)
    }))
}

impl AwsConfig {
    /// The identity. With a problem noted, it is one that only fails.
    pub(crate) fn build(&self, context: &Context<'_>, path: &Path, problems: &mut Problems) -> Arc<dyn Identity> {
        if let Some(region) = self.region.as_ref().filter(|region| !is_region(region)) {
            problems.error_with_help(
                &path.key("region"),
                format!("`{}` is not a region", region.escape_debug()),
                "write it as AWS does, such as `eu-central-1`",
            );
        }
        let of_pod = region_of(context.pod);
        let region = self.region.clone().filter(|region| is_region(region));
        let region = region.or_else(|| of_pod.as_ref().ok().cloned().flatten());
        if region.is_none() && self.region.is_none() && !context.is_lenient {
            let help = "set `region`, such as `eu-central-1`, whose STS is used";
            let why = of_pod.err().map(|why| format!(": {why}")).unwrap_or_default();
            let message = format!("neither `region` nor AWS_REGION says which region is used{why}");
            problems.error_with_help(path, message, help);
        }
        let roles = self.via.iter().enumerate().map(|(index, hop)| (path.key("via").index(index), &hop.role_arn));
        for (path, role) in roles.chain(self.role_arn.iter().map(|role| (path.clone(), role))) {
            if !is_role(role) {
                let message = format!("`{}` is not the ARN of a role", role.escape_debug());
                problems.error_with_help(&path.key("roleArn"), message, "write `arn:aws:iam::<account>:role/<name>`");
            }
        }
        if self.external_id.is_some() && self.role_arn.is_none() {
            problems.error(&path.key("externalId"), "it is sent when a role is assumed, and there is no `roleArn`");
        }
        let at = path.key("endpoints");
        let mut endpoint =
            |key: &str, url: &Option<String>| url.as_ref().map(|url| endpoint_url(url, &at.key(key), problems));
        let [sts, ecr, ecr_public, metadata] = [
            endpoint("sts", &self.endpoints.sts),
            endpoint("ecr", &self.endpoints.ecr),
            endpoint("ecrPublic", &self.endpoints.ecr_public),
            endpoint("metadata", &self.endpoints.metadata),
        ];
        let session = self.session_name.as_deref().unwrap_or(SESSION);
        let source = Source::find(self.source, context.pod, session, metadata.flatten().as_ref());
        let source = match context.found(source, ("AWS_WEB_IDENTITY_TOKEN_FILE", covers), path, problems) {
            Ok(source) => source,
            Err(other) => return other,
        };
        let mut core = Core::new(self, source, region, context);
        (core.ecr, core.ecr_public) = (ecr.flatten(), ecr_public.flatten());
        if let Some(Some(sts)) = sts {
            core.sts.url = sts;
        }
        Arc::new(AwsIdentity::new(core))
    }
}

/// The region in the pod's environment.
///
/// # Errors
/// When it is not one: another one in its place could belong to another partition.
fn region_of(pod: &Pod) -> Result<Option<String>, AwsSourceError> {
    let named = ["AWS_REGION", "AWS_DEFAULT_REGION"].into_iter().find_map(|name| Some((name, pod.get(name)?)));
    match named {
        Some((variable, region)) if !is_region(region) => {
            Err(AwsSourceError::Region { variable, region: region.to_owned() })
        }
        named => Ok(named.map(|(_, region)| region.to_owned())),
    }
}

/// Whether `arn` has the form of a role's ARN.
fn is_role(arn: &str) -> bool {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let ["arn", partition, "iam", "", account, name] = parts[..] else { return false };
    let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_graphic());
    partition.starts_with("aws")
        && account.len() == 12
        && account.bytes().all(|byte| byte.is_ascii_digit())
        && name.strip_prefix("role/").is_some_and(|name| !name.is_empty() && is_plain(name))
}

impl Core {
    fn new(config: &AwsConfig, source: Source, region: Option<String>, context: &Context<'_>) -> Self {
        let hops = config.via.iter().map(|hop| (&hop.role_arn, &hop.external_id));
        let hops = hops.chain(config.role_arn.iter().map(|role| (role, &config.external_id)));
        let hops = hops.map(|(role, external_id)| Hop { role: role.clone(), external_id: external_id.clone() });
        let variant = Variant { fips: config.fips, dual_stack: config.dual_stack };
        // Without a region STS's oldest one answers for all of a partition.
        let of_sts = region.clone().unwrap_or_else(|| PUBLIC_REGION.to_owned());
        Self {
            source,
            hops: hops.collect(),
            session: config.session_name.clone().unwrap_or_else(|| SESSION.to_owned()),
            service: config.service.clone(),
            sts: Sts { url: https(&endpoint::sts(&of_sts, variant)), region: of_sts },
            region,
            variant,
            ecr: None,
            ecr_public: None,
            exchanges: context.exchanges.clone(),
        }
    }

    fn describe(&self) -> String {
        let hops: Vec<String> = self.hops.iter().map(|hop| format!(", then {}", hop.role)).collect();
        format!("AWS, {}{}", self.source, hops.concat())
    }

    /// New credentials: those of the source, and then of one role after the other.
    async fn issue(&self, deadline: Instant) -> Result<Issued<AwsCredentials>, BackendError> {
        let mut issued = self.source.issue(&self.exchanges, &self.sts, deadline).await?;
        for hop in &self.hops {
            issued = self.sts.assume_role(&self.exchanges, &issued.value, hop, &self.session, deadline).await?;
        }
        Ok(issued)
    }

    /// The service and region that a signature for `url` names.
    fn scope(&self, url: &Url) -> Result<(String, String), String> {
        let (service, region) = of_url(url);
        let service = self.service.clone().or(service);
        let service = service.ok_or("its host names no service of AWS; set `service` at the identity")?;
        let region = region.or_else(|| self.region.clone());
        Ok((service, region.ok_or("its host names no region of AWS; set `region` at the identity")?))
    }
}

/// `https://<host>/`, for hosts that are made of names that were checked.
fn https(host: &str) -> Url {
    #[expect(clippy::expect_used, reason = "regions are checked to be letters, digits and hyphens")]
    Url::parse(&format!("https://{host}/")).expect("a host of AWS")
}

impl AwsIdentity {
    fn new(core: Core) -> Self {
        let exchanges = core.exchanges.clone().of(&core.describe());
        let core = Core { exchanges, ..core };
        let credentials = Arc::new(Kept::new(&core.exchanges.clock));
        let logins = Logins::new(&core.exchanges.clock);
        Self { logins, core: Arc::new(core), credentials, roles: Mutex::default() }
    }

    async fn credentials(&self, afresh: bool, deadline: Instant) -> Result<Arc<AwsCredentials>, BackendError> {
        credentials(&self.core, &self.credentials, afresh, deadline).await
    }
}

/// The credentials in `kept`, or new ones of `core`.
async fn credentials(
    core: &Arc<Core>,
    kept: &Kept<AwsCredentials>,
    afresh: bool,
    deadline: Instant,
) -> Result<Arc<AwsCredentials>, BackendError> {
    let issue = |until| {
        let core = Arc::clone(core);
        async move { core.issue(until).await }
    };
    kept.get(afresh, deadline, issue).await
}

#[async_trait]
impl Identity for AwsIdentity {
    fn describe(&self) -> String {
        self.core.describe()
    }

    fn cloud(&self) -> &'static str {
        "AWS"
    }

    fn covers(&self, name: &str) -> bool {
        covers(name)
    }

    fn to_read(&self) -> Option<&'static str> {
        Some(
            "the role's policy, and for another account's repository its own policy too, must allow `ecr:BatchGetImage` and \
             `ecr:GetDownloadUrlForLayer` on the repository, and `ecr:ListImages` for lists of tags",
        )
    }

    fn check_url(&self, url: &Url) -> Result<(), String> {
        self.core.scope(url).map(drop)
    }

    async fn authorize(&self, call: Call, afresh: bool) -> Result<Call, BackendError> {
        let (service, region) = self.core.scope(&call.url).map_err(BackendError::invalid_input)?;
        let credentials = self.credentials(afresh, call.deadline).await?;
        let scope = Scope { service: &service, region: &region };
        sign(call, &credentials, scope, self.core.exchanges.clock.now())
    }

    fn is_ended(&self, reply: &Reply) -> bool {
        let says = |code: &&str| reply.body.windows(code.len()).any(|part| part == code.as_bytes());
        reply.status.as_u16() == 401 || matches!(reply.status.as_u16(), 400 | 403) && ENDED.iter().any(says)
    }

    async fn log_in(&self, place: LoginPlace<'_>, afresh: bool, deadline: Instant) -> Result<Login, BackendError> {
        let api = self.core.ecr_api(place)?;
        let key = format!("{} {} {}", api.url, api.region, api.is_public);
        let own = (Arc::clone(&self.core), Arc::clone(&self.credentials));
        let credential = move |afresh, until| {
            let (core, kept) = own.clone();
            async move { credentials(&core, &kept, afresh, until).await }
        };
        let core = Arc::clone(&self.core);
        let issue = move |credentials: Arc<AwsCredentials>, until| {
            let (api, core) = (api.clone(), Arc::clone(&core));
            async move { api.log_in(&core.exchanges, &credentials, until).await }
        };
        self.logins.get(key, (afresh, deadline), credential, issue).await
    }

    async fn log_in_to_cluster(
        &self,
        cluster: ClusterLogin<'_>,
        afresh: bool,
        deadline: Instant,
    ) -> Result<Secret, BackendError> {
        self.cluster_token(cluster, afresh, deadline).await
    }

    async fn who(&self, deadline: Instant) -> Result<String, BackendError> {
        let credentials = self.credentials(false, deadline).await?;
        self.core.sts.caller(&self.core.exchanges, &credentials, deadline).await
    }

    fn account(&self) -> Arc<str> {
        Arc::clone(&self.core.exchanges.account)
    }

    fn secrets(&self) -> Secrets {
        let roles: Vec<_> = self.roles.lock().values().filter_map(|kept| kept.current()).collect();
        let all = self.credentials.current().into_iter().chain(roles);
        all.flat_map(|each| [Some(each.secret_key.clone()), each.session_token.clone()]).flatten().collect()
    }
}

impl fmt::Debug for AwsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

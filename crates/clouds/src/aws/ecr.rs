//! Logins at ECR: the password that `GetAuthorizationToken` issues for 12 hours.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::HeaderValue;
use reqwest::Url;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    AwsCredentials, Core,
    endpoint::{self, EcrHost, Variant},
    https,
    sign::{Scope, sign},
};
use crate::{
    exchange::{Exchanges, Refusal, life, post},
    kept::Issued,
};
use domain::{error::BackendError, secret::Secret};
use outbound::{Login, LoginPlace, Reply};

/// The region of ECR Public's API.
pub(crate) const PUBLIC_REGION: &str = "us-east-1";

/// The API that issues passwords for a registry.
#[derive(Debug, Clone)]
pub(crate) struct EcrApi {
    /// Its URL.
    pub url: Url,
    /// The region that signatures name.
    pub region: String,
    /// Whether it is that of ECR Public.
    pub is_public: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenReply {
    authorization_data: OneOrMany,
}

/// ECR has a list, of which the first counts. ECR Public has one.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    Many(Vec<AuthorizationData>),
    One(AuthorizationData),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthorizationData {
    authorization_token: Secret,
    expires_at: serde_json::Number,
}

impl Core {
    /// The API that issues passwords for the registry at `place`.
    pub(crate) fn ecr_api(&self, place: LoginPlace<'_>) -> Result<EcrApi, BackendError> {
        let of_base = place.base.host_str().and_then(EcrHost::read);
        match EcrHost::read(place.name).or(of_base) {
            Some(EcrHost::Public) => {
                let usual = || https(&format!("api.ecr-public.{PUBLIC_REGION}.amazonaws.com"));
                let url = self.ecr_public.clone().unwrap_or_else(usual);
                Ok(EcrApi { url, region: PUBLIC_REGION.to_owned(), is_public: true })
            }
            Some(EcrHost::Private(region, variant)) => {
                let fips = variant.fips || self.variant.fips;
                let dual_stack = variant.dual_stack || self.variant.dual_stack;
                Ok(self.private_api(region, Variant { fips, dual_stack }))
            }
            None => {
                let why = "its host names no region of AWS, and the identity has none: set `region`";
                let region = self.region.clone().ok_or_else(|| BackendError::invalid_input(why))?;
                Ok(self.private_api(region, self.variant))
            }
        }
    }

    fn private_api(&self, region: String, variant: Variant) -> EcrApi {
        let url = self.ecr.clone().unwrap_or_else(|| https(&endpoint::ecr(&region, variant)));
        EcrApi { url, region, is_public: false }
    }
}

impl EcrApi {
    /// A login for the registry, by `credentials`.
    ///
    /// # Errors
    /// When AWS issues none.
    pub(crate) async fn log_in(
        &self,
        exchanges: &Exchanges,
        credentials: &AwsCredentials,
        deadline: Instant,
    ) -> Result<Issued<Login>, BackendError> {
        let (step, service, target) = if self.is_public {
            ("ecr-public:GetAuthorizationToken", "ecr-public", "SpencerFrontendService.GetAuthorizationToken")
        } else {
            ("ecr:GetAuthorizationToken", "ecr", "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken")
        };
        let mut call = post(self.url.clone(), "application/x-amz-json-1.1", Bytes::from_static(b"{}"), deadline);
        call.headers.insert("x-amz-target", HeaderValue::from_static(target));
        let now = exchanges.clock.now();
        let call = sign(call, credentials, Scope { service, region: &self.region }, now)?;
        let reply = exchanges.send(step, call, &[], refusal).await?;
        // No error quotes the reply, which holds the password.
        let wrong = || BackendError::invalid_output(format!("{step}: the reply holds no password as AWS documents it"));
        let read: TokenReply = serde_json::from_slice(&reply.body).map_err(|_| wrong())?;
        let data = match read.authorization_data {
            OneOrMany::One(data) => data,
            OneOrMany::Many(all) => all.into_iter().next().ok_or_else(wrong)?,
        };
        let pair =
            STANDARD.decode(data.authorization_token.expose()).ok().and_then(|pair| String::from_utf8(pair).ok());
        let pair = pair.ok_or_else(wrong)?;
        let (username, password) =
            pair.split_once(':').filter(|(_, password)| !password.is_empty()).ok_or_else(wrong)?;
        let value = Login::Password { username: username.to_owned(), password: Secret::from(password.to_owned()) };
        let ends = std::time::Duration::try_from_secs_f64(data.expires_at.as_f64().unwrap_or_default());
        let left = ends.ok().and_then(|ends| ends.checked_sub(crate::exchange::now_at(&reply, now)));
        let left =
            left.ok_or_else(|| BackendError::invalid_output(format!("{step}: its time of expiry has passed")))?;
        Ok(Issued { value, lasts: life(left) })
    }
}

/// AWS's JSON protocol names the code in `__type`, after a `#`.
fn refusal(reply: &Reply) -> Option<Refusal> {
    let body: serde_json::Value = serde_json::from_slice(&reply.body).ok()?;
    let code = body.get("__type")?.as_str()?;
    let code = code.rsplit('#').next().unwrap_or(code).to_owned();
    let message = ["message", "Message"].iter().find_map(|key| body.get(key)?.as_str()).unwrap_or_default().to_owned();
    let id = reply.headers.get("x-amzn-requestid").and_then(|id| id.to_str().ok()).map(str::to_owned);
    Some(Refusal { code, message, request_id: id })
}

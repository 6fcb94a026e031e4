//! AWS's Security Token Service: credentials of a role for a proof, and the name of who asks. Source: the STS API reference, version
//! 2011-06-15.

use reqwest::Url;
use roxmltree::Document;
use tokio::time::Instant;

use super::{
    AwsCredentials,
    sign::{Scope, sign},
};
use crate::{
    exchange::{Exchanges, Refusal, form, life_until},
    kept::Issued,
};
use domain::{error::BackendError, secret::Secret};
use outbound::{Call, Reply};

/// The version of the API.
const VERSION: (&str, &str) = ("Version", "2011-06-15");

/// STS in one region.
#[derive(Debug, Clone)]
pub(crate) struct Sts {
    /// Its URL.
    pub url: Url,
    /// The region that signatures name.
    pub region: String,
}

/// A role that is assumed with the credentials of another one.
#[derive(Debug, Clone)]
pub(crate) struct Hop {
    pub role: String,
    pub external_id: Option<String>,
}

impl Sts {
    /// Credentials of `role` for the web identity `token`.
    ///
    /// # Errors
    /// When STS issues none.
    pub(crate) async fn web_identity(
        &self,
        exchanges: &Exchanges,
        role: &str,
        session: &str,
        token: &Secret,
        deadline: Instant,
    ) -> Result<Issued<AwsCredentials>, BackendError> {
        let fields = [
            ("Action", "AssumeRoleWithWebIdentity"),
            VERSION,
            ("RoleArn", role),
            ("RoleSessionName", session),
            ("WebIdentityToken", token.expose()),
        ];
        let step = format!("AssumeRoleWithWebIdentity of {role}");
        let call = form(self.url.clone(), &fields, deadline);
        let reply = exchanges.send(&step, xml(call), std::slice::from_ref(token), refusal).await?;
        issued(exchanges, &reply).map_err(|error| error.within(step))
    }

    /// Credentials of the role of `hop`, for those of another role or user.
    ///
    /// # Errors
    /// When STS issues none.
    pub(crate) async fn assume_role(
        &self,
        exchanges: &Exchanges,
        with: &AwsCredentials,
        hop: &Hop,
        session: &str,
        deadline: Instant,
    ) -> Result<Issued<AwsCredentials>, BackendError> {
        let mut fields = vec![("Action", "AssumeRole"), VERSION, ("RoleArn", &*hop.role), ("RoleSessionName", session)];
        fields.extend(hop.external_id.as_deref().map(|id| ("ExternalId", id)));
        let step = format!("AssumeRole of {}", hop.role);
        let call = self.signed(exchanges, form(self.url.clone(), &fields, deadline), with)?;
        let reply = exchanges.send(&step, call, &[], refusal).await?;
        issued(exchanges, &reply).map_err(|error| error.within(step))
    }

    /// The ARN of who has `credentials`.
    ///
    /// # Errors
    /// When STS does not say.
    pub(crate) async fn caller(
        &self,
        exchanges: &Exchanges,
        credentials: &AwsCredentials,
        deadline: Instant,
    ) -> Result<String, BackendError> {
        let step = "GetCallerIdentity";
        let call = form(self.url.clone(), &[("Action", step), VERSION], deadline);
        let reply = exchanges.send(step, self.signed(exchanges, call, credentials)?, &[], refusal).await?;
        let found = read(&reply, |document| element(document, "Arn"));
        found.ok_or_else(|| BackendError::invalid_output(format!("{step}: the reply names no ARN")))
    }

    fn signed(&self, exchanges: &Exchanges, call: Call, with: &AwsCredentials) -> Result<Call, BackendError> {
        sign(xml(call), with, Scope { service: "sts", region: &self.region }, exchanges.clock.now())
    }
}

/// `call` for the format that the API has by its reference.
fn xml(mut call: Call) -> Call {
    call.headers.remove(http::header::ACCEPT);
    call
}

/// The credentials in a reply. No error quotes it.
fn issued(exchanges: &Exchanges, reply: &Reply) -> Result<Issued<AwsCredentials>, BackendError> {
    let found = read(reply, |document| {
        let [key_id, secret, token, ends] =
            ["AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"].map(|name| element(document, name));
        let keys = AwsCredentials {
            key_id: key_id?,
            secret_key: Secret::from(secret?),
            session_token: Some(Secret::from(token?)),
        };
        Some((keys, ends?))
    });
    let wrong = || BackendError::invalid_output("the reply holds no credentials as AWS documents them");
    let (value, ends) = found.ok_or_else(wrong)?;
    Ok(Issued { value, lasts: life_until(&ends, reply, exchanges.clock.now())? })
}

fn refusal(reply: &Reply) -> Option<Refusal> {
    read(reply, |document| {
        let code = element(document, "Code")?;
        let message = element(document, "Message").unwrap_or_default();
        let request_id = element(document, "RequestId").or_else(|| element(document, "RequestID"));
        Some(Refusal { code, message, request_id })
    })
}

fn read<T>(reply: &Reply, look: impl FnOnce(&Document<'_>) -> Option<T>) -> Option<T> {
    look(&Document::parse(std::str::from_utf8(&reply.body).ok()?).ok()?)
}

/// The text of the first element called `name`.
fn element(document: &Document<'_>, name: &str) -> Option<String> {
    let found = document.descendants().find(|node| node.tag_name().name() == name)?;
    found.text().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

//! Any CI with a JSON API: a request made of templates, and a CEL expression that reads its answer.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    CiState, CiVerdict, Gate, GateQuery, SystemConfig,
    memory::{RequestKey, System},
    remembered,
};
use crate::{
    Building, ITEM,
    credential::{self, Credential},
    digests::commit::Commit,
    judging,
    mapping::{self, Inputs},
    request::{Method, Parts, Request, headers_of},
};
use domain::{
    document::{self, exact},
    error::BackendError,
    generator::{Evidence, Parameters},
    secret::HeaderText,
    units::HumanDuration,
};
use lang::{
    evaluator::{Evaluator, Variables},
    expression::Expression,
    template::Template,
};
use outbound::{Call, ClientCertificate, HttpClient, Reply, TlsKeys};
use source::{Load, work_on};

/// The largest answer that is read, in bytes.
const MAX_REPLY_BYTES: usize = 8 * 1024 * 1024;

/// A request, and the expression that reads its answer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "HttpGate")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The method. A call may be repeated at any time, so it must change nothing.
    #[serde(default)]
    pub method: Method,
    /// The URL, a template over `params` and `applicationSet`. Scheme and host are written out; values are percent-encoded.
    pub url: String,
    /// The hosts that may be called if a value is part of the URL's host, as for `http` backends.
    #[serde(default)]
    pub allowed_hosts: Vec<String>,
    /// Headers. A value is a template, or a secret reference, which may have a `prefix`.
    #[serde(default)]
    pub headers: BTreeMap<String, HeaderText>,
    /// The credential, sent as `Authorization`: one kind, as for `http` backends.
    pub(crate) credential: Option<credential::Config>,
    /// The body, sent as JSON. Strings in it are templates.
    #[serde(default)]
    #[serde(deserialize_with = "exact::read")]
    pub body: Option<Value>,
    /// The full commit in request, a template. Without it the verdict is bound to no commit.
    #[serde(default)]
    pub sha: Option<String>,
    /// A CEL expression over `params`, `status`, `headers`, `body` and, below `each`, `item` that gives `"passed"`, `"pending"` or `"failed"`.
    /// `body` is null when the answer is not JSON. It sees 200 and 201, and if it looks at `status` also the 4xx that may
    /// be about the commit, such as 404. All other answers are errors: redirects, other 2xx, 401, 403, 407, 408, 429 and 5xx.
    pub verdict: String,
    /// Give the verdict also a 200 or 201 with a non-empty `error` or `errors` at its top. Otherwise such an answer is an error.
    /// For an API where these keys mean something else.
    #[serde(default)]
    pub(crate) allow_errors: bool,
    /// How long the whole exchange may take.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// A PEM file with certificates that are trusted besides the system's, relative to the configuration file.
    pub ca: Option<PathBuf>,
    /// A client certificate. Its files are read again every 30 s.
    pub client_certificate: Option<ClientCertificate>,
    /// Accept any certificate. Anybody on the network path can then read the credential and fake the answer.
    #[serde(default)]
    pub insecure_skip_verify: bool,
}

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

impl SystemConfig for Config {
    const ACCESS_KEYS: &'static [&'static str] = &["timeout", "credential", "ca", "clientCertificate"];

    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Gate>> {
        Some(remembered(Generic::build(self, building)?, building.context.clock))
    }

    fn names_commit(&self) -> bool {
        self.sha.is_some()
    }
}

/// The gate, with everything parsed.
#[derive(Debug)]
pub struct Generic {
    client: Arc<HttpClient>,
    request: Request,
    credential: Option<Credential>,
    sha: Option<Template>,
    reading: Arc<Reading>,
    timeout: HumanDuration,
    evaluator: Evaluator,
}

/// The rules for reading an answer.
#[derive(Debug)]
struct Reading {
    verdict: Arc<Expression>,
    allows_errors: bool,
}

impl Generic {
    /// Parses all templates and the expression.
    pub fn build(config: &Config, building: &mut Building<'_>) -> Option<Self> {
        let context = building.context;
        let parts = Parts {
            method: config.method,
            url: &config.url,
            allowed_hosts: &config.allowed_hosts,
            headers: &config.headers,
            body: config.body.as_ref(),
            scope: context.scope,
        };
        let request = Request::build(parts, context.base, &building.path, building.problems);
        building.note_reads(request.as_ref().is_some_and(Request::reads_application_set));
        let sha = config.sha.as_deref().map(|sha| building.key("sha").template(sha));
        let scope = context.scope.only(&["params", ITEM]).with_all(&["body", "status", "headers"]);
        let Building { path, problems, .. } = building;
        let verdict = Expression::build(&config.verdict, &scope, &path.key("verdict"), problems);
        problems.check_not_zero(&path.key("timeout"), config.timeout.0);
        let keys = TlsKeys {
            ca: config.ca.as_ref(),
            client_certificate: config.client_certificate.as_ref(),
            insecure_skip_verify: config.insecure_skip_verify,
        };
        let client = keys.client(config.url.starts_with("http://"), context.outbound, &mut building.section());
        let fixed = request.as_ref().and_then(Request::fixed_destination);
        let mut at = building.key("credential");
        let credential = config.credential.as_ref();
        let credential = credential.map(|config| Credential::build(config, client.as_ref(), fixed.as_ref(), &mut at));
        if credential.is_some() && config.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
            at.error_with_help("it is sent as `Authorization`, which stands among `headers` too", "keep one of them");
        }
        // `None` in the outer option: the key is not set. `None` in the inner option: the value is wrong, and the problem is noted.
        let credential = match credential {
            Some(credential) => Some(credential?),
            None => None,
        };
        let sha = match sha {
            Some(sha) => Some(sha?),
            None => None,
        };
        let reading = Arc::new(Reading { verdict: Arc::new(verdict?.0), allows_errors: config.allow_errors });
        let request = request?;
        request.warn_of_cleartext(config.credential.is_some(), &building.path, building.problems);
        context.outbound.name_destination(fixed.as_ref());
        Some(Self {
            client: client?,
            request,
            credential,
            sha,
            reading,
            timeout: config.timeout,
            evaluator: context.evaluator.clone(),
        })
    }
}

/// One request, with the values that its verdict needs.
#[derive(Debug)]
pub struct GenericRequest {
    commit: Option<Commit>,
    call: Call,
    inputs: VerdictInputs,
}

/// What the verdict knows beside the answer.
#[derive(Debug)]
struct VerdictInputs {
    /// Empty if the verdict does not use `params`.
    parameters: Arc<Parameters>,
    /// The list's item below `each`, if the verdict uses it.
    item: Option<Arc<Value>>,
}

#[async_trait]
impl System for Generic {
    type Request = GenericRequest;

    async fn request(&self, query: GateQuery<'_>) -> Result<GenericRequest, BackendError> {
        let commit = match &self.sha {
            Some(sha) => Some(Commit::render(sha, query.context).await.map_err(|error| error.within("sha"))?),
            None => None,
        };
        let mut call = self.request.call(query.context, MAX_REPLY_BYTES, query.deadline).await?;
        call.revalidate = call.method == http::Method::GET;
        let verdict = &self.reading.verdict;
        let inputs = VerdictInputs {
            parameters: if verdict.mentions("params") { Arc::clone(query.parameters) } else { Arc::default() },
            item: query.item.filter(|_| verdict.mentions(ITEM)).cloned(),
        };
        Ok(GenericRequest { commit, call, inputs })
    }

    fn write_key(GenericRequest { commit, call, inputs }: &GenericRequest, key: &mut RequestKey) {
        key.add_optional(commit.as_ref().map(Commit::as_str));
        key.add(call.method.as_str());
        key.add(call.url.as_str());
        key.add(call.headers.len().to_be_bytes());
        for (name, value) in &call.headers {
            key.add(name);
            // A renewed secret makes no other request.
            key.add_optional((!value.is_sensitive()).then_some(value));
        }
        key.add_optional(call.body.as_ref());
        key.add_optional(inputs.item.as_ref().map(ToString::to_string));
        let parameters: BTreeMap<&String, &Value> = inputs.parameters.iter().collect();
        for (name, value) in parameters {
            key.add(name);
            key.add(value.to_string());
        }
    }

    async fn check(&self, request: &GenericRequest, deadline: Instant) -> Result<CiVerdict, BackendError> {
        let deadline = deadline.min(Instant::now() + self.timeout.0);
        let destination = request.call.to_string();
        let call = Call { deadline, ..request.call.clone() };
        let reply = match &self.credential {
            Some(credential) => credential.send(&self.client, call).await?,
            None => self.client.fetch(call).await?,
        };
        let (status, secrets) = (reply.status, reply.secrets.clone());
        let state = self.read(reply, &request.inputs, deadline).await;
        let state = state.map_err(|error| secrets.clean(&error).within(&destination))?;
        let answered = format!("{status}, the verdict is {}", state.as_str());
        let evidence = vec![match state {
            CiState::Passed => Evidence::present(destination, answered),
            CiState::Pending | CiState::Failed => Evidence::absent(destination, answered),
        }];
        Ok(CiVerdict {
            state,
            commit: request.commit.clone(),
            is_earlier: false,
            evidence,
            run_url: None,
            built_at: None,
        })
    }

    fn is_low(&self, GenericRequest { call, .. }: &GenericRequest) -> bool {
        let account = self.credential.as_ref().map_or_else(|| Some(call.account()), Credential::account);
        account.is_some_and(|account| self.client.is_low(&call.url, &account))
    }
}

impl Generic {
    async fn read(&self, reply: Reply, inputs: &VerdictInputs, deadline: Instant) -> Result<CiState, BackendError> {
        self.reading.check_status(&reply)?;
        let load = Load::Bytes(reply.body.len());
        let reading = Arc::clone(&self.reading);
        let (is_json, reply) = work_on(load, move || Ok((reading.check(&reply)?, reply))).await?;
        let body = if is_json { reply.body.clone() } else { Bytes::from_static(b"null") };
        let verdict = &self.reading.verdict;
        let mut variables = Variables::default().json("body", body);
        variables = variables.value("status", Value::from(reply.status.as_u16()));
        if verdict.mentions("headers") {
            variables = variables.value("headers", Value::from(headers_of(&reply)));
        }
        variables = variables.value("params", Value::Object((*inputs.parameters).clone()));
        if let Some(item) = &inputs.item {
            variables = variables.value(ITEM, Arc::clone(item));
        }
        let invalid = |why: String| BackendError::invalid_output(format!("verdict: {why}"));
        let verdict = mapping::evaluate(&self.evaluator, verdict, Inputs { variables, load }, deadline, invalid);
        state_of(verdict.await?, &reply)
    }
}

impl Reading {
    /// Refuses a status that is not about a commit.
    fn check_status(&self, reply: &Reply) -> Result<(), BackendError> {
        judging::check_status(reply, self.verdict.mentions("status")).map_err(|error| {
            if !judging::is_judged(reply.status.as_u16().into()) {
                return error;
            }
            let message = format!("{}; if this is about the commit, let `verdict` look at `status`", error.message);
            BackendError { message, ..error }
        })
    }

    /// Refuses half a document, and one that reports an error. Returns whether the answer is JSON.
    fn check(&self, reply: &Reply) -> Result<bool, BackendError> {
        let invalid = |why: String| BackendError::invalid_output(format!("verdict: {why}"));
        let body = match document::read(&reply.body) {
            Ok(body) => body,
            // Half a JSON document is an error.
            Err(why) if reply.status.is_success() && reply.check_json().is_ok() => {
                return Err(invalid(format!("not one JSON document: {why}")));
            }
            // An answer that is not JSON leaves the verdict a null body.
            Err(_) => return Ok(false),
        };
        if reply.status.is_success()
            && !self.allows_errors
            && let Some((key, value)) = document::reported_error(&body)
        {
            let value = reply.secrets.excerpt(Value::from(value.clone()).to_string().as_bytes(), 200);
            let advice = "if that is not an error of this API, set `allowErrors: true`";
            return Err(invalid(format!("the answer holds `{key}` ({value}), so it may be incomplete; {advice}")));
        }
        Ok(true)
    }
}

fn state_of(verdict: Value, reply: &Reply) -> Result<CiState, BackendError> {
    let invalid = |why: String| BackendError::invalid_output(format!("verdict: {why}"));
    match verdict {
        Value::String(word) if word == "passed" => Ok(CiState::Passed),
        Value::String(word) if word == "pending" => Ok(CiState::Pending),
        Value::String(word) if word == "failed" => Ok(CiState::Failed),
        other => {
            let shown = reply.secrets.excerpt(other.to_string().as_bytes(), 80);
            Err(invalid(format!("it gives `{shown}`, not `passed`, `pending` or `failed`")))
        }
    }
}

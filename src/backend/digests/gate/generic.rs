//! Any CI with a JSON API: a request made of templates, and a CEL expression that reads its answer.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Gate, GateQuery, Ruling, RulingState, SystemConfig,
    memory::{RequestKey, System},
    remembered,
};
use crate::{
    backend::{
        BuildContext,
        digests::commit::Commit,
        mapping::{self, Load},
        request::{Method, Parts, Request, headers_of},
    },
    clients::outbound::{Call, ClientCertificate, HttpClient, Reply, TlsKeys},
    domain::{
        document,
        error::BackendError,
        generator::{Evidence, Parameters},
        problem::{Path, Problems},
        secret::TextOrSecret,
        units::HumanDuration,
    },
    lang::{
        evaluator::{Evaluator, Variables},
        expression::Expression,
        template::{INPUT_SCOPE, Template, ValueContext},
    },
};

/// The largest answer that is read, in bytes.
const MAX_REPLY_BYTES: usize = 8 * 1024 * 1024;

/// A request, and how to read its answer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "HttpGate")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The method. A call may be repeated at any time, so it must change nothing.
    #[serde(default)]
    pub(crate) method: Method,
    /// The URL, a template over `params` and `applicationSet`. Scheme and host stand in it as they are; values are
    /// percent-encoded.
    pub(crate) url: String,
    /// The hosts that may be asked where a value is part of the URL's host, as for `http` backends.
    #[serde(default)]
    pub(crate) allowed_hosts: Vec<String>,
    /// Headers. A value is a template, or a secret reference.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, TextOrSecret>,
    /// The body, sent as JSON. Strings in it are templates.
    #[serde(default)]
    pub(crate) body: Option<Value>,
    /// The full commit that is asked about, a template. Without it, what passed is not bound to a commit.
    #[serde(default)]
    pub(crate) sha: Option<String>,
    /// A CEL expression over `params`, `status`, `headers` and `body` that gives `"passed"`, `"pending"` or `"failed"`.
    /// `body` is null when the answer is not JSON. It sees 200 and 201, and if it looks at `status` also the 4xx that may
    /// speak of the commit, such as 404. All other answers are errors: redirects, other 2xx, 401, 403, 407, 408, 429 and 5xx.
    pub(crate) verdict: String,
    /// Show the verdict a 200 or 201 that holds a non-empty `error` or `errors` at its top, which else is an error. For an API
    /// where these keys mean something else.
    #[serde(default)]
    pub(crate) allow_errors: bool,
    /// How long the whole exchange may take.
    #[serde(default = "default_timeout")]
    pub(crate) timeout: HumanDuration,
    /// A PEM file with certificates that are trusted besides the system's, relative to the configuration file.
    pub(crate) ca: Option<PathBuf>,
    /// A certificate that shows who we are. Its files are read again every 30 s.
    pub(crate) client_certificate: Option<ClientCertificate>,
    /// Believe any certificate. Whoever is in between can then read the credential and decide what is answered.
    #[serde(default)]
    pub(crate) insecure_skip_verify: bool,
}

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

impl SystemConfig for Config {
    const ACCESS_KEYS: &'static [&'static str] = &["timeout", "ca", "clientCertificate"];

    fn build(&self, context: BuildContext<'_>, path: &Path, problems: &mut Problems) -> Option<Arc<dyn Gate>> {
        Some(remembered(Generic::build(self, context, path, problems)?, context))
    }

    fn knows_commit(&self) -> bool {
        self.sha.is_some()
    }
}

/// The gate, with everything parsed.
#[derive(Debug)]
pub(crate) struct Generic {
    line: Arc<HttpClient>,
    request: Request,
    sha: Option<Template>,
    reading: Arc<Reading>,
    timeout: HumanDuration,
    evaluator: Evaluator,
}

/// How an answer is read.
#[derive(Debug)]
struct Reading {
    verdict: Arc<Expression>,
    allows_errors: bool,
}

impl Generic {
    /// Parses all templates and the expression.
    pub(crate) fn build(
        config: &Config,
        context: BuildContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        let parts = Parts {
            method: config.method,
            url: &config.url,
            allowed_hosts: &config.allowed_hosts,
            headers: &config.headers,
            body: config.body.as_ref(),
            scope: INPUT_SCOPE,
        };
        let request = Request::build(parts, context.base, path, problems);
        let sha = config
            .sha
            .as_deref()
            .map(|sha| problems.note(&path.key("sha"), Template::parse(sha, ValueContext::Text, INPUT_SCOPE)));
        let verdict = problems.note(&path.key("verdict"), Expression::compile(&config.verdict));
        problems.check_not_zero(&path.key("timeout"), config.timeout.0);
        let keys = TlsKeys {
            ca: config.ca.as_ref(),
            client_certificate: config.client_certificate.as_ref(),
            insecure_skip_verify: config.insecure_skip_verify,
        };
        let line = keys.line(config.url.starts_with("http://"), context.outbound, context.base, path, problems);
        let sha = match sha {
            Some(sha) => Some(sha?),
            None => None,
        };
        let reading = Arc::new(Reading { verdict: Arc::new(verdict?), allows_errors: config.allow_errors });
        let request = request?;
        context.outbound.name_destination(request.fixed_destination().as_ref());
        Some(Self { line: line?, request, sha, reading, timeout: config.timeout, evaluator: context.evaluator.clone() })
    }
}

/// A request, and what its answer is read with.
#[derive(Debug)]
pub(crate) struct GenericRequest {
    commit: Option<Commit>,
    call: Call,
    /// Nothing where the verdict does not look at them.
    parameters: Arc<Parameters>,
}

#[async_trait]
impl System for Generic {
    type Request = GenericRequest;

    async fn question(&self, asked: GateQuery<'_>) -> Result<GenericRequest, BackendError> {
        let commit = match &self.sha {
            Some(sha) => Some(Commit::render(sha, asked.context).await.map_err(|error| error.within("sha"))?),
            None => None,
        };
        let mut call = self.request.call(asked.context, MAX_REPLY_BYTES, asked.deadline).await?;
        call.revalidate = call.method == http::Method::GET;
        let parameters =
            if self.reading.verdict.mentions("params") { Arc::clone(asked.parameters) } else { Arc::default() };
        Ok(GenericRequest { commit, call, parameters })
    }

    fn write_key(GenericRequest { commit, call, parameters }: &GenericRequest, key: &mut RequestKey) {
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
        let parameters: BTreeMap<&String, &Value> = parameters.iter().collect();
        for (name, value) in parameters {
            key.add(name);
            key.add(value.to_string());
        }
    }

    async fn rule(&self, question: &GenericRequest, deadline: Instant) -> Result<Ruling, BackendError> {
        let deadline = deadline.min(Instant::now() + self.timeout.0);
        let destination = question.call.to_string();
        let reply = self.line.fetch(Call { deadline, ..question.call.clone() }).await?;
        let (status, secrets) = (reply.status, reply.secrets.clone());
        let state = self.read(reply, &question.parameters, deadline).await;
        let state = state.map_err(|error| secrets.clean(&error).within(&destination))?;
        let answered = format!("{status}, which the verdict takes as {}", state.as_str());
        let evidence = vec![match state {
            RulingState::Passed => Evidence::present(destination, answered),
            RulingState::Pending | RulingState::Failed => Evidence::absent(destination, answered),
        }];
        Ok(Ruling {
            state,
            commit: question.commit.clone(),
            is_earlier: false,
            evidence,
            run_url: None,
            built_at: None,
        })
    }

    fn is_low(&self, GenericRequest { call, .. }: &GenericRequest) -> bool {
        self.line.is_low(&call.url, &call.account())
    }

    fn reads_application_set(&self) -> bool {
        self.request.reads_application_set() || self.sha.as_ref().is_some_and(Template::reads_application_set)
    }
}

impl Generic {
    async fn read(
        &self,
        reply: Reply,
        parameters: &Arc<Parameters>,
        deadline: Instant,
    ) -> Result<RulingState, BackendError> {
        self.reading.check_status(&reply)?;
        let load = Load::Bytes(reply.body.len());
        let reading = Arc::clone(&self.reading);
        let (is_json, reply) = mapping::work_on(load, move || Ok((reading.check(&reply)?, reply))).await?;
        let body = if is_json { reply.body.clone() } else { Bytes::from_static(b"null") };
        let verdict = &self.reading.verdict;
        let mut variables = Variables::default().json("body", body);
        variables = variables.value("status", Value::from(reply.status.as_u16()));
        if verdict.mentions("headers") {
            variables = variables.value("headers", Value::from(headers_of(&reply)));
        }
        variables = variables.value("params", Value::Object((**parameters).clone()));
        let invalid = |why: String| BackendError::invalid_output(format!("verdict: {why}"));
        let verdict = mapping::evaluate(&self.evaluator, verdict, variables, load, deadline, invalid);
        ruled(verdict.await?, &reply)
    }
}

impl Reading {
    /// Refuses a status that says nothing about a commit. A proxy sends 404 too, so a 4xx counts only where somebody thought
    /// of it.
    fn check_status(&self, reply: &Reply) -> Result<(), BackendError> {
        match reply.status.as_u16() {
            200..=299 => reply.check_whole(),
            401 | 403 | 407 | 408 | 429 => Err(reply.refusal()),
            400..=499 if self.verdict.mentions("status") => Ok(()),
            400..=499 => {
                let error = reply.refusal();
                let message =
                    format!("{}; if this speaks of the commit, let `verdict` look at `status`", error.message);
                Err(BackendError { message, ..error })
            }
            _ => Err(reply.refusal()),
        }
    }

    /// Refuses a document that may be half of one, or an error; whether there is a document.
    fn check(&self, reply: &Reply) -> Result<bool, BackendError> {
        let invalid = |why: String| BackendError::invalid_output(format!("verdict: {why}"));
        let body = match document::read(&reply.body) {
            Ok(body) => body,
            // Half a document is not the same as an answer without one.
            Err(why) if reply.status.is_success() && reply.check_json().is_ok() => {
                return Err(invalid(format!("not one JSON document: {why}")));
            }
            // What is no JSON is nothing to the verdict.
            Err(_) => return Ok(false),
        };
        if reply.status.is_success()
            && !self.allows_errors
            && let Some((key, told)) = document::told_error(&body)
        {
            let told = reply.secrets.excerpt(Value::from(told.clone()).to_string().as_bytes(), 200);
            let advice = "if that is no error of this API, set `allowErrors: true`";
            return Err(invalid(format!("the answer holds `{key}` ({told}), so it may be a part; {advice}")));
        }
        Ok(true)
    }
}

fn ruled(verdict: Value, reply: &Reply) -> Result<RulingState, BackendError> {
    let invalid = |why: String| BackendError::invalid_output(format!("verdict: {why}"));
    match verdict {
        Value::String(word) if word == "passed" => Ok(RulingState::Passed),
        Value::String(word) if word == "pending" => Ok(RulingState::Pending),
        Value::String(word) if word == "failed" => Ok(RulingState::Failed),
        other => {
            let shown = reply.secrets.excerpt(other.to_string().as_bytes(), 80);
            Err(invalid(format!("it gives `{shown}`, not `passed`, `pending` or `failed`")))
        }
    }
}

//! Checks replies against the contract in `openapi.yaml`.

use std::sync::{LazyLock, OnceLock};

use jsonschema::Validator;
use serde_json::{Value, json};

use super::Reply;

/// Headers of HTTP itself, which the contract does not list.
const TRANSPORT: [&str; 3] = ["content-type", "connection", "date"];

/// The listener that got the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    /// The main listener, which Argo CD calls.
    Main,
    /// The admin listener with probes and metrics.
    Admin,
    /// The listener for webhooks.
    Hooks,
}

/// `openapi.yaml`, as JSON.
pub(crate) static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("../../../openapi.yaml")).unwrap());

static CONTRACT: LazyLock<Contract> = LazyLock::new(Contract::read);

/// Panics unless the contract describes `reply` for `request`, the raw bytes that `listener` received.
#[track_caller]
pub(crate) fn conforms(listener: Listener, request: &[u8], reply: &Reply) {
    let line = String::from_utf8_lossy(request.split(|byte| *byte == b'\r').next().unwrap_or_default());
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let verdict = match template(listener, target) {
        Some(template) => check(method, template, reply),
        None => CONTRACT.not_found.check(reply),
    };
    if let Err(why) = verdict {
        panic!("{line} on the {listener:?} listener is not answered as openapi.yaml says: {why}\n{}", shown(reply));
    }
}

/// Checks the reply to `method` on the documented path `template`.
///
/// # Errors
/// The first difference from the document.
pub(crate) fn check(method: &str, template: &str, reply: &Reply) -> Result<(), String> {
    let path = CONTRACT.paths.iter().find(|path| path.template == template).ok_or("the path is not documented")?;
    let is_documented = path.responses.iter().any(|(documented, _)| documented == method);
    // An undocumented method gets the documented 405 of the other methods.
    let fits = |(documented, response): &&(String, Response)| {
        let is_refusal = response.status == 405;
        response.status == reply.status && if is_documented { documented == method && !is_refusal } else { is_refusal }
    };
    let Some((_, response)) = path.responses.iter().find(fits) else {
        return Err(format!("{} is not documented for {method} {template}", reply.status));
    };
    response.check(reply)
}

/// The documented path that matches `target`.
fn template(listener: Listener, target: &str) -> Option<&'static str> {
    let path = target.split('?').next().unwrap_or_default();
    let path = path.split_once("://").map_or(path, |(_, rest)| rest.find('/').map_or("/", |start| &rest[start..]));
    let fits = |template: &&str| {
        let (ours, theirs): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
        ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(our, their)| our.starts_with('{') || *our == their)
    };
    paths().filter(|(of, _)| *of == listener).map(|(_, template)| template).find(fits)
}

/// The documented paths.
pub(crate) fn paths() -> impl Iterator<Item = (Listener, &'static str)> {
    CONTRACT.paths.iter().map(|path| (path.listener, path.template.as_str()))
}

/// `value`, or the target of its `$ref`.
pub(crate) fn resolve(value: &'static Value) -> &'static Value {
    match value["$ref"].as_str() {
        Some(reference) => {
            let found = DOCUMENT.pointer(reference.trim_start_matches('#'));
            resolve(found.unwrap_or_else(|| panic!("openapi.yaml has no {reference}")))
        }
        None => value,
    }
}

/// A validator for a schema of the document, with all schemas that it refers to.
pub(crate) fn validator(schema: &Value) -> Validator {
    let whole = json!({"components": {"schemas": DOCUMENT["components"]["schemas"]}, "allOf": [schema]});
    jsonschema::draft202012::new(&whole).unwrap_or_else(|error| panic!("{error}: {schema}"))
}

struct Contract {
    paths: Vec<Path>,
    not_found: Response,
}

struct Path {
    listener: Listener,
    template: String,
    /// Responses, each with its method.
    responses: Vec<(String, Response)>,
}

struct Response {
    status: u16,
    headers: Vec<Header>,
    /// By media type. Without a validator, any body is valid.
    content: Vec<(String, Option<Schema>)>,
}

struct Header {
    name: String,
    is_required: bool,
    is_number: bool,
    schema: Schema,
}

/// A schema of the document. Its validator is built when a reply needs it: there are hundreds, and a test needs few.
struct Schema {
    schema: &'static Value,
    validator: OnceLock<Validator>,
}

impl Schema {
    const fn new(schema: &'static Value) -> Self {
        Self { schema, validator: OnceLock::new() }
    }

    fn validator(&self) -> &Validator {
        self.validator.get_or_init(|| validator(self.schema))
    }
}

impl Contract {
    fn read() -> Self {
        let object = |value: &'static Value| value.as_object().into_iter().flatten();
        let paths = object(&DOCUMENT["paths"]).map(|(template, item)| {
            let listener = match item.pointer("/servers/0/url").and_then(Value::as_str) {
                None => Listener::Main,
                Some("http://localhost:4357") => Listener::Hooks,
                Some(_) => Listener::Admin,
            };
            let operations = object(item).filter(|(_, operation)| operation.get("responses").is_some());
            let responses = operations.flat_map(|(method, operation)| {
                object(&operation["responses"]).map(|(status, response)| {
                    (method.to_uppercase(), Response::read(status.parse().unwrap(), response))
                })
            });
            Path { listener, template: template.clone(), responses: responses.collect() }
        });
        let not_found = &DOCUMENT["components"]["responses"]["NotFound"];
        Self { paths: paths.collect(), not_found: Response::read(404, not_found) }
    }
}

impl Response {
    fn read(status: u16, response: &'static Value) -> Self {
        let response = resolve(response);
        let object = |key: &str| response[key].as_object().into_iter().flatten();
        let headers = object("headers").map(|(name, header)| {
            let header = resolve(header);
            Header {
                name: name.to_lowercase(),
                is_required: header["required"] == true,
                is_number: header["schema"]["type"] == "integer",
                schema: Schema::new(&header["schema"]),
            }
        });
        let content = object("content").map(|(kind, media)| (kind.clone(), media.get("schema").map(Schema::new)));
        Self { status, headers: headers.collect(), content: content.collect() }
    }

    fn check(&self, reply: &Reply) -> Result<(), String> {
        if reply.status != self.status {
            return Err(format!("the status is {}, not {}", reply.status, self.status));
        }
        self.headers.iter().try_for_each(|header| header.check(reply))?;
        for (index, (name, _)) in reply.headers.iter().enumerate() {
            let is_known = TRANSPORT.contains(&name.as_str()) || self.headers.iter().any(|header| header.name == *name);
            if !is_known {
                return Err(format!("the header {name} is not documented"));
            }
            if reply.headers[..index].iter().any(|(other, _)| other == name) {
                return Err(format!("the header {name} stands twice"));
            }
        }
        self.check_body(reply)
    }

    fn check_body(&self, reply: &Reply) -> Result<(), String> {
        let kind = reply.header("content-type").ok_or("there is no Content-Type")?;
        let (_, schema) = self
            .content
            .iter()
            .find(|(documented, _)| documented == kind)
            .ok_or_else(|| format!("the Content-Type {kind} is not documented"))?;
        let Some(schema) = schema else { return Ok(()) };
        let is_json = kind == "application/json";
        let body = if is_json {
            serde_json::from_slice(&reply.body).map_err(|error| format!("the body is no JSON: {error}"))?
        } else {
            Value::String(String::from_utf8_lossy(&reply.body).into_owned())
        };
        if let Err(error) = schema.validator().validate(&body) {
            return Err(format!("the body{}: {error}", error.instance_path()));
        }
        match body.get("requestId").and_then(Value::as_str) {
            Some(id) if reply.header("x-request-id") != Some(id) => {
                Err(format!("the body's requestId `{id}` is not that of the header"))
            }
            _ => Ok(()),
        }
    }
}

impl Header {
    fn check(&self, reply: &Reply) -> Result<(), String> {
        let name = &self.name;
        let Some(text) = reply.header(name) else {
            return if self.is_required { Err(format!("the header {name} is missing")) } else { Ok(()) };
        };
        let value = match text.parse::<u64>() {
            Ok(number) if self.is_number => json!(number),
            _ => json!(text),
        };
        self.schema.validator().validate(&value).map_err(|error| format!("the header {name}: {error}"))
    }
}

fn shown(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.raw).chars().take(2000).collect()
}

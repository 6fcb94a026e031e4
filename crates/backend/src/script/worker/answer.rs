//! Reads the line that a worker answers.

use serde_json::{Map, Value};

use crate::{
    getparams::{self, has_content},
    script::protocol::{Reading, json},
};
use domain::{
    document::{self, excerpt, kind_of},
    error::BackendError,
    secret::Secrets,
};

/// How much of an error a message shows, in characters.
const SHOWN_ERROR: usize = 600;

/// The answer of a worker that keeps the protocol: a list, or why there is none.
pub(super) type WorkerAnswer = Result<Reading, BackendError>;

/// Reads the `line` that follows the request `id`.
///
/// # Errors
/// When the line does not answer that request. The worker's next lines cannot be trusted then.
pub(super) fn read(line: &[u8], id: u64, secrets: &Secrets) -> Result<WorkerAnswer, BackendError> {
    let lost = |why: String| BackendError::invalid_output(format!("lost step: {why}; stopped"));
    let document = document::parse(line).map_err(|error| {
        let shown = secrets.excerpt(line, 120);
        lost(format!(
            "its line is not one JSON document: {} (it begins with `{shown}`)",
            secrets.redact(&error.to_string())
        ))
    })?;
    let Value::Object(mut map) = document else {
        return Err(lost(format!("its line is {}, not an object with `id`", kind_of(&document))));
    };
    match map.remove("id") {
        Some(found) if found.as_u64() == Some(id) => Ok(content(map, secrets)),
        Some(found) => {
            let found = secrets.excerpt(found.to_string().as_bytes(), 40);
            Err(lost(format!("it got {id} and answered {found}")))
        }
        None => Err(lost("its line has no `id`".to_owned())),
    }
}

/// Reads the rest of an answer.
fn content(mut map: Map<String, Value>, secrets: &Secrets) -> WorkerAnswer {
    let clean = |error: BackendError| secrets.clean(&error).within("its answer");
    let mut take = |name: &str| getparams::take(&mut map, name).map_err(&clean);
    let (code, error, output) =
        (take("code")?.filter(has_content), take("error")?.filter(has_content), take("output")?);
    if code.is_some() || error.is_some() {
        let why = match error {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => "it names no reason".to_owned(),
        };
        let why = excerpt(secrets.redact(&why).as_bytes(), SHOWN_ERROR);
        return Err(match code.as_ref().map(Value::as_str) {
            None => BackendError::unavailable(why),
            Some(Some("invalid_input")) => BackendError::invalid_input(why),
            Some(Some("later")) => {
                BackendError::unavailable(format!("it has no answer now and asks for the last good answer: {why}"))
            }
            Some(_) => {
                let why = format!("{why} (its `code` is neither `invalid_input` nor `later`)");
                BackendError::invalid_output(why)
            }
        });
    }
    getparams::refuse_error(&map).map_err(&clean)?;
    let Some(output) = output else {
        return Err(clean(BackendError::invalid_output("it has neither `output` nor `error`")));
    };
    // Accept Argo CD's whole form, and the object inside it.
    let has_parameters = |map: &Map<String, Value>| map.keys().any(|key| getparams::is_named(key, "parameters"));
    let is_inner = output.as_object().is_some_and(has_parameters);
    let output = if is_inner { Map::from_iter([("output".to_owned(), output)]).into() } else { output };
    let reading = json::read(output).map_err(clean)?;
    let ttl = map.remove("cache").map(json::read_ttl).transpose().map_err(clean)?;
    Ok(Reading { ttl: ttl.or(reading.ttl), ..reading })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use domain::error::ErrorKind;

    type Found = Result<(usize, Option<Duration>), (ErrorKind, String)>;

    fn read(line: &str) -> Result<Found, String> {
        let answer = super::read(line.as_bytes(), 7, &Secrets::default()).map_err(|error| error.message)?;
        let known = answer.map(|reading| (reading.items.len(), reading.ttl));
        Ok(known.map_err(|error| (error.kind, error.message)))
    }

    #[test]
    fn lists_are_read() {
        let half = Some(Duration::from_secs(30));
        for (rest, found) in [
            (r#""output":[{"a":1},{}]"#, (2, None)),
            (r#""output":[],"error":"","code":null"#, (0, None)),
            (r#""output":{"parameters":[{}]},"cache":{"ttl":"30s"}"#, (1, half)),
            (r#""Output":{"PARAMETERS":[{}]},"errors":0"#, (1, None)),
            (r#""output":{"output":{"parameters":[]},"cache":{"ttl":"30s"}}"#, (0, half)),
        ] {
            assert_eq!(read(&format!("{{\"id\":7,{rest}}}\r")), Ok(Ok(found)), "{rest}");
        }
    }

    #[test]
    fn an_answer_without_a_list_is_an_error() {
        for (rest, kind, says) in [
            ("", ErrorKind::InvalidOutput, "neither `output` nor `error`"),
            (r#","output":null"#, ErrorKind::InvalidOutput, "found null"),
            (r#","output":{}"#, ErrorKind::InvalidOutput, "without `output.parameters`"),
            (r#","output":[1]"#, ErrorKind::InvalidOutput, "item 0 is a number"),
            (r#","output":[],"cache":{"ttl":"soon"}"#, ErrorKind::InvalidOutput, "`soon` is not a duration"),
            (r#","output":[],"error":"down\nx""#, ErrorKind::Unavailable, "down x"),
            (r#","output":[],"Error":"down""#, ErrorKind::Unavailable, "down"),
            (r#","output":[],"errors":["down"]"#, ErrorKind::InvalidOutput, "it holds `errors`: [\"down\"]"),
            (r#","output":[],"Output":[{}]"#, ErrorKind::InvalidOutput, "are one key to Argo CD"),
            (r#","output":{"parameters":[{}],"Parameters":[]}"#, ErrorKind::InvalidOutput, "are one key to Argo CD"),
            (r#","error":{"a":1}"#, ErrorKind::Unavailable, "{\"a\":1}"),
            (r#","error":"no such branch","code":"invalid_input""#, ErrorKind::InvalidInput, "no such branch"),
            (r#","output":[],"code":"later""#, ErrorKind::Unavailable, "asks for the last good answer"),
            (r#","error":"x","code":65"#, ErrorKind::InvalidOutput, "neither"),
        ] {
            let (found, message) = read(&format!("{{\"id\":7{rest}}}")).unwrap().unwrap_err();
            assert!(found == kind && message.contains(says), "{rest}: {message}");
        }
    }

    #[test]
    fn a_line_that_answers_nothing_is_an_error() {
        for (line, says) in [
            ("", "it is blank"),
            ("loading…", "begins with `loading…`"),
            ("[]", "is a list, not an object"),
            (r#"{"output":[]}"#, "has no `id`"),
            (r#"{"id":6,"output":[]}"#, "it got 7 and answered 6"),
            (r#"{"id":"7","output":[]}"#, "answered \"7\""),
            (r#"{"id":7,"output":[]}{"id":7,"output":[]}"#, "trailing"),
            (r#"{"id":7,"output":[{}],"output":[]}"#, "`output` stands twice"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}

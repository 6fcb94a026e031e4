//! The format `json`: a plain list, or an answer in Argo CD's own form.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::Reading;
use crate::{getparams, parameter_sets};
use domain::{
    document::{self, kind_of},
    error::BackendError,
    units::HumanDuration,
};

/// Reads the parameter sets of an output, and how long they are valid.
pub(crate) fn read(document: Value) -> Result<Reading, BackendError> {
    match document {
        Value::Object(mut map) => {
            getparams::refuse_error(&map)?;
            let ttl = map.remove("cache").map(read_ttl).transpose()?;
            // Argo CD ignores the case of these keys.
            let parameters = match getparams::take(&mut map, "output")? {
                Some(Value::Object(mut output)) => getparams::take(&mut output, "parameters")?,
                _ => None,
            };
            let parameters = parameters.ok_or_else(|| {
                let instead =
                    if map.is_empty() { String::new() } else { format!(" (it has {})", document::keys(&map)) };
                BackendError::invalid_output(format!(
                    "an object without `output.parameters`{instead}; write a list, or Argo CD's own form"
                ))
            })?;
            let items = parameter_sets(parameters).map_err(|error| error.within("output.parameters"))?;
            Ok(Reading { items, ttl })
        }
        Value::Array(_) => Ok(parameter_sets(document)?.into()),
        other => Err(BackendError::invalid_output(format!("expected a list of objects, found {}", kind_of(&other)))),
    }
}

/// Reads `{"ttl": "30s"}`. An unreadable `ttl` is an error, since the program meant to set one.
pub(crate) fn read_ttl(cache: Value) -> Result<Duration, BackendError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Cache {
        ttl: HumanDuration,
    }
    let cache: Cache = document::read_object(cache)
        .map_err(|error| BackendError::invalid_output(format!("cache: {error}; write {{\"ttl\": \"30s\"}}")))?;
    Ok(cache.ttl.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::protocol::Protocol;
    use domain::secret::Secrets;

    #[test]
    fn the_two_forms_of_output() {
        let read = |output| Protocol::Json.read(output, &Secrets::default());
        let lengths = |output| read(output).map(|reading| (reading.items.len(), reading.ttl)).unwrap();
        assert_eq!(lengths(b"[{\"a\":1}]"), (1, None));
        assert_eq!(lengths(br#"{"output":{"parameters":[]},"error":"","errors":[]}"#), (0, None));
        assert_eq!(lengths(br#"{"Output":{"PARAMETERS":[{}]},"error":0}"#), (1, None));
        let lasting = br#"{"output":{"parameters":[{}]},"cache":{"ttl":"1m30s"}}"#;
        assert_eq!(lengths(lasting), (1, Some(Duration::from_secs(90))));
        for (bad, says) in [
            (&b""[..], "blank"),
            (b"[1]", "item 0 is a number"),
            (b"{}", "without `output.parameters`"),
            (br#"{"parameters":[]}"#, "without `output.parameters` (it has `parameters`); write"),
            (br#"{"output":{"parameters":null}}"#, "found null"),
            (b"null", "found null"),
            (b"<html>", "begins with `<html>`"),
            (b"[] []", "trailing"),
            (br#"{"output":{"parameters":[]},"error":"x"}"#, "it holds `error`"),
            (br#"{"output":{"parameters":[]},"Errors":["x"]}"#, "it holds `Errors`"),
            (br#"{"Output":{"parameters":[]},"output":{"parameters":[{}]}}"#, "are one key to Argo CD"),
            (br#"{"output":{"parameters":[{}],"Parameters":[]}}"#, "are one key to Argo CD"),
            (br#"{"output":{"parameters":[]},"cache":{"ttl":30}}"#, "cache: "),
            (br#"{"output":{"parameters":[]},"cache":{"ttl":"soon"}}"#, "`soon` is not a duration"),
            (br#"{"output":{"parameters":[]},"cache":{"swr":"1s"}}"#, "unknown field `swr`"),
            (br#"{"output":{"parameters":[]},"cache":null}"#, "cache: expected an object"),
            (br#"{"output":{"parameters":[]},"cache":["30s"]}"#, "cache: expected an object"),
        ] {
            let error = read(bad).unwrap_err().message;
            assert!(error.contains(says), "{error}");
        }
    }
}

//! The value of a header in a configuration: a text, or a secret with a prefix.

use std::{fmt, path::PathBuf};

use http::HeaderValue;
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{NO_REFERENCE, SecretRef, literal};
use crate::{
    document::number::TOKEN,
    error::BackendError,
    file::base_dir::BaseDir,
    problem::{Path, Problems},
};

/// The value of a header: a text, or a secret.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(untagged)]
pub enum HeaderText {
    /// Text, possibly a template.
    Text(String),
    /// A secret, after its prefix.
    Secret(HeaderSecret),
}

/// A secret in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderSecret {
    /// The source of the secret.
    pub reference: SecretRef,
    /// The text before the secret, such as `Token `. It is not a secret.
    prefix: String,
}

/// A secret in a header, as it is written.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "HeaderSecret", extend("oneOf" = [{"required": ["file"]}, {"required": ["env"]}]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    /// A file with the value, relative to the configuration file. One newline at its end is removed. It is read at every use, so that a
    /// rotated Secret is picked up.
    file: Option<PathBuf>,
    /// An environment variable of the gateway.
    env: Option<String>,
    /// The text before the secret, such as `"Token "`, with its space.
    #[serde(default)]
    prefix: String,
}

impl HeaderSecret {
    /// The header, which never prints.
    ///
    /// # Errors
    /// As [`SecretRef::header`].
    pub fn header(&self, base: &BaseDir) -> Result<HeaderValue, BackendError> {
        self.reference.header(base, &self.prefix)
    }

    /// Notes at `path` if the secret cannot be read now, or no header can carry the prefix, or the prefix seems to be the secret.
    pub fn check(&self, base: &BaseDir, path: &Path, problems: &mut Problems) {
        self.reference.check(base, path, problems);
        let prefix = path.key("prefix");
        literal::check("prefix", &self.prefix, &prefix, problems);
        if HeaderValue::from_str(&self.prefix).is_err() {
            problems.error(&prefix, "it holds characters that no header can carry");
        }
    }
}

impl<'de> Deserialize<'de> for HeaderText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = HeaderText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, or a secret reference `{ file: … }` or `{ env: … }`")
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(HeaderText::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                // serde_json hands over numbers as objects with their text.
                let written = Written::deserialize(MapAccessDeserializer::new(map)).map_err(|error| {
                    if error.to_string().contains(TOKEN) { de::Error::custom(NO_REFERENCE) } else { error }
                })?;
                let reference = match (written.file, written.env) {
                    (Some(file), None) => SecretRef::File(file),
                    (None, Some(name)) => SecretRef::Env(name),
                    _ => return Err(de::Error::custom("write exactly one of `file` and `env`")),
                };
                Ok(HeaderText::Secret(HeaderSecret { reference, prefix: written.prefix }))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for HeaderSecret {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Written::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Written::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_stands_after_its_prefix() {
        let folder = tempfile::tempdir().unwrap();
        let base = BaseDir::new(folder.path());
        std::fs::write(folder.path().join("token"), "hunter22\n").unwrap();
        for (written, expected) in
            [(r#"{"file": "token"}"#, "hunter22"), (r#"{"file": "token", "prefix": "Token "}"#, "Token hunter22")]
        {
            let HeaderText::Secret(secret) = serde_json::from_str(written).unwrap() else { panic!("{written}") };
            let header = secret.header(&base).unwrap();
            assert_eq!((header.as_bytes(), header.is_sensitive()), (expected.as_bytes(), true));
        }
        let text: HeaderText = serde_json::from_str("\"a {{ b }}\"").unwrap();
        assert_eq!(text, HeaderText::Text("a {{ b }}".to_owned()));
    }

    #[test]
    fn any_other_value_is_refused() {
        let error = |text: &str| serde_json::from_str::<HeaderText>(text).unwrap_err().to_string();
        assert!(error("4711").contains("expected text, or a secret reference"), "{}", error("4711"));
        assert!(error(r#"{"prefix": "Token "}"#).contains("exactly one of `file` and `env`"));
        assert!(error(r#"{"file": "a", "env": "A"}"#).contains("exactly one of `file` and `env`"));
        assert!(error(r#"{"file": "a", "prefx": "A"}"#).contains("unknown field `prefx`"));
    }

    #[test]
    fn a_prefix_is_neither_a_secret_nor_a_line() {
        for (prefix, problem) in [
            ("Token ", None),
            ("Token \n", Some("no header can carry")),
            ("ghp_16C7e42F292c6912E7710c838347Ae178B4a ", Some("secret")),
        ] {
            let reference = SecretRef::Env("PATH".to_owned());
            let secret = HeaderSecret { reference, prefix: prefix.to_owned() };
            let mut problems = Problems::default();
            secret.check(&BaseDir::new("/"), &Path::root().key("headers"), &mut problems);
            let found: Vec<String> = problems.into_vec().into_iter().map(|problem| problem.message).collect();
            assert_eq!(found.len(), usize::from(problem.is_some()), "{prefix}: {found:?}");
            assert!(found.iter().all(|found| found.contains(problem.unwrap_or_default())), "{prefix}: {found:?}");
        }
    }
}

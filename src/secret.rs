//! Secrets: a configuration holds references to them (`file:`, `env:`), never their values, and
//! printing one prints `[redacted]`.

use std::{fmt, path::PathBuf};

use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{
    base_dir::BaseDir,
    problem::{Path, Problems},
};

/// What stands for a secret wherever text is shown.
pub const REDACTED: &str = "[redacted]";

/// Where a secret's value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SecretRef {
    /// A file with the value, relative to the configuration file; one trailing newline is trimmed.
    /// Backends read it at every use, so that a rotated Secret is picked up.
    File(PathBuf),
    /// An environment variable of the gateway.
    Env(String),
}

/// A value that may be read, never printed.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// The value itself, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// `text` with every occurrence of this secret replaced by [`REDACTED`].
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        text.replace(self.expose(), REDACTED)
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self(SecretString::from(value))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl SecretRef {
    /// Reads the value.
    ///
    /// # Errors
    /// When the file or variable cannot be read or is empty; the text names it and never its content.
    pub fn read(&self, base: &BaseDir) -> Result<Secret, String> {
        let value = match self {
            Self::File(path) => {
                let path = base.resolve(path);
                std::fs::read_to_string(&path)
                    .map_err(|error| format!("cannot read the secret file {}: {error}", path.display()))?
            }
            Self::Env(name) => std::env::var(name).map_err(|error| match error {
                std::env::VarError::NotPresent => format!("the environment variable {name} is not set"),
                std::env::VarError::NotUnicode(_) => format!("the environment variable {name} is not UTF-8"),
            })?,
        };
        let value = trim_newline(&value);
        if value.trim().is_empty() {
            return Err(format!("{self} is empty"));
        }
        Ok(Secret::from(value.to_owned()))
    }

    /// Notes a problem at `path` when the value cannot be read now.
    pub fn check(&self, base: &BaseDir, path: &Path, problems: &mut Problems) {
        problems.note(path, self.read(base));
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the secret file {}", path.display()),
            Self::Env(name) => write!(f, "the environment variable {name}"),
        }
    }
}

/// `value` without one trailing newline, as editors and `kubectl create secret` leave it.
fn trim_newline(value: &str) -> &str {
    let value = value.strip_suffix('\n').unwrap_or(value);
    value.strip_suffix('\r').unwrap_or(value)
}

/// A value written as text, or a reference to a secret.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(untagged)]
pub enum TextOrSecret {
    /// Text, possibly a template.
    Text(String),
    /// A secret's source.
    Secret(SecretRef),
}

impl<'de> Deserialize<'de> for TextOrSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = TextOrSecret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, or a secret reference `{ file: … }` or `{ env: … }`")
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOrSecret::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                SecretRef::deserialize(MapAccessDeserializer::new(map)).map(TextOrSecret::Secret)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints() {
        let secret = Secret::from("hunter2".to_owned());
        assert_eq!(format!("{secret:?}"), REDACTED);
        assert_eq!(secret.redact("the password is hunter2."), "the password is [redacted].");
    }

    #[test]
    fn one_trailing_newline_is_trimmed() {
        assert_eq!(trim_newline("a\n\n"), "a\n");
        assert_eq!(trim_newline("a\r\n"), "a");
    }

    #[test]
    fn a_blank_or_missing_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let base = BaseDir::new(dir.path());
        let file = SecretRef::File("token".into());
        assert!(file.read(&base).unwrap_err().contains("token"));
        std::fs::write(dir.path().join("token"), " \n").unwrap();
        assert!(file.read(&base).unwrap_err().contains("is empty"));
        std::fs::write(dir.path().join("token"), "x\n").unwrap();
        assert_eq!(file.read(&base).unwrap().expose(), "x");
    }
}

//! Secrets. A configuration holds references to them (`file:`, `env:`), never their values. A secret prints as `[redacted]`.

mod encoded;
pub mod forms;
mod header;
pub mod literal;
pub mod names;
mod pairs;
mod place;
mod redaction;
mod urls;
mod views;
pub mod walk;

use std::{fmt, path::PathBuf};

use http::HeaderValue;
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use zeroize::Zeroizing;

use self::redaction::{SHORTEST, is_too_short};
pub use self::{
    header::{HeaderSecret, HeaderText},
    redaction::Secrets,
};
use crate::{
    document::number::TOKEN,
    error::{BackendError, ErrorKind},
    file::{self, FileError, base_dir::BaseDir},
    problem::{Path, Problems},
};

/// Replaces a secret in any text.
pub const REDACTED: &str = "[redacted]";
/// [`REDACTED`] in a URL.
pub const REDACTED_IN_URL: &str = "%5Bredacted%5D";

/// The source of a secret's value.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SecretRef {
    /// A file with the value, relative to the configuration file. One newline at its end is removed. Backends read the file at
    /// every use, so that a rotated Secret is picked up.
    File(PathBuf),
    /// An environment variable of the gateway.
    Env(String),
}

impl SecretRef {
    /// The file with the value, if it is in a file.
    #[must_use]
    pub fn file(&self, base: &BaseDir) -> Option<PathBuf> {
        if let Self::File(file) = self { Some(base.resolve(file)) } else { None }
    }
}

/// A secret value. It never prints, and is zeroed when dropped.
#[derive(Clone, Deserialize)]
pub struct Secret(SecretString);

impl Secret {
    /// The value itself, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
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

/// The value of every secret in a configuration that never meets its sources.
pub const PLACEHOLDER: &str = "stand-in-for-a-secret";

/// Why the value of a secret cannot be read. It names the file or variable, never a part of the value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("cannot read the secret file {}: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        #[source]
        cause: FileError,
    },
    /// The environment variable of this name is not set.
    #[error("the environment variable {0} is not set")]
    NotSet(String),
    /// The environment variable of this name is not text. Without a cause: that of the standard library holds the value.
    #[error("the environment variable {0} is not UTF-8")]
    NotUtf8(String),
    /// It is blank.
    #[error("{0} is empty")]
    Empty(SecretRef),
}

impl From<SecretError> for String {
    fn from(error: SecretError) -> Self {
        error.to_string()
    }
}

impl SecretRef {
    /// Reads the value. Offline, it is [`PLACEHOLDER`].
    ///
    /// # Errors
    /// When the file or variable cannot be read or is empty. The text names it, but not its content.
    pub fn read(&self, base: &BaseDir) -> Result<Secret, SecretError> {
        if base.is_offline() {
            return Ok(Secret::from(PLACEHOLDER.to_owned()));
        }
        let value = match self {
            Self::File(path) => {
                let path = base.resolve(path);
                file::secret(&path).map_err(|cause| SecretError::File { path, cause })?
            }
            Self::Env(name) => std::env::var(name).map(Zeroizing::new).map_err(|error| match error {
                std::env::VarError::NotPresent => SecretError::NotSet(name.clone()),
                std::env::VarError::NotUnicode(_) => SecretError::NotUtf8(name.clone()),
            })?,
        };
        let value = trim_newline(&value);
        if value.trim().is_empty() {
            return Err(SecretError::Empty(self.clone()));
        }
        Ok(Secret::from(value.to_owned()))
    }

    /// The value after `scheme`, as a header that never prints.
    ///
    /// # Errors
    /// When it cannot be read, or no header can carry it. The text names it, but not its content.
    pub fn header(&self, base: &BaseDir, scheme: &str) -> Result<HeaderValue, BackendError> {
        let secret = self.read(base).map_err(BackendError::unavailable)?;
        let mut value = HeaderValue::try_from(format!("{scheme}{}", secret.expose())).map_err(|_| {
            BackendError::new(ErrorKind::Denied, format!("{self} holds characters that no header can carry"))
        })?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Notes a problem at `path` if the value cannot be read now, or is too short to be redacted.
    pub fn check(&self, base: &BaseDir, path: &Path, problems: &mut Problems) {
        let read = problems.note_secret(path, self.read(base));
        if read.is_some_and(|secret| is_too_short(secret.expose())) {
            let message = format!(
                "{self} has fewer than {SHORTEST} characters: it is not taken out of messages and logs, since a text that short is \
                 everywhere"
            );
            problems.warning(path, message, "use a longer secret");
        }
    }
}

/// The error for a value in place of a reference. The value may be the secret itself, so the error does not repeat it.
const NO_REFERENCE: &str = "write a reference to the secret, not the secret itself: `{ file: … }` or `{ env: … }`";

impl<'de> Deserialize<'de> for SecretRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        enum Written {
            File(PathBuf),
            Env(String),
        }

        struct Reference;

        impl<'de> Visitor<'de> for Reference {
            type Value = SecretRef;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a secret reference `{ file: … }` or `{ env: … }`")
            }

            fn visit_str<E: de::Error>(self, _: &str) -> Result<Self::Value, E> {
                Err(E::custom(NO_REFERENCE))
            }

            fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self::Value, E> {
                Err(E::custom(NO_REFERENCE))
            }

            fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self::Value, E> {
                Err(E::custom(NO_REFERENCE))
            }

            fn visit_u64<E: de::Error>(self, _: u64) -> Result<Self::Value, E> {
                Err(E::custom(NO_REFERENCE))
            }

            fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self::Value, E> {
                Err(E::custom(NO_REFERENCE))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                // serde_json hands over numbers as objects with their text.
                let written = Written::deserialize(MapAccessDeserializer::new(map)).map_err(|error| {
                    if error.to_string().contains(TOKEN) { de::Error::custom(NO_REFERENCE) } else { error }
                });
                Ok(match written? {
                    Written::File(path) => SecretRef::File(path),
                    Written::Env(name) => SecretRef::Env(name),
                })
            }
        }

        deserializer.deserialize_any(Reference)
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

/// `value` without one newline at its end, which editors and `kubectl create secret` add.
fn trim_newline(value: &str) -> &str {
    let value = value.strip_suffix('\n').unwrap_or(value);
    value.strip_suffix('\r').unwrap_or(value)
}

/// A text, or a reference to a secret.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(untagged)]
pub enum TextOrSecret {
    /// Text, possibly a template.
    Text(String),
    /// The source of a secret.
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
    }

    #[test]
    fn a_secret_in_the_place_of_a_reference_is_not_repeated() {
        let read = |text: &str| serde_json::from_str::<SecretRef>(text).map_err(|error| error.to_string());
        assert_eq!(read(r#"{"file": "a"}"#).unwrap(), SecretRef::File("a".into()));
        assert_eq!(read(r#"{"env": "A"}"#).unwrap(), SecretRef::Env("A".into()));
        for value in ["\"hunter2\"", "4711", "-4711", "4711.5", "true"] {
            let message = read(value).unwrap_err();
            assert!(
                message.starts_with(NO_REFERENCE) && !message.contains(value.trim_matches('"')),
                "{value}: {message}"
            );
        }
        assert!(read(r#"{"fil": "a"}"#).unwrap_err().starts_with("unknown variant `fil`, expected `file` or `env`"));
    }

    #[test]
    fn a_secret_that_cannot_be_redacted_is_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let base = BaseDir::new(folder.path());
        for (value, expected) in [("abc\n", 1), ("äöü", 1), ("abcd\n", 0)] {
            std::fs::write(folder.path().join("token"), value).unwrap();
            let mut problems = Problems::default();
            SecretRef::File("token".into()).check(&base, &Path::root().key("token"), &mut problems);
            let message = problems.into_vec();
            assert_eq!(message.len(), expected, "{value:?}: {message:?}");
            assert!(message.iter().all(|problem| problem.message.contains("fewer than 4 characters")
                && !problem.message.contains(value.trim())));
        }
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
        assert!(file.read(&base).unwrap_err().to_string().contains("token"));
        std::fs::write(dir.path().join("token"), " \n").unwrap();
        assert!(file.read(&base).unwrap_err().to_string().contains("is empty"));
        std::fs::write(dir.path().join("token"), "x\n").unwrap();
        assert_eq!(file.read(&base).unwrap().expose(), "x");
    }

    /// Whether `hidden` is in this process's memory. Each byte of `hidden` is inverted, so that the search does not find
    /// itself.
    fn is_in_memory(hidden: &[u8]) -> bool {
        use std::{io::Read as _, os::unix::fs::FileExt as _};

        let (mut maps, mut seen) = (String::new(), Zeroizing::new(vec![0; PAGES + hidden.len()]));
        std::fs::File::open("/proc/self/maps").unwrap().read_to_string(&mut maps).unwrap();
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        maps.lines().filter(|line| line.contains(" rw")).any(|line| {
            let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let [from, to] = [from, to].map(|address| u64::from_str_radix(address, 16).unwrap());
            // Untouched parts of a stack cannot be read, and parts of the heap may be gone.
            (from..to).step_by(PAGES).any(|at| {
                let read = memory.read_at(&mut seen, at).unwrap_or(0);
                let is_there = |window: &[u8]| window.iter().zip(hidden).all(|(byte, hidden)| *byte == !*hidden);
                let begins = seen[..read].iter().enumerate().filter(|(_, byte)| **byte == !hidden[0]);
                begins.map(|(at, _)| &seen[at..read]).any(|window| window.len() >= hidden.len() && is_there(window))
            })
        })
    }

    /// How much memory is searched at once, in bytes.
    const PAGES: usize = 64 * 4096;

    #[test]
    fn a_secret_is_not_left_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let base = BaseDir::new(folder.path());
        // Long, since freeing memory overwrites its beginning.
        let hidden: Vec<u8> = (0..96).map(|_| !(fastrand::alphanumeric() as u8)).collect();
        let hidden = &hidden;
        {
            let shown = Zeroizing::new(hidden.iter().map(|byte| !byte).collect::<Vec<u8>>());
            std::fs::write(folder.path().join("token"), &*shown).unwrap();
        }
        let tail = &hidden[48..];
        assert!(!is_in_memory(tail), "the test leaves none");
        let secret = SecretRef::File("token".into()).read(&base).unwrap();
        assert!(is_in_memory(tail), "it can be found");
        // Taken at once: a later copy could overwrite a leftover and hide it.
        drop(secret);
        assert!(!is_in_memory(tail), "it is gone");
    }
}

//! Secrets: a configuration holds references to them (`file:`, `env:`), never their values, and
//! printing one prints `[redacted]`.

use std::{fmt, path::PathBuf};

use base16ct::lower::encode_string;
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use http::{HeaderMap, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use regex::Regex;
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use url::form_urlencoded::byte_serialize;
use zeroize::Zeroizing;

use crate::{
    base_dir::BaseDir,
    document::excerpt,
    error::{BackendError, ErrorKind},
    file,
    problem::{Path, Problems},
};

/// What stands for a secret wherever text is shown.
pub const REDACTED: &str = "[redacted]";
/// Parts of a secret that are shorter than this are too common to be looked for, in bytes.
const SHORTEST_PART: usize = 4;

/// Where a secret's value comes from.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SecretRef {
    /// A file with the value, relative to the configuration file; one trailing newline is trimmed.
    /// Backends read it at every use, so that a rotated Secret is picked up.
    File(PathBuf),
    /// An environment variable of the gateway.
    Env(String),
}

/// A value that may be read, never printed, and is not left in memory.
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

/// The secrets that one question needs: whatever is told of its end is cleaned of them.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    known: Vec<Secret>,
    hidden: Option<&'static Regex>,
}

impl FromIterator<Secret> for Secrets {
    fn from_iter<I: IntoIterator<Item = Secret>>(secrets: I) -> Self {
        Self { known: secrets.into_iter().collect(), hidden: None }
    }
}

impl Secrets {
    /// What stands in the headers that are marked as sensitive.
    #[must_use]
    pub fn of_headers(headers: &HeaderMap) -> Self {
        let sensitive = headers.values().filter(|value| value.is_sensitive());
        let texts = sensitive.filter_map(|value| value.to_str().ok());
        texts.map(|text| Secret::from(text.to_owned())).collect()
    }

    /// One more.
    pub fn push(&mut self, secret: Secret) {
        self.known.push(secret);
    }

    /// Hides what matches, but for the first group of `pattern`, too: what is known by its place and not by its text.
    pub const fn hide(&mut self, pattern: &'static Regex) {
        self.hidden = Some(pattern);
    }

    /// And `others`.
    pub fn extend(&mut self, others: Self) {
        self.known.extend(others.known);
        self.hidden = self.hidden.or(others.hidden);
    }

    /// `text` with every secret in it replaced by [`REDACTED`]: whole, as it looks when it was escaped or encoded (base64, hexadecimal,
    /// for a URL), by its lines, and without the scheme of an `Authorization` header. To be used before a text is cut,
    /// since half a secret is not recognised.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let mut forms: Vec<_> = self.known.iter().flat_map(forms).collect();
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        let text = forms.iter().fold(text.to_owned(), |text, form| text.replace(form.as_str(), REDACTED));
        match self.hidden {
            Some(pattern) => pattern.replace_all(&text, format!("${{1}}{REDACTED}")).into_owned(),
            None => text,
        }
    }

    /// `error`, without the secrets in its message.
    #[must_use]
    pub fn clean(&self, error: &BackendError) -> BackendError {
        BackendError { message: self.redact(&error.message), ..error.clone() }
    }

    /// The first `most` characters of `bytes` for a message, without the secrets.
    #[must_use]
    pub fn excerpt(&self, bytes: &[u8], most: usize) -> String {
        excerpt(self.redact(&String::from_utf8_lossy(bytes)).as_bytes(), most)
    }
}

/// The shapes in which a secret may come back.
fn forms(secret: &Secret) -> Vec<Zeroizing<String>> {
    let whole = secret.expose();
    let mut forms = vec![whole.to_owned(), whole.escape_debug().to_string()];
    if whole.len() >= SHORTEST_PART {
        // Also as `echo` hands it on, with the end of a line.
        for text in [whole.to_owned(), [whole, "\n"].concat()].map(Zeroizing::new) {
            forms.extend([STANDARD.encode(&*text), URL_SAFE_NO_PAD.encode(&*text), encode_string(text.as_bytes())]);
        }
        forms.extend([
            byte_serialize(whole.as_bytes()).collect(),
            utf8_percent_encode(whole, NON_ALPHANUMERIC).to_string(),
        ]);
    }
    forms.extend(whole.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_PART).map(str::to_owned));
    if let Some((scheme, rest)) = whole.split_once(' ')
        && rest.len() >= SHORTEST_PART
    {
        forms.push(rest.to_owned());
        let decoded = STANDARD.decode(rest).map(Zeroizing::new).ok();
        let pair = decoded.as_ref().and_then(|pair| str::from_utf8(pair).ok()?.split_once(':'));
        let password = pair.map(|(_, password)| password);
        let password = password.filter(|password| scheme.eq_ignore_ascii_case("basic") && !password.is_empty());
        forms.extend(password.map(str::to_owned));
    }
    forms.into_iter().map(Zeroizing::new).collect()
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
                let read = file::secret(&path);
                read.map_err(|error| format!("cannot read the secret file {}: {error}", path.display()))?
            }
            Self::Env(name) => std::env::var(name).map(Zeroizing::new).map_err(|error| match error {
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

    /// The value after `scheme`, as a header that is never shown.
    ///
    /// # Errors
    /// When it cannot be read, or no header can carry it; the text names it and never its content.
    pub fn header(&self, base: &BaseDir, scheme: &str) -> Result<HeaderValue, BackendError> {
        let secret = self.read(base).map_err(BackendError::unavailable)?;
        let mut value = HeaderValue::try_from(format!("{scheme}{}", secret.expose())).map_err(|_| {
            BackendError::new(ErrorKind::Denied, format!("{self} holds characters that no header can carry"))
        })?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Notes a problem at `path` when the value cannot be read now.
    pub fn check(&self, base: &BaseDir, path: &Path, problems: &mut Problems) {
        problems.note(path, self.read(base));
    }
}

/// What is said of a value that stands where a reference is to be. It may be the secret itself, so it is not repeated.
const NO_REFERENCE: &str = "a secret does not stand here itself, but where it is: `{ file: … }` or `{ env: … }`";

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
                Ok(match Written::deserialize(MapAccessDeserializer::new(map))? {
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
        let mut secrets = Secrets::default();
        secrets.push(secret);
        assert_eq!(secrets.redact("the password is hunter2."), "the password is [redacted].");
        assert_eq!(format!("{secrets:?}"), "Secrets { known: [[redacted]], hidden: None }");
    }

    #[test]
    fn a_secret_is_recognised_in_parts() {
        let redact = |secret: &str, text: &str| Secrets::from_iter([Secret::from(secret.to_owned())]).redact(text);
        assert_eq!(redact("Bearer abcd", "not abcd"), "not [redacted]");
        assert_eq!(redact("Basic Y2k6aHVudGVyMg==", "Y2k6aHVudGVyMg== is hunter2"), "[redacted] is [redacted]");
        assert_eq!(redact("line one\nline two", "line two, line one"), "[redacted], [redacted]");
        assert_eq!(redact("a\"b", r#"the key `a\"b`"#), "the key `[redacted]`");
        for (secret, encoded) in [
            ("hunter2", "aHVudGVyMg=="),
            ("hunter2", "aHVudGVyMgo="),
            ("hunter2", "aHVudGVyMg"),
            ("hunter2", "68756e74657232"),
            ("hunter/2 ", "hunter%2F2%20"),
            ("hunter/2 ", "hunter%2F2+"),
        ] {
            assert_eq!(redact(secret, encoded), REDACTED, "{encoded}");
        }
    }

    #[test]
    fn a_secret_in_the_place_of_a_reference_is_not_repeated() {
        let read = |text: &str| serde_json::from_str::<SecretRef>(text).map_err(|error| error.to_string());
        assert_eq!(read(r#"{"file": "a"}"#).unwrap(), SecretRef::File("a".into()));
        assert_eq!(read(r#"{"env": "A"}"#).unwrap(), SecretRef::Env("A".into()));
        for value in ["\"hunter2\"", "4711", "-4711", "4711.5", "true"] {
            let told = read(value).unwrap_err();
            assert!(told.starts_with(NO_REFERENCE) && !told.contains(value.trim_matches('"')), "{value}: {told}");
        }
        assert!(read(r#"{"fil": "a"}"#).unwrap_err().starts_with("unknown variant `fil`, expected `file` or `env`"));
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

    /// Whether `hidden`, each byte of it turned over so that nothing here looks like it, is in this process's memory.
    fn is_in_memory(hidden: &[u8]) -> bool {
        use std::{io::Read as _, os::unix::fs::FileExt as _};

        let (mut maps, mut seen) = (String::new(), Zeroizing::new(vec![0; PAGES + hidden.len()]));
        std::fs::File::open("/proc/self/maps").unwrap().read_to_string(&mut maps).unwrap();
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        maps.lines().filter(|line| line.contains(" rw")).any(|line| {
            let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let [from, to] = [from, to].map(|address| u64::from_str_radix(address, 16).unwrap());
            // Untouched parts of a stack cannot be read, and parts of the heap may be gone by now.
            (from..to).step_by(PAGES).any(|at| {
                let read = memory.read_at(&mut seen, at).unwrap_or(0);
                let is_there = |window: &[u8]| window.iter().zip(hidden).all(|(byte, hidden)| *byte == !*hidden);
                let begins = seen[..read].iter().enumerate().filter(|(_, byte)| **byte == !hidden[0]);
                begins.map(|(at, _)| &seen[at..read]).any(|rest| rest.len() >= hidden.len() && is_there(rest))
            })
        })
    }

    /// How much memory is looked at at once, in bytes.
    const PAGES: usize = 64 * 4096;

    #[test]
    fn a_secret_is_not_left_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let base = BaseDir::new(folder.path());
        // Long, since what frees memory writes over its beginning.
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
        // At once: what is copied now could come to lie where a copy was left, and hide it.
        drop(secret);
        assert!(!is_in_memory(tail), "it is gone");
    }
}

//! Credentials from a Docker `config.json`: `auths` by host, as `docker login` and Kubernetes' pull
//! secrets write them.

use std::{collections::HashMap, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

use crate::{
    error::{BackendError, ErrorKind},
    secret::Secret,
};

/// User name and password for one registry.
#[derive(Debug, Clone)]
pub struct Credential {
    /// The user.
    pub username: String,
    /// The password or token.
    pub password: Secret,
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: HashMap<String, Entry>,
}

#[derive(Deserialize, Default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

impl Credential {
    /// What `file` holds for `registry`; `None` when it holds nothing. Read at each call, so that a
    /// renewed file is picked up.
    ///
    /// # Errors
    /// When the file cannot be read or understood; the message holds nothing of its content.
    pub fn find(file: &Path, registry: &str) -> Result<Option<Self>, BackendError> {
        let denied = |why: &str| BackendError::new(ErrorKind::Denied, format!("{}: {why}", file.display()));
        let text = std::fs::read(file).map_err(|error| denied(&error.to_string()))?;
        let mut config: DockerConfig = serde_json::from_slice(&text)
            .map_err(|error| denied(&format!("line {}: not a Docker config.json", error.line())))?;
        let key = config.auths.keys().find(|key| host_of(key) == registry).cloned();
        let Some(auth) = key.and_then(|key| config.auths.remove(&key)) else { return Ok(None) };
        if let (Some(username), Some(password)) = (auth.username, auth.password) {
            return Ok(Some(Self { username, password: Secret::from(password) }));
        }
        let Some(encoded) = auth.auth else { return Ok(None) };
        let decoded = STANDARD.decode(encoded.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let (username, password) = decoded
            .as_deref()
            .and_then(|text| text.split_once(':'))
            .ok_or_else(|| denied(&format!("`auth` of {registry} is not base64 of `user:password`")))?;
        Ok(Some(Self { username: username.to_owned(), password: Secret::from(password.to_owned()) }))
    }

    /// The value of an `Authorization` header.
    #[must_use]
    pub fn basic(&self) -> Secret {
        let pair = format!("{}:{}", self.username, self.password.expose());
        Secret::from(format!("Basic {}", STANDARD.encode(pair)))
    }
}

/// `registry.example.com:5000` of `https://registry.example.com:5000/v1/`.
fn host_of(key: &str) -> &str {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    match key.split('/').next().unwrap_or(key) {
        // What `docker login` writes for Docker Hub.
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        host => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_found_by_host() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.json");
        let config = r#"{"auths":{"https://a.example/v1/":{"auth":"dTpwOnc="},"b.example:5000":{"username":"x","password":"y"},"c.example":{"auth":"!"}}}"#;
        std::fs::write(&file, config).unwrap();
        let a = Credential::find(&file, "a.example").unwrap().unwrap();
        assert_eq!((a.username.as_str(), a.password.expose()), ("u", "p:w"));
        assert_eq!(a.basic().expose(), "Basic dTpwOnc=");
        assert!(Credential::find(&file, "b.example:5000").unwrap().is_some());
        assert!(Credential::find(&file, "b.example").unwrap().is_none());
        assert!(Credential::find(&file, "c.example").unwrap_err().message.contains("base64"));
        assert!(Credential::find(&dir.path().join("none"), "a.example").is_err());
    }
}

//! The environment of the gateway's own pod, in which clouds say how it proves who it is.

use std::{collections::BTreeMap, path::Path};

use domain::{
    error::{BackendError, ErrorKind},
    file,
    secret::Secret,
};

/// The environment variables that count here.
const NAMES: &[&str] = &[
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GCE_METADATA_HOST",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_CLIENT_ID",
    "AZURE_TENANT_ID",
    "AZURE_AUTHORITY_HOST",
];

/// The environment of the pod, as it was at the start.
#[derive(Debug, Clone, Default)]
pub struct Pod(BTreeMap<String, Secret>);

impl Pod {
    /// The environment of this process.
    #[must_use]
    pub fn of_process() -> Self {
        NAMES.iter().filter_map(|name| Some((*name, std::env::var(name).ok()?))).collect()
    }

    /// The value of the variable `name`, if it is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(Secret::expose).filter(|value| !value.is_empty())
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Pod {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), Secret::from(value.into()))).collect())
    }
}

/// The token in `file`. It is read at each use, since Kubernetes replaces it.
///
/// # Errors
/// When it cannot be read or is empty. The text names the file.
pub(crate) fn token_file(file: &Path) -> Result<Secret, BackendError> {
    let denied = |why: String| BackendError::new(ErrorKind::Denied, why);
    let cannot = |why| denied(format!("cannot read the pod's token file {}: {why}", file.display()));
    let token = file::secret(file).map_err(cannot)?;
    match token.trim() {
        "" => Err(denied(format!("the pod's token file {} is empty", file.display()))),
        token => Ok(Secret::from(token.to_owned())),
    }
}

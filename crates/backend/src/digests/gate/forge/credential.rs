//! The credential of a forge.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue};

use crate::Building;
use domain::{
    error::{BackendError, ErrorKind},
    file::base_dir::BaseDir,
    secret::{Secret, SecretRef},
};

/// A secret and the header that carries it. The secret is read at each use, so a renewed secret needs no restart.
#[derive(Debug)]
pub struct ForgeCredential {
    header: HeaderName,
    form: Form,
    secret: SecretRef,
    base: BaseDir,
}

/// How the header carries the secret.
#[derive(Debug)]
pub enum Form {
    /// Alone.
    Plain,
    /// After a scheme: `Bearer` or `token`.
    Scheme(&'static str),
    /// As this user's password.
    Basic(String),
}

impl ForgeCredential {
    /// Remembers where the secret is. A secret that cannot be read now is noted.
    pub fn build(header: HeaderName, form: Form, secret: &SecretRef, building: &mut Building<'_>) -> Self {
        building.check_secret(secret);
        Self { header, form, secret: secret.clone(), base: building.context.base.clone() }
    }

    /// The header, marked as sensitive.
    ///
    /// # Errors
    /// When the secret cannot be read or sent.
    pub fn header(&self) -> Result<(HeaderName, HeaderValue), BackendError> {
        let secret = self.secret.read(&self.base).map_err(BackendError::unavailable)?;
        let text = Secret::from(match &self.form {
            Form::Plain => secret.expose().to_owned(),
            Form::Scheme(scheme) => format!("{scheme} {}", secret.expose()),
            Form::Basic(user) => format!("Basic {}", STANDARD.encode(format!("{user}:{}", secret.expose()))),
        });
        let mut value = HeaderValue::from_str(text.expose()).map_err(|_| {
            BackendError::new(ErrorKind::Denied, format!("{} holds characters that no header can carry", self.secret))
        })?;
        value.set_sensitive(true);
        Ok((self.header.clone(), value))
    }
}

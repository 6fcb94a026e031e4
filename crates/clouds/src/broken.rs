//! An identity that the pod's environment names by half. Every use of it fails, so that nothing is asked anonymously in its place.

use std::sync::Arc;

use async_trait::async_trait;
use reqwest::Url;
use tokio::time::Instant;

use domain::{
    error::{BackendError, ErrorKind},
    secret::Secrets,
};
use outbound::{Call, Identity, Login, LoginPlace};

/// Why there is no identity.
#[derive(Debug)]
pub(crate) struct Broken(pub String);

impl Broken {
    fn error(&self) -> BackendError {
        BackendError::new(ErrorKind::Denied, format!("the pod's own identity cannot be used: {}", self.0))
    }
}

#[async_trait]
impl Identity for Broken {
    fn describe(&self) -> String {
        format!("none that works: {}", self.0)
    }

    fn check_url(&self, _: &Url) -> Result<(), String> {
        Ok(())
    }

    async fn authorize(&self, _: Call, _: bool) -> Result<Call, BackendError> {
        Err(self.error())
    }

    async fn log_in(&self, _: LoginPlace<'_>, _: bool, _: Instant) -> Result<Login, BackendError> {
        Err(self.error())
    }

    async fn who(&self, _: Instant) -> Result<String, BackendError> {
        Err(self.error())
    }

    fn account(&self) -> Arc<str> {
        "broken".into()
    }

    fn secrets(&self) -> Secrets {
        Secrets::default()
    }
}

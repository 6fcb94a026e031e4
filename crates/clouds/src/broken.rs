//! An identity that the pod's environment names by half. Every use of it fails, so that no anonymous request is sent in its place.

use std::sync::Arc;

use async_trait::async_trait;
use reqwest::Url;
use tokio::time::Instant;

use domain::{
    error::{BackendError, ErrorKind},
    secret::{Secret, Secrets},
};
use outbound::{Call, ClusterLogin, Identity, Login, LoginPlace};

/// An identity that is not there.
#[derive(Debug)]
pub(crate) struct Broken {
    /// Why.
    pub why: String,
    /// Which registries it is for: they get no anonymous request in its place.
    pub covers: fn(&str) -> bool,
}

impl Broken {
    fn error(&self) -> BackendError {
        BackendError::new(ErrorKind::Denied, format!("the pod's own identity cannot be used: {}", self.why))
    }
}

#[async_trait]
impl Identity for Broken {
    fn describe(&self) -> String {
        format!("none that works: {}", self.why)
    }

    fn cloud(&self) -> &'static str {
        "none"
    }

    fn covers(&self, name: &str) -> bool {
        (self.covers)(name)
    }

    fn flaw(&self) -> Option<&str> {
        Some(&self.why)
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

    async fn log_in_to_cluster(&self, _: ClusterLogin<'_>, _: bool, _: Instant) -> Result<Secret, BackendError> {
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

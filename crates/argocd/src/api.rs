//! The way to the API server. The simulation answers in its place.

use async_trait::async_trait;

use domain::error::BackendError;
use outbound::{
    Reply,
    kubernetes::{ApiCall, ApiServer},
};

/// An API server that has ApplicationSets.
#[async_trait]
pub trait Api: Send + Sync {
    /// The request as messages show it, and its answer with any status.
    async fn send(&self, call: ApiCall<'_>) -> (String, Result<Reply, BackendError>);
}

#[async_trait]
impl Api for ApiServer {
    async fn send(&self, call: ApiCall<'_>) -> (String, Result<Reply, BackendError>) {
        Self::send(self, call).await
    }
}

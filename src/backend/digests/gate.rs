//! CI's word on a commit: passed, pending or failed. What CI does not say clearly is an error, and what it says of no
//! run at all is *pending*: the lists of CI systems lag.

pub mod api;
pub mod bitbucket;
pub mod forge;
pub mod gitea;
pub mod gitlab;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use minijinja::Value as TemplateValue;
use tokio::time::Instant;

use super::commit::Commit;
use crate::{
    error::BackendError,
    generator::{Evidence, Parameters},
};

/// One question to a gate.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// `params` and `applicationSet`, for templates.
    pub context: &'a TemplateValue,
    /// The parameters, for expressions.
    pub parameters: &'a Arc<Parameters>,
    /// When the answer must be here.
    pub deadline: Instant,
}

/// What CI says of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// In one word.
    pub state: State,
    /// The commit that it is about, where the gate knows.
    pub commit: Option<Commit>,
    /// Whether that is an earlier commit than the one asked about, to which the gate walked back.
    pub is_earlier: bool,
    /// What was asked and answered: *present* for what passed, *absent* for what did not or not yet.
    pub evidence: Vec<Evidence>,
    /// The page of the run that decided.
    pub run_url: Option<String>,
    /// When that run ended, as CI writes it (RFC 3339).
    pub built_at: Option<String>,
}

/// CI's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// All that is required succeeded.
    Passed,
    /// Something required runs, waits or is not there yet.
    Pending,
    /// Something required failed, and nothing runs that could change that.
    Failed,
}

/// A system that can say whether a commit passed.
#[async_trait]
pub trait Gate: Send + Sync + fmt::Debug {
    /// Asks for CI's word. Read only.
    ///
    /// # Errors
    /// When the parameters name no full commit, or CI gives no clear answer.
    async fn ask(&self, asked: Asked<'_>) -> Result<Ruling, BackendError>;

    /// Whether what is asked depends on the ApplicationSet's name.
    fn reads_application_set(&self) -> bool;
}

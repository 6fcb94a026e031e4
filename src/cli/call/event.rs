//! Whether an event of a hook would concern a call.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use http::HeaderMap;

use crate::{app::Setup, domain::generator::Evidence, engine::route::ResolvedQuery, hooks::Subjects};

/// An event: the name of a hook, and the file with a body.
#[derive(Debug, Clone)]
pub(super) struct EventFile {
    hook: String,
    file: PathBuf,
}

impl std::str::FromStr for EventFile {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (hook, file) = text.split_once('=').ok_or("an event is HOOK=FILE")?;
        Ok(Self { hook: hook.to_owned(), file: file.into() })
    }
}

impl EventFile {
    /// Whether it would concern `asked`, about which `evidence` was found.
    pub(super) async fn concerns(
        &self,
        setup: &Setup,
        asked: &ResolvedQuery,
        evidence: &[Evidence],
    ) -> anyhow::Result<bool> {
        let hook = setup.hooks.by_name(&self.hook);
        let hook = hook.with_context(|| format!("there is no hook `{}`", self.hook))?;
        let body = std::fs::read(&self.file).with_context(|| format!("cannot read {}", self.file.display()))?;
        let delivery = hook.read(&HeaderMap::new(), &body).await.map_err(|why| anyhow!("the event: {why}"))?;
        let mut subjects = Subjects::default();
        delivery.subjects.into_iter().for_each(|subject| subjects.add(subject));
        let parameters = serde_json::to_string(&*asked.question.parameters)?;
        Ok(subjects.concern(&parameters, evidence, || asked.question.clone()))
    }
}

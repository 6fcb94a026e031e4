//! Whether an event of a hook would concern a call.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::super::parameters::parse_header;
use crate::app::Setup;
use domain::generator::Evidence;
use engine::route::ResolvedQuery;
use hooks::Subjects;

/// The event of a call.
#[derive(Debug, Args)]
pub(super) struct EventArgs {
    /// Also show whether this event would make the gateway recheck this call: the name of a hook, and a file with the event's body.
    #[arg(long, value_name = "HOOK=FILE")]
    event: Option<EventFile>,
    /// A header of the event, such as `X-GitHub-Event: push`. May be used several times.
    #[arg(long = "event-header", value_name = "NAME: VALUE", value_parser = parse_header, requires = "event")]
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// An event: the name of a hook, and the file with a body.
#[derive(Debug, Clone)]
struct EventFile {
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

impl EventArgs {
    /// Whether the event would concern `resolved`, about which `evidence` was found. `None` without an event.
    pub(super) async fn concerns(
        &self,
        setup: &Setup,
        resolved: &ResolvedQuery,
        evidence: &[Evidence],
    ) -> anyhow::Result<Option<bool>> {
        let Some(event) = &self.event else { return Ok(None) };
        let hook = setup.hooks.by_name(&event.hook);
        let hook = hook.with_context(|| format!("there is no hook `{}`", event.hook))?;
        let body = std::fs::read(&event.file).with_context(|| format!("cannot read {}", event.file.display()))?;
        let headers: HeaderMap = self.headers.iter().cloned().collect();
        let delivery = hook.read(&headers, &body).await.map_err(|why| anyhow!("the event: {why}"))?;
        let mut subjects = Subjects::default();
        delivery.subjects.into_iter().for_each(|subject| subjects.add(subject));
        let parameters = serde_json::to_string(&*resolved.question.parameters)?;
        Ok(Some(subjects.search().concerns(&[&parameters], evidence, || resolved.question.clone())))
    }
}

//! Argo CD's ApplicationSet controller, as far as the story needs it: it asks a plugin, reads the answer as Argo CD reads it, and deletes the
//! Applications that the answer leaves out.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use reqwest::Url;
use serde_json::{Map, Value, json};

use crate::source::Set;
use conformance::{
    evaluate::Verdict,
    target::{Requester, TIMEOUT, Target},
};
use domain::secret::Secret;

/// The keys that name an Application, of which the first that is there is used.
const NAMES: [&str; 2] = ["name", "number"];

/// A controller with its Applications, before one plugin server.
pub(crate) struct Judge {
    targets: BTreeMap<Set, Target>,
    applications: BTreeMap<Set, BTreeSet<String>>,
}

/// What came of one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciled {
    /// How Argo CD reads the answer.
    pub reading: Reading,
    /// The Applications that it creates.
    pub created: BTreeSet<String>,
    /// The Applications that it deletes.
    pub deleted: BTreeSet<String>,
    /// Parameter sets that are marked as stale, with what they are about.
    pub stale: Vec<String>,
}

/// How Argo CD reads an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// A success with so many parameter sets.
    Sets(usize),
    /// An error, after which it changes nothing: the text of the ApplicationSet's condition.
    Error(String),
}

impl Judge {
    /// A controller that asks at `base`, where each ApplicationSet has a path of its name.
    ///
    /// # Errors
    /// When `base` cannot have a path.
    pub(crate) fn new(base: &Url, token: Option<&str>) -> anyhow::Result<Self> {
        let target = |set: Set| {
            let url = base.join(&format!("{}/", set.name()))?;
            anyhow::Ok((set, Target::new(&url, token.map(|token| Secret::from(token.to_owned())), TIMEOUT)?))
        };
        let targets = Set::ALL.into_iter().map(target).collect::<anyhow::Result<_>>()?;
        Ok(Self { targets, applications: BTreeMap::new() })
    }

    /// The names of the Applications of `set`.
    pub(crate) fn applications(&self, set: Set) -> BTreeSet<String> {
        self.applications.get(&set).cloned().unwrap_or_default()
    }

    /// Reconciles the ApplicationSet `set`.
    ///
    /// # Errors
    /// When this side cannot ask.
    pub(crate) async fn reconcile(&mut self, set: Set) -> anyhow::Result<Reconciled> {
        let Some(target) = self.targets.get(&set) else { anyhow::bail!("no plugin answers for {}", set.name()) };
        let body = format!("{}\n", json!({ "applicationSetName": set.name(), "input": { "parameters": {} } }));
        let answered = target.prepare(Requester::ArgoCd, body)?.ask().await.evaluate();
        let sets = match answered.verdict {
            Verdict::Parameters(sets) => sets,
            Verdict::ExplicitlyEmpty | Verdict::AccidentallyEmpty { .. } => Vec::new(),
            Verdict::Error { condition, .. } => {
                let (created, deleted) = Default::default();
                return Ok(Reconciled { reading: Reading::Error(condition), created, deleted, stale: Vec::new() });
            }
        };
        let wanted: BTreeSet<String> = sets.iter().map(name).collect();
        let before = self.applications.insert(set, wanted.clone()).unwrap_or_default();
        Ok(Reconciled {
            reading: Reading::Sets(sets.len()),
            created: wanted.difference(&before).cloned().collect(),
            deleted: before.difference(&wanted).cloned().collect(),
            stale: sets.iter().filter_map(stale).collect(),
        })
    }
}

/// The name of the Application that is made of `set`.
fn name(set: &Map<String, Value>) -> String {
    NAMES.iter().find_map(|key| set.get(*key)).map(text).unwrap_or_default()
}

/// What is stale in `set`, in words, if the gateway says so.
fn stale(set: &Map<String, Value>) -> Option<String> {
    let field = |key: &str| set.get(key).map(text);
    let is_stale = field("stale").is_some_and(|stale| stale == "true");
    is_stale.then(|| {
        let revision = field("revision").unwrap_or_default();
        format!(
            "preview {} stays at commit {}, the last one that CI has built",
            name(set),
            revision.get(..7).unwrap_or_default()
        )
    })
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Time in the story, which passes as fast as the caller likes.
pub trait Time: Sync {
    /// Lets `time` pass at the gateway, with all that it does by itself meanwhile.
    fn pass(&self, time: Duration) -> impl Future<Output = ()> + Send;
}

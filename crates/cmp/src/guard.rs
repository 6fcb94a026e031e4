//! Holds manifests that lose resources though nothing changed: the same tree and the same variables as the last time.
//!
//! Vault is away, a registry answers with half a list: the plugin prints less, and Argo CD would delete the rest. New inputs may delete. It
//! has the last manifests of each Application in memory only, so a restart forgets them.

pub(crate) mod inputs;
pub(crate) mod resources;

use std::time::Instant;

use parking_lot::Mutex;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use self::{inputs::Inputs, resources::Resources};
use domain::{bounded_cache::Recent, units::HumanDuration};

/// The memory for what is known of the Applications of one plugin, in bytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// What a record takes beside its resources, in bytes: two digests, a time, and the map's own.
const RECORD: usize = 256;
/// How many missing resources a message names.
const NAMED: usize = 10;

/// The guard of one plugin.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct GuardConfig {
    /// What happens to manifests that lose resources though the inputs are equal.
    pub(crate) on_shrink: OnShrink,
    /// `confirm`: so many further runs must have the same resources.
    pub(crate) confirm_after: u32,
    /// `confirm`: so far apart.
    pub(crate) confirm_for: HumanDuration,
}

/// What happens to manifests that lose resources though the inputs are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum OnShrink {
    /// They are held until the resources return or the inputs change.
    Keep,
    /// They are held until further runs agree, too.
    Confirm,
    /// They pass.
    Allow,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self { on_shrink: OnShrink::Keep, confirm_after: 3, confirm_for: HumanDuration::from_secs(300) }
    }
}

/// The last manifests of each Application of a plugin.
#[derive(Debug)]
pub(crate) struct Guard {
    config: GuardConfig,
    /// Whether nothing at all may come without `[]`.
    allow_blank: bool,
    known: Recent<[u8; 32], Record>,
    /// One check after the other: two runs of one Application must not both compare with what was before them.
    checking: Mutex<()>,
}

/// What was accepted last.
#[derive(Debug, Clone)]
struct Record {
    inputs: [u8; 32],
    output: [u8; 32],
    resources: Resources,
    held: Option<Held>,
}

/// Manifests that are held.
#[derive(Debug, Clone)]
struct Held {
    resources: Resources,
    /// How many further runs agreed, and when the last of them counted.
    agreed: u32,
    since: Instant,
}

/// Why manifests are held.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeldError {
    /// Resources are missing.
    #[error(
        "held, as Argo CD would delete what is missing: the same files and variables gave {before} resources the last time and {now} now; \
         missing: {missing}. Nothing changes until they return, or the inputs change: to accept the loss, commit a change, or set any other \
         variable in the Application's `plugin.env`{confirm} (`guard`)"
    )]
    Fewer {
        /// How many there were.
        before: usize,
        /// How many there are.
        now: usize,
        /// The first of those that are missing.
        missing: String,
        /// What else ends the hold, as `, or …`. May be empty.
        confirm: String,
    },
    /// There is none, and the plugin did not print `[]`.
    #[error(
        "without a resource, such as a list without items, which Argo CD would take for an order to delete everything; print `[]` if there is \
         nothing, or set `allowBlank`"
    )]
    Nothing,
    /// They cannot be compared.
    #[error(
        "held, as they cannot be compared with those of the last time, which had the same files and variables and {before} resources: \
         {cause} (`guard`)"
    )]
    Unreadable {
        /// How many there were.
        before: usize,
        /// The mistake in the YAML.
        cause: String,
    },
}

impl Guard {
    /// Knows nothing yet.
    pub(crate) fn new(config: GuardConfig, allow_blank: bool) -> Self {
        let known = Recent::weighed(MAX_BYTES, |_, record: &Record| {
            let held = record.held.as_ref().map_or(0, |held| held.resources.bytes());
            RECORD + record.resources.bytes() + held
        });
        Self { config, allow_blank, known, checking: Mutex::new(()) }
    }

    /// Compares the manifests of a run that began with `inputs`, and remembers them if they pass.
    ///
    /// # Errors
    /// When they are held. What was accepted last stays what the next run is compared with.
    pub(crate) fn check(&self, inputs: &Inputs, manifests: &[String], now: Instant) -> Result<(), HeldError> {
        if self.config.on_shrink == OnShrink::Allow {
            return Resources::read(manifests).map_or(Ok(()), |resources| self.not_blank(manifests, &resources));
        }
        let output = digest(manifests);
        let same = |record: &Record| record.inputs == inputs.digest && record.output == output && record.held.is_none();
        if self.known.read(&inputs.application, same) == Some(true) {
            return Ok(());
        }
        let resources = Resources::read(manifests);
        let _checking = self.checking.lock();
        let known = self.known.get(&inputs.application).filter(|known| known.inputs == inputs.digest);
        let resources = match (resources, &known) {
            (Ok(resources), _) => resources,
            (Err(cause), Some(known)) => {
                return Err(HeldError::Unreadable { before: known.resources.len(), cause: cause.to_string() });
            }
            (Err(error), None) => {
                tracing::debug!(%error, "manifests that this program cannot read are not compared");
                self.known.remove(&inputs.application);
                return Ok(());
            }
        };
        if let Some(known) = known {
            let missing = known.resources.lost(&resources);
            if !missing.is_empty() && !self.is_confirmed(inputs, &known, &resources, now) {
                return Err(self.fewer(&known.resources, &resources, &missing));
            }
        }
        self.not_blank(manifests, &resources)?;
        self.known.insert(inputs.application, Record { inputs: inputs.digest, output, resources, held: None });
        Ok(())
    }

    /// A list without items deletes everything, as blank output does. `[]` comes here as no manifests at all.
    fn not_blank(&self, manifests: &[String], resources: &Resources) -> Result<(), HeldError> {
        let is_blank = !self.allow_blank && !manifests.is_empty() && resources.len() == 0;
        if is_blank { Err(HeldError::Nothing) } else { Ok(()) }
    }

    /// Notes that `resources` are held. Whether enough runs have agreed, so that they are accepted.
    fn is_confirmed(&self, inputs: &Inputs, known: &Record, resources: &Resources, now: Instant) -> bool {
        if self.config.on_shrink != OnShrink::Confirm {
            return false;
        }
        let held = match &known.held {
            Some(held) if held.resources == *resources => {
                let counts = now.duration_since(held.since) >= self.config.confirm_for.0;
                let (agreed, since) = if counts { (held.agreed + 1, now) } else { (held.agreed, held.since) };
                Held { agreed, since, ..held.clone() }
            }
            _ => Held { resources: resources.clone(), agreed: 0, since: now },
        };
        let is_confirmed = held.agreed >= self.config.confirm_after;
        self.known.insert(inputs.application, Record { held: Some(held), ..known.clone() });
        is_confirmed
    }

    fn fewer(&self, before: &Resources, now: &Resources, missing: &[String]) -> HeldError {
        let mut named = missing.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        if missing.len() > NAMED {
            named = format!("{named} and {} more", missing.len() - NAMED);
        }
        let GuardConfig { on_shrink, confirm_after, confirm_for } = self.config;
        let confirm = if on_shrink == OnShrink::Confirm {
            format!(", or wait until {confirm_after} further runs agree, {confirm_for} apart")
        } else {
            String::new()
        };
        HeldError::Fewer { before: before.len(), now: now.len(), missing: named, confirm }
    }
}

/// The SHA-256 of the manifests.
fn digest(manifests: &[String]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for text in manifests {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests;

//! The demands of a configuration, with the present keys and roots.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::{
    config::{Format, Formats, ProvenanceConfig, SignatureConfig, SignerConfig},
    provenance::Provenance,
    signer::{Loaded, Signer},
};
use domain::{
    file::base_dir::BaseDir,
    problem::{Path, Problems},
};

/// How often the files are checked for changes, at most.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The version of the rules in this room. Another version makes another fingerprint, so that each image is verified again.
const RULES: u8 = 1;

/// The demands of a configuration. It reads its keys and roots again while the gateway runs.
#[derive(Debug)]
pub struct Policy {
    pub(super) signers: Vec<Signer>,
    /// Whether all of the signers must have signed, not only one.
    pub(super) needs_all: bool,
    pub(super) provenance: Option<Provenance>,
    formats: Formats,
    /// The hash of the configuration.
    demands: [u8; 32],
    present: Mutex<Present>,
}

/// The content of the files of all signers, in their order.
#[derive(Debug, Clone)]
struct Present {
    read_at: Instant,
    files: Arc<[Arc<Loaded>]>,
    current: KeysInUse,
}

/// Which keys and roots are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeysInUse {
    /// Changes with the policy, and with the content of its keys and roots. A file that cannot be read counts as another content.
    pub fingerprint: [u8; 32],
    /// How often the content has changed since the policy was built. Equal numbers at two times mean that nothing else was in
    /// use in between.
    pub changes: u64,
    /// Since when these are in use.
    pub since: Instant,
    /// Whether all files can be read and used.
    pub is_complete: bool,
}

impl Policy {
    /// Reads `signature` and `provenance`, which are at these keys of `path`. Problems are noted.
    pub fn build(
        signature: &SignatureConfig,
        provenance: Option<&ProvenanceConfig>,
        base: &BaseDir,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        let at = path.key("signature");
        let provenance_at = path.key("provenance");
        let demanded = match provenance {
            None => Some(None),
            Some(config) => Provenance::build(config, &provenance_at, problems).map(Some),
        };
        let (needs_all, configs, key) = match (&*signature.any, &*signature.all) {
            (any, []) if !any.is_empty() => (false, any, "any"),
            ([], all) if !all.is_empty() => (true, all, "all"),
            _ => {
                problems.error(&at, "it needs signers, under exactly one of `any` and `all`");
                return None;
            }
        };
        let formats = formats(signature, configs, &at, problems)?;
        if provenance.is_some() && !formats.bundle {
            problems.error(
                &at.key("formats"),
                "`provenance` needs `bundle`: a legacy signature says nothing about the build",
            );
            return None;
        }
        let at = at.key(key);
        let built =
            configs.iter().enumerate().map(|(index, config)| Signer::build(config, base, &at.index(index), problems));
        let built: Vec<Option<_>> = built.collect();
        let (signers, files): (Vec<_>, Vec<_>) = built.into_iter().collect::<Option<Vec<_>>>()?.into_iter().unzip();
        if needs_all && note_duplicates(configs, &files, &at, problems) {
            return None;
        }
        let demands = Sha256::digest(format!("{RULES} {signature:?} {provenance:?}")).into();
        let present = Mutex::new(Present::new(demands, files, None));
        Some(Self { signers, needs_all, provenance: demanded?, formats, demands, present })
    }

    /// The forms that are wanted.
    #[must_use]
    pub const fn reads(&self) -> Formats {
        self.formats
    }

    /// Changes with the policy, and with the content of its keys and roots. A file that cannot be read counts as another content.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        self.current().fingerprint
    }

    /// Which keys and roots are in use.
    #[must_use]
    pub fn current(&self) -> KeysInUse {
        self.refreshed().current
    }

    /// The present content of the files, in the order of the signers, and the fingerprint that goes with it.
    pub(super) fn present_files(&self) -> (Arc<[Arc<Loaded>]>, [u8; 32]) {
        let Present { files, current, .. } = self.refreshed();
        (files, current.fingerprint)
    }

    /// The signers of `all` whose key an earlier signer has too, and the earlier one. One signature would count for both. This is an error
    /// of the configuration, but files also change later.
    pub(super) fn duplicates(&self, files: &[Arc<Loaded>]) -> Vec<(usize, usize)> {
        if self.needs_all { duplicates(files) } else { Vec::new() }
    }

    /// Why the signer with the key of `other` cannot count.
    pub(super) fn duplicate_of(&self, other: usize) -> String {
        format!("it is the same key as {}, so one signature would count twice", self.signers[other].name)
    }

    /// The present content of the files. A file that cannot be read any more is not replaced by its former content: a key that
    /// was removed must verify nothing any more.
    fn refreshed(&self) -> Present {
        // Locked while the files are read: checks that begin at one time see one state of the files.
        let mut present = self.present.lock();
        if present.read_at.elapsed() >= CHECK_EVERY {
            self.reload(&mut present);
        }
        present.clone()
    }

    fn reload(&self, present: &mut Present) {
        let files = self.signers.iter().zip(&*present.files).map(|(signer, former)| {
            let now = signer.load(Some(former));
            match (&former.content, &now.content) {
                (Ok(_), Err(why)) => tracing::error!(%why, "signatures by {} cannot be verified", signer.name),
                (_, Ok(_)) if former.hash != now.hash => tracing::info!("{} has changed, and is in use", signer.name),
                _ => {}
            }
            now
        });
        *present = Present::new(self.demands, files.collect(), Some(present.current));
    }

    /// Reads the files now.
    #[cfg(test)]
    pub(super) fn refresh(&self) {
        self.reload(&mut self.present.lock());
    }
}

impl Present {
    /// `former` was in use before.
    fn new(demands: [u8; 32], files: Vec<Arc<Loaded>>, former: Option<KeysInUse>) -> Self {
        let mut hash = Sha256::new_with_prefix(demands);
        for file in &files {
            // A file that cannot be read, or not be used, verifies nothing.
            hash.update([u8::from(file.content.is_ok())]);
            hash.update(file.hash.unwrap_or_default());
        }
        let (read_at, fingerprint) = (Instant::now(), hash.finalize().into());
        let is_complete = files.iter().all(|file| file.content.is_ok());
        let current = match former {
            Some(former) if former.fingerprint == fingerprint => former,
            former => {
                let changes = former.map_or(0, |former| former.changes + 1);
                KeysInUse { fingerprint, changes, since: read_at, is_complete }
            }
        };
        Self { read_at, files: files.into(), current }
    }
}

/// The files with the key of an earlier one, and the earlier one.
fn duplicates(files: &[Arc<Loaded>]) -> Vec<(usize, usize)> {
    let pairs = files.iter().enumerate().filter_map(|(index, file)| {
        let name = file.key_name()?;
        let earlier = files[..index].iter().position(|other| other.key_name() == Some(name))?;
        Some((index, earlier))
    });
    pairs.collect()
}

/// Notes the signers of `all` that are listed twice. Whether there are any.
fn note_duplicates(configs: &[SignerConfig], files: &[Arc<Loaded>], path: &Path, problems: &mut Problems) -> bool {
    let mut pairs = duplicates(files);
    for (index, config) in configs.iter().enumerate() {
        let earlier = configs[..index].iter().position(|other| config.is_like(other));
        pairs.extend(
            earlier
                .map(|earlier| (index, earlier))
                .filter(|pair| !pairs.contains(pair))
                .into_iter()
                .collect::<Vec<_>>(),
        );
    }
    for (index, earlier) in &pairs {
        let what = match (&configs[*index], &configs[*earlier]) {
            (SignerConfig::Key(own), SignerConfig::Key(other)) => {
                format!("{} holds the same key as {}", own.file.display(), other.file.display())
            }
            _ => "issuer and identity are the same".to_owned(),
        };
        problems.error_with_help(
            &path.index(*index),
            format!("{what} at {}, so one signature would count twice", path.index(*earlier)),
            "name each signer once",
        );
    }
    !pairs.is_empty()
}

fn formats(
    config: &SignatureConfig,
    signers: &[SignerConfig],
    path: &Path,
    problems: &mut Problems,
) -> Option<Formats> {
    let formats =
        Formats { bundle: config.formats.contains(&Format::Bundle), legacy: config.formats.contains(&Format::Legacy) };
    let path = path.key("formats");
    if !formats.bundle && !formats.legacy {
        problems.error(&path, "it is empty, so no signature would be found");
        return None;
    }
    if !formats.bundle && signers.iter().any(|signer| matches!(signer, SignerConfig::Keyless(_))) {
        problems.error(&path, "`keyless` needs `bundle`: a legacy signature is verified by a key only");
        return None;
    }
    Some(formats)
}

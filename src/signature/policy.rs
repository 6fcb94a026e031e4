//! What a configuration demands, with the present keys and roots.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::{
    Asked, Candidate, Verdict,
    config::{Format, Formats, ProvenanceConfig, SignatureConfig, SignerConfig},
    finding::{Finding, Signed},
    provenance::{Built, Provenance},
    signer::{Loaded, Read, Signer},
    statement::Says,
    verdict::Tally,
};
use crate::{
    domain::problem::{Path, Problems},
    file::base_dir::BaseDir,
};

/// How often the files are looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The version of the rules in this room. Another version makes another fingerprint, so that what was proven before is proven again.
const RULES: u8 = 1;

/// What a configuration demands. It reads its keys and roots again while the gateway runs.
#[derive(Debug)]
pub struct Policy {
    signers: Vec<Signer>,
    /// Whether all of the signers must have signed, not only one.
    needs_all: bool,
    provenance: Option<Provenance>,
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
    current: Current,
}

/// Which keys and roots are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current {
    /// Changes with the policy, and with the content of its keys and roots. A file that cannot be read counts as another content.
    pub fingerprint: [u8; 32],
    /// How often the content has changed since the policy was built. Equal numbers at two times mean that nothing else was in use in between.
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
    pub fn current(&self) -> Current {
        self.look().current
    }

    /// Judges all `candidates` together.
    ///
    /// Each demand is judged by itself: that one signer signed (`any`), that each signer signed (`all`), and that one of them signed
    /// provenance as demanded. A demand that one candidate meets is met, whatever the other candidates are: a foreign or broken signature
    /// beside a good one changes nothing. If any demand is not met, the verdict is the first of this list that holds for an unmet demand:
    ///
    /// | verdict | a candidate … | before the next because |
    /// |---|---|---|
    /// | unknown | may be the one: its key or root cannot be used, its form is not supported, it is too large | it may outweigh the others |
    /// | bad | claims to be by a signer, and is not, or is about another digest or build | it will not get better, and somebody should look |
    /// | another commit | is valid provenance of another commit | it says more than that there is none |
    /// | absent | is by nobody of the policy, or there is none | |
    #[must_use]
    pub fn judge(&self, asked: &Asked<'_>, candidates: &[Candidate]) -> Verdict {
        let files = self.look().files;
        let mut signed: Vec<Tally> = self.signers.iter().map(|_| Tally::default()).collect();
        let mut built = Tally::default();
        for Candidate { place, form } in candidates {
            let read = Read::of(form);
            for ((signer, file), signed) in self.signers.iter().zip(&*files).zip(&mut signed) {
                let finding = signer.judge(file, &read, asked.digests);
                if let Finding::Signed(found) = finding {
                    self.count(&found, asked, (place, signer), signed, &mut built);
                    continue;
                }
                for tally in [signed, &mut built] {
                    match &finding {
                        Finding::Signed(_) => {}
                        Finding::Unknown(why) => tally.unknown(place, why),
                        Finding::Bad(why) => tally.bad(place, &format!("{why} (it claims to be by {})", signer.name)),
                        Finding::Foreign(why) => tally.absent(place, why),
                    }
                }
            }
        }
        let mut demands = Vec::new();
        if self.needs_all {
            let named = self.signers.iter().zip(signed);
            demands.extend(named.map(|(signer, tally)| (format!("there is no signature by {}", signer.name), tally)));
        } else {
            let merged = signed.into_iter().fold(Tally::default(), Tally::or);
            demands.push(("there is no signature by one of the signers".to_owned(), merged));
        }
        if self.provenance.is_some() {
            demands.push(("there is no provenance signed by one of the signers".to_owned(), built));
        }
        Verdict::of(demands)
    }

    /// Counts a document of `signer` at `place` for what it says.
    fn count(
        &self,
        found: &Signed,
        asked: &Asked<'_>,
        (place, signer): (&str, &Signer),
        vouched: &mut Tally,
        built: &mut Tally,
    ) {
        match &found.says {
            Says::Signed => {
                vouched.good(place, &signer.name, None);
                built.absent(place, "it is a signature, not provenance");
            }
            Says::Other(kind) => {
                let why = format!(
                    "{} signed it, but a statement of the type `{kind}` does not vouch for an image",
                    signer.name
                );
                for tally in [vouched, built] {
                    tally.absent(place, &why);
                }
            }
            Says::Built(predicate) => {
                vouched.good(place, &signer.name, None);
                let Some(provenance) = &self.provenance else { return };
                match provenance.check(predicate, found.claims.as_ref(), asked.commit) {
                    Ok(Built::From(commit)) => built.good(place, &signer.name, Some(commit)),
                    Ok(Built::Other { commit, why }) => built.other(place, commit, &why),
                    Err(why) => built.bad(place, &why),
                }
            }
        }
    }

    /// The present content of the files. A file that cannot be read any more is not replaced by what it held: a key that was removed must not
    /// live on.
    fn look(&self) -> Present {
        let mut present = self.present.lock();
        if present.read_at.elapsed() >= LOOK_EVERY {
            self.look_again(&mut present);
        }
        present.clone()
    }

    fn look_again(&self, present: &mut Present) {
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

    /// Looks at the files now.
    #[cfg(test)]
    pub(super) fn refresh(&self) {
        self.look_again(&mut self.present.lock());
    }
}

impl Present {
    /// `former` is what was in use before.
    fn new(demands: [u8; 32], files: Vec<Arc<Loaded>>, former: Option<Current>) -> Self {
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
                Current { fingerprint, changes, since: read_at, is_complete }
            }
        };
        Self { read_at, files: files.into(), current }
    }
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

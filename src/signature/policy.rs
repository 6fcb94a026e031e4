//! What a configuration demands, with the present keys and roots.

use super::{Asked, Candidate, Formats, ProvenanceConfig, SignatureConfig, Verdict};
use crate::{
    domain::problem::{Path, Problems},
    file::base_dir::BaseDir,
};

/// What a configuration demands. It reads its keys and roots again while the gateway runs.
#[derive(Debug)]
pub(crate) struct Policy {
    formats: Formats,
}

impl Policy {
    /// Reads `signature` at `path`.`signature`, and `provenance` at `path`.`provenance`. Problems are noted.
    pub(crate) fn build(
        signature: &SignatureConfig,
        provenance: Option<&ProvenanceConfig>,
        base: &BaseDir,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        let _ = (signature, provenance, base);
        problems.error(path, "signatures cannot be verified yet");
        None
    }

    /// The forms that are wanted.
    pub(crate) const fn reads(&self) -> Formats {
        self.formats
    }

    /// Changes with the policy, and with the content of its keys and roots.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        [0; 32]
    }

    /// Judges all `candidates` together.
    pub(crate) fn judge(&self, asked: &Asked<'_>, candidates: &[Candidate]) -> Verdict {
        let _ = (asked, candidates);
        Verdict::Unknown("signatures cannot be verified yet".to_owned())
    }
}

//! The verdict over all documents that were found beside an image.

/// Whether an image is signed, and its provenance proven, as the policy demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everything that the policy demands is proven.
    Present(Proof),
    /// There is no signature by a signer of the policy. The text says what was found instead.
    Absent(String),
    /// The signed provenance is valid, and names another commit.
    OtherCommit {
        /// The commit that it names.
        commit: String,
        /// The text for the evidence, with a hint if the commit may be that of a merge.
        why: String,
    },
    /// It cannot be known, such as with a key that cannot be read, or a root that may be outdated.
    Unknown(String),
    /// Something claims to be by a signer of the policy, and is not, or does not fit.
    Bad(String),
}

/// What is proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proof {
    /// The commit that the image was built from, if the policy demands provenance.
    pub(crate) commit: Option<String>,
    /// Who vouches for it, for the evidence: the key's file, or issuer and identity; several are separated by commas.
    pub(crate) signer: String,
    /// The places of the documents that prove it.
    pub(crate) places: Vec<String>,
}

//! The claims of an authority such as Fulcio about a signer.

/// The identity in a certificate, and the run of CI that it belongs to. The numbers are those of Fulcio's extensions
/// (<https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md>).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Claims {
    /// The identity, such as the workflow with its branch.
    pub(super) identity: String,
    /// The issuer of the identity (8).
    pub(super) issuer: String,
    /// The workflow that signed, such as a reusable one (9).
    pub(super) builder: Option<String>,
    /// The repository that the run belongs to (12).
    pub(super) repository: Option<String>,
    /// The commit of the run (13).
    pub(super) commit: Option<String>,
    /// Its branch, tag or pull request (14).
    pub(super) git_ref: Option<String>,
    /// The workflow of the run, with its repository and branch (18).
    pub(super) workflow: Option<String>,
    /// The event that caused the run (20).
    pub(super) event: Option<String>,
}

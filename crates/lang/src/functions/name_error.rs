//! Why a filter makes no name.

/// The longest label, in characters (RFC 1123). Kubernetes allows no longer values of labels, and no longer names of most objects.
pub(super) const MAX_LABEL_CHARS: usize = 63;
/// The shortest limit of a label: one character, a dash and the hash.
pub(super) const MIN_LABEL_CHARS: usize = 10;
/// The longest tag, in characters (OCI distribution specification 1.1).
pub(crate) const MAX_TAG_CHARS: usize = 128;
/// The most characters of a refused text that a message shows.
pub(crate) const MAX_SHOWN: usize = 80;

/// Why a filter makes no name. The texts are the beginnings of those that were refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NameError {
    /// The tag has this many characters.
    #[error("the tag of this branch has {0} characters, and a tag at most {MAX_TAG_CHARS}")]
    TooLong(usize),
    /// The text has no character that the name may begin with. An empty name would be shared by all such texts.
    #[error("`{}` has no character that a {kind} may begin with", .text.escape_debug())]
    NothingLeft {
        /// The text.
        text: String,
        /// The kind of name.
        kind: &'static str,
    },
    /// A label cannot have this many characters.
    #[error("a name may be limited to a number from {least} to {most} characters, not {0}", least = MIN_LABEL_CHARS, most = MAX_LABEL_CHARS)]
    Length(usize),
    /// The text is not a commit.
    #[error("`{}` is not a commit: 8 to 64 hexadecimal digits", .0.escape_debug())]
    NotACommit(String),
}

impl NameError {
    /// `text` has no character that a `kind` may begin with.
    pub(crate) fn nothing_left(text: &str, kind: &'static str) -> Self {
        Self::NothingLeft { text: text.chars().take(MAX_SHOWN).collect(), kind }
    }
}

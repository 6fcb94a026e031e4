//! Signers, with the present content of their files.

use std::{fmt, path::PathBuf, sync::Arc};

use sha2::{Digest as _, Sha256};

#[cfg(feature = "keyless")]
use super::keyless::{self, Root, RootError};
use super::{
    Form,
    bundle::{Bundle, Unread},
    config::{KeylessConfig, SignerConfig},
    document_verdict::DocumentVerdict,
    key::{KeyError, PublicKey},
    simple::SimpleSigning,
};
use domain::{
    document::excerpt,
    file::{self, FileError, base_dir::BaseDir},
    glob::NameGlob,
    problem::{Path, Problems},
};

/// The largest document that is read, in bytes. Real ones have up to 20 KB.
const MAX_BYTES: usize = 1024 * 1024;

/// A signer of the configuration.
#[derive(Debug)]
pub(super) struct Signer {
    kind: Kind,
    /// The file with the public key or the trusted root.
    file: PathBuf,
    /// Whether the file is never read.
    is_offline: bool,
    /// The name, for messages.
    pub(super) name: String,
}

#[derive(Debug)]
enum Kind {
    Key,
    #[cfg_attr(not(feature = "keyless"), allow(dead_code, reason = "no certificate is verified"))]
    Keyless(Identity),
}

/// The identity that a certificate must name.
#[derive(Debug)]
#[cfg_attr(not(feature = "keyless"), allow(dead_code, reason = "no certificate is verified"))]
struct Identity {
    issuer: String,
    name: Option<NameGlob>,
    /// `name` in lower case.
    lower: Option<NameGlob>,
    needs_log: bool,
}

/// The content of a signer's file.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The hash of the file; `None` if it cannot be read.
    pub(super) hash: Option<[u8; 32]>,
    /// # Errors
    /// Why the file cannot be used.
    pub(super) content: Result<Content, SignerFileError>,
}

/// Why a signer's file cannot be used. The text names it.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignerFileError {
    /// No files are read: the configuration is only checked.
    #[error("{} was not read", .0.display())]
    Offline(PathBuf),
    /// It cannot be read.
    #[error("cannot read {}: {cause}", .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why it cannot be read.
        #[source]
        cause: FileError,
    },
    /// It has neither the key nor the root that is expected.
    #[error("{}: {cause}", .file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// Why its content cannot be used.
        #[source]
        cause: FileContentError,
    },
}

/// Why the content of a signer's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileContentError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[cfg(feature = "keyless")]
    #[error(transparent)]
    Root(#[from] RootError),
    #[cfg(not(feature = "keyless"))]
    #[error("this gateway was built without `keyless`")]
    NotKeyless,
}

#[derive(Debug)]
pub(super) enum Content {
    Key(PublicKey),
    #[cfg(feature = "keyless")]
    Root(Box<Root>),
}

/// A candidate, read once for all signers.
#[derive(Debug)]
pub(super) enum Read<'a> {
    /// A bundle, and its bytes.
    #[cfg_attr(not(feature = "keyless"), allow(dead_code, reason = "no certificate is verified"))]
    Bundle(Bundle, &'a [u8]),
    Simple(SimpleSigning<'a>),
    /// It cannot be a signature.
    Junk(String),
    /// Its signer is unknown.
    Unknown(String),
}

impl<'a> Read<'a> {
    pub(super) fn of(form: &'a Form) -> Self {
        let (Form::Bundle(bytes) | Form::SimpleSigning { payload: bytes, .. }) = form else {
            let Form::Unsupported(what) = form else { return Self::Unknown(String::new()) };
            return Self::Unknown(format!(
                "signatures of this form are not supported: {}",
                excerpt(what.as_bytes(), 120)
            ));
        };
        if bytes.len() > MAX_BYTES {
            return Self::Unknown(format!("it has {} bytes, and at most {MAX_BYTES} are read", bytes.len()));
        }
        if let Form::SimpleSigning { payload, layer_digest, signature } = form {
            return Self::Simple(SimpleSigning { payload, layer_digest, signature: signature.as_deref() });
        }
        match Bundle::read(bytes) {
            Ok(bundle) => Self::Bundle(bundle, bytes),
            Err(Unread::Junk(why)) => Self::Junk(why),
            Err(Unread::Unsupported(why)) => Self::Unknown(why),
        }
    }
}

impl Signer {
    /// Checks `config` at `path`, and reads its file. Problems are noted.
    pub(super) fn build(
        config: &SignerConfig,
        base: &BaseDir,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<(Self, Arc<Loaded>)> {
        let (kind, file, at) = match config {
            SignerConfig::Key(key) => (Kind::Key, &key.file, path.key("key").key("file")),
            SignerConfig::Keyless(keyless) => {
                let path = path.key("keyless");
                (
                    Kind::Keyless(Identity::build(keyless, &path, problems)?),
                    &keyless.trusted_root,
                    path.key("trustedRoot"),
                )
            }
        };
        let name = match config {
            SignerConfig::Key(_) => format!("the key {}", file.display()),
            SignerConfig::Keyless(KeylessConfig { identity: None, issuer, .. }) => format!("anybody known to {issuer}"),
            SignerConfig::Keyless(KeylessConfig { identity: Some(identity), issuer, .. }) => {
                format!("{identity} of {issuer}")
            }
        };
        let file = base.resolve(file);
        let is_offline = base.is_offline() || base.may_lack(&file);
        let signer = Self { kind, file, is_offline, name };
        let loaded = signer.load(None);
        if !signer.is_offline
            && let Err(why) = &loaded.content
        {
            problems.note_secret::<(), _>(&at, Err(why));
            return None;
        }
        Some((signer, loaded))
    }

    /// The present content of the file. `former`, if nothing has changed.
    pub(super) fn load(&self, former: Option<&Arc<Loaded>>) -> Arc<Loaded> {
        if self.is_offline {
            return Arc::new(Loaded { hash: None, content: Err(SignerFileError::Offline(self.file.clone())) });
        }
        let unusable = |cause| SignerFileError::Content { file: self.file.clone(), cause };
        let text = match file::secret(&self.file) {
            Ok(text) => text,
            Err(cause) => {
                let error = SignerFileError::File { file: self.file.clone(), cause };
                return Arc::new(Loaded { hash: None, content: Err(error) });
            }
        };
        let hash = Some(Sha256::digest(text.as_bytes()).into());
        if let Some(former) = former.filter(|former| former.hash == hash) {
            return Arc::clone(former);
        }
        Arc::new(Loaded { hash, content: self.kind.read(&text).map_err(unusable) })
    }

    /// Checks one document.
    pub(super) fn check(&self, loaded: &Loaded, read: &Read<'_>, digests: &[String]) -> DocumentVerdict {
        match (&self.kind, read) {
            (_, Read::Unknown(why)) => DocumentVerdict::Unknown(why.clone()),
            (_, Read::Junk(why)) => DocumentVerdict::Foreign(why.clone()),
            (Kind::Key, Read::Bundle(bundle, _)) => match loaded.key() {
                Ok(key) => DocumentVerdict::by_key(bundle, key, digests),
                Err(why) if bundle.is_by_key() => DocumentVerdict::Unknown(why.to_string()),
                Err(_) => DocumentVerdict::Foreign("it was signed with a certificate, not with a key".to_owned()),
            },
            (Kind::Key, Read::Simple(simple)) => match loaded.key() {
                Ok(key) => simple.check(key, digests),
                Err(why) => DocumentVerdict::Unknown(why.to_string()),
            },
            (Kind::Keyless(_), Read::Simple(_)) => {
                DocumentVerdict::Foreign("a legacy signature is verified by a key only".to_owned())
            }
            #[cfg(not(feature = "keyless"))]
            (Kind::Keyless(_), Read::Bundle(..)) => {
                DocumentVerdict::Unknown(loaded.content.as_ref().err().map(ToString::to_string).unwrap_or_default())
            }
            #[cfg(feature = "keyless")]
            (Kind::Keyless(identity), Read::Bundle(bundle, bytes)) => identity.check(loaded, bundle, bytes, digests),
        }
    }
}

impl Kind {
    fn read(&self, text: &str) -> Result<Content, FileContentError> {
        match self {
            Self::Key => Ok(Content::Key(PublicKey::of_pem(text)?)),
            #[cfg(feature = "keyless")]
            Self::Keyless(identity) => Ok(Content::Root(Box::new(Root::read(text, identity.needs_log)?))),
            #[cfg(not(feature = "keyless"))]
            Self::Keyless(_) => Err(FileContentError::NotKeyless),
        }
    }
}

impl Loaded {
    /// How bundles name the key; `None` if there is none.
    pub(super) fn key_name(&self) -> Option<&str> {
        self.key().ok().map(PublicKey::hint)
    }

    fn key(&self) -> Result<&PublicKey, &dyn fmt::Display> {
        match &self.content {
            Ok(Content::Key(key)) => Ok(key),
            #[cfg(feature = "keyless")]
            Ok(Content::Root(_)) => Err(&"it is not a key"),
            Err(why) => Err(why),
        }
    }

    #[cfg(feature = "keyless")]
    fn root(&self) -> Result<&Root, &dyn fmt::Display> {
        match &self.content {
            Ok(Content::Root(root)) => Ok(root),
            Ok(Content::Key(_)) => Err(&"it is not a root"),
            Err(why) => Err(why),
        }
    }
}

impl Identity {
    fn build(config: &KeylessConfig, path: &Path, problems: &mut Problems) -> Option<Self> {
        if config.issuer.trim().is_empty() {
            problems.error(&path.key("issuer"), "it is empty");
            return None;
        }
        let names_all = |identity: &String| identity.chars().all(|c| c == '*');
        if config.identity.as_ref().is_none_or(names_all) {
            let message = format!(
                "everybody with an account at {} may sign; for a public issuer, that is anybody",
                config.issuer
            );
            problems.warning(
                path,
                message,
                "name the signer: `identity: https://github.com/org/repo/.github/workflows/build.yml@refs/heads/main`",
            );
        }
        let (name, lower) = match &config.identity {
            None => (None, None),
            Some(glob) => {
                let name = build_glob(glob, &path.key("identity"), problems)?;
                (Some(name), NameGlob::parse(&glob.to_ascii_lowercase()).ok())
            }
        };
        Some(Self { issuer: config.issuer.clone(), name, lower, needs_log: config.transparency_log })
    }

    #[cfg(feature = "keyless")]
    fn check(&self, loaded: &Loaded, bundle: &Bundle, bytes: &[u8], digests: &[String]) -> DocumentVerdict {
        let fit = |issuer: &str, identity: &str| self.fit(issuer, identity);
        keyless::check((bundle, bytes), loaded.root(), fit, self.needs_log, digests)
    }

    /// Compares the issuer and the identity of a certificate, letter by letter.
    #[cfg(feature = "keyless")]
    fn fit(&self, issuer: &str, identity: &str) -> keyless::Fit {
        let is_meant = |glob: Option<&NameGlob>, name: &str| glob.is_none_or(|glob| glob.matches(name));
        let bare = |issuer: &str| issuer.trim_end_matches('/').to_ascii_lowercase();
        if identity.is_empty() {
            keyless::Fit::Other
        } else if issuer == self.issuer && is_meant(self.name.as_ref(), identity) {
            keyless::Fit::Signer
        } else if bare(issuer) == bare(&self.issuer) && is_meant(self.lower.as_ref(), &identity.to_ascii_lowercase()) {
            keyless::Fit::Misspelt
        } else {
            keyless::Fit::Other
        }
    }
}

/// `glob` for the whole of a text. A `*` also matches `/`.
pub(super) fn build_glob(glob: &str, path: &Path, problems: &mut Problems) -> Option<NameGlob> {
    if glob.trim().is_empty() {
        problems.error(path, "it is empty, so nothing would match");
        return None;
    }
    problems.note(path, NameGlob::parse(glob).map_err(|error| format!("it is not a glob: {error}")))
}

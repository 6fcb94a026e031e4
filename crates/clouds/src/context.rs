//! What building one identity may use.

use std::{fmt, sync::Arc};

use reqwest::Url;

use crate::{broken::Broken, exchange::Exchanges, pod::Pod};
#[cfg(feature = "google")]
use domain::file::base_dir::BaseDir;
use domain::problem::{Path, Problems};
use outbound::{Identity, fixed_url, warn_of_cleartext};

/// What building one identity may use.
pub(crate) struct Context<'a> {
    pub pod: &'a Pod,
    pub exchanges: &'a Exchanges,
    /// The folder that paths of files start from, which only Google has.
    #[cfg(feature = "google")]
    pub base: &'a BaseDir,
    /// Whether this is another machine than the one that serves, so that the environment says nothing.
    pub is_lenient: bool,
}

impl Context<'_> {
    /// The source that was `found`. `variable` is one that names it, and `covers` says which registries it is for.
    ///
    /// # Errors
    /// What to use in its place, if there is none: an identity that only fails. On the machine that serves, that is a mistake.
    pub(crate) fn found<T, E: fmt::Display>(
        &self,
        found: Result<Option<T>, E>,
        (variable, covers): (&str, fn(&str) -> bool),
        path: &Path,
        problems: &mut Problems,
    ) -> Result<T, Arc<dyn Identity>> {
        let why = match found {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {
                format!("this pod has no identity of this cloud: its environment lacks {variable}, among others")
            }
            Err(error) => error.to_string(),
        };
        if !self.is_lenient {
            let help = "every use of it fails; docs/registries.md says what each cloud needs. On another machine, such as a laptop, use \
                        `check --no-secrets`";
            problems.mistake(path, why.clone(), help);
        }
        Err(Arc::new(Broken { why, covers }))
    }
}

/// An endpoint of the configuration.
pub(crate) fn endpoint_url(url: &str, path: &Path, problems: &mut Problems) -> Option<Url> {
    let mut url = problems.note(path, fixed_url(url))?;
    warn_of_cleartext(&url, path, problems);
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Some(url)
}

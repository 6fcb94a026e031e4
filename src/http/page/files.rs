//! The files of the page, which are part of the program. Their names have a hash of their content, so that browsers can keep them.

use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

/// A file of the page.
pub(crate) struct File {
    /// Its path on the admin listener.
    pub(crate) path: String,
    /// Its type.
    pub(crate) kind: &'static str,
    /// Its content.
    pub(crate) content: &'static str,
}

/// The style of the page.
pub(super) static STYLE: LazyLock<File> =
    LazyLock::new(|| File::new("css", "text/css; charset=utf-8", include_str!("page.css")));
/// The script of the page: it refreshes the page.
pub(super) static SCRIPT: LazyLock<File> =
    LazyLock::new(|| File::new("js", "text/javascript; charset=utf-8", include_str!("page.js")));
/// The icon in a browser's tab.
pub(super) static ICON: LazyLock<File> = LazyLock::new(|| File::new("svg", "image/svg+xml", include_str!("icon.svg")));

impl File {
    fn new(ending: &str, kind: &'static str, content: &'static str) -> Self {
        let hash = base16ct::lower::encode_string(&Sha256::digest(content)[..8]);
        Self { path: format!("/page/{hash}.{ending}"), kind, content }
    }
}

/// The file at `path`.
pub(crate) fn at(path: &str) -> Option<&'static File> {
    [&STYLE, &SCRIPT, &ICON].into_iter().map(|file| &**file).find(|file| file.path == path)
}

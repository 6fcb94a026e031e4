//! The backends of the matrix, and how their sources answer that are not at fault.

use serde_json::json;

use super::rendition::{JSON, MANIFEST, OCI, UNKNOWN, digest};
use crate::support::upstream::{Request, Step, json_response};

/// A registry's list of no tags.
pub const NO_TAGS: &str = r#"{"name":"org/app","tags":[]}"#;
/// What a list selects, in the order of its answer.
const TAGS: [&str; 3] = ["c", "b", "a"];
/// What CI says of a commit that passed.
pub const PASSED: &str = r#"{"result":"passed"}"#;
/// The parameter sets of all sources but registries.
const SETS: &str = r#"[{"name":"a"},{"name":"b"},{"name":"c"}]"#;

/// The backends of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Script,
    Worker,
    /// The script within a merge within a pipeline.
    Pipeline,
    Http,
    /// `http` with `plugin`.
    Plugin,
    Digests,
    /// `digests` with `list`, whose list of tags is at fault.
    List,
    /// The same, where one of the tags that are listed is at fault.
    Tag,
    /// `digests` with an `http` gate: CI is at fault, and the registry is well.
    Gate,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::Script,
        Self::Worker,
        Self::Pipeline,
        Self::Http,
        Self::Plugin,
        Self::Digests,
        Self::List,
        Self::Tag,
        Self::Gate,
    ];

    /// What it is called here.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Plugin => "plugin",
            Self::List => "list",
            Self::Tag => "tag",
            Self::Gate => "gate",
            _ => self.backend(),
        }
    }

    /// As in a configuration.
    pub const fn backend(self) -> &'static str {
        match self {
            Self::Script | Self::Worker => "script",
            Self::Pipeline => "pipeline",
            Self::Http | Self::Plugin => "http",
            Self::Digests | Self::List | Self::Tag | Self::Gate => "digests",
        }
    }

    /// The parameter sets of the good answer.
    pub fn good(self) -> String {
        match self {
            Self::Digests | Self::Gate => format!(r#"[{{"app":"{}"}}]"#, digest(MANIFEST)),
            Self::List | Self::Tag => {
                let sets = TAGS.map(|tag| format!(r#"{{"app":"{tag}@{}"}}"#, digest(MANIFEST)));
                format!("[{}]", sets.join(","))
            }
            _ => SETS.to_owned(),
        }
    }

    /// Whether a fault leaves `request` alone.
    pub fn spares(self, request: &Request) -> bool {
        let is_struck = |of: &str| request.target.starts_with(of);
        self == Self::Tag && !is_struck("/v2/org/app/manifests/b") && !is_struck("/token")
    }

    /// How a source answers that is well.
    pub fn well(self, request: &Request) -> Vec<Step> {
        match self {
            Self::List | Self::Tag if is_list(request) => {
                request.answer(200, JSON, json!({"name": "org/app", "tags": TAGS}).to_string())
            }
            Self::Digests | Self::List | Self::Tag => {
                request.answer(200, &format!("{OCI}\r\nDocker-Content-Digest: {}", digest(MANIFEST)), MANIFEST)
            }
            Self::Gate => vec![Step::Send(json_response(PASSED))],
            Self::Plugin => vec![Step::Send(json_response(format!("{{\"output\":{{\"parameters\":{SETS}}}}}")))],
            _ => vec![Step::Send(json_response(SETS))],
        }
    }

    /// How an API answers whose list is in an object: it is well, or has nothing.
    pub fn wrapped(is_well: bool) -> Vec<Step> {
        let list = if is_well { SETS } else { "[]" };
        vec![Step::Send(json_response(format!("{{\"items\":{list}}}")))]
    }

    /// How a source answers that provably has nothing. CI still says that the commit passed: the registry has no image.
    pub fn nothing(self, request: &Request) -> Vec<Step> {
        let (status, body) = self.nothing_parts();
        request.answer(status, JSON, body)
    }

    /// That answer's status and body.
    pub const fn nothing_parts(self) -> (u16, &'static str) {
        match self {
            Self::Digests => (404, UNKNOWN),
            Self::List | Self::Tag => (200, NO_TAGS),
            Self::Gate => (200, PASSED),
            Self::Plugin => (200, r#"{"output":{"parameters":[]}}"#),
            _ => (200, "[]"),
        }
    }
}

/// Whether it asks for a list of tags.
fn is_list(request: &Request) -> bool {
    request.target.starts_with("/v2/org/app/tags/list")
}

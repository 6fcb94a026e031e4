//! The backends of the matrix, and the answers of their sources without a fault.

use serde_json::json;

use super::{
    elements::sets,
    rendition::{JSON, MANIFEST, OCI, UNKNOWN, digest},
    signed,
};
use crate::support::upstream::{Request, Step, json_response};

/// A registry's list of no tags.
pub(super) const NO_TAGS: &str = r#"{"name":"org/app","tags":[]}"#;
/// The selected tags, in the order of the answer.
const TAGS: [&str; 3] = ["c", "b", "a"];
/// The answer of CI about a passed commit.
pub(super) const PASSED: &str = r#"{"result":"passed"}"#;
/// The parameter sets of all sources but registries.
const SETS: &str = r#"[{"name":"a"},{"name":"b"},{"name":"c"}]"#;

/// The backends of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Script,
    Worker,
    /// The script within a merge within a pipeline.
    Pipeline,
    Http,
    /// `http` with `plugin`.
    Plugin,
    Digests,
    /// `digests` with `list`; the list of tags has the fault.
    List,
    /// The same; one of the listed tags has the fault.
    Tag,
    /// `digests` with an `http` gate; CI has the fault, and the registry works.
    Gate,
    /// `digests` with `signature`; the requests for the signatures of a new image have the fault, and its tag works.
    Signature,
    /// `http` within `each`; one of five elements has the fault.
    OneElement,
    /// The same; two of five.
    SomeElements,
    /// The same; all.
    AllElements,
    /// The same; the list has the fault, and the elements work.
    ElementList,
}

impl Kind {
    pub(super) const ALL: [Self; 14] = [
        Self::Script,
        Self::Worker,
        Self::Pipeline,
        Self::Http,
        Self::Plugin,
        Self::Digests,
        Self::List,
        Self::Tag,
        Self::Gate,
        Self::Signature,
        Self::OneElement,
        Self::SomeElements,
        Self::AllElements,
        Self::ElementList,
    ];

    /// The name in the table.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Plugin => "plugin",
            Self::List => "list",
            Self::Tag => "tag",
            Self::Gate => "gate",
            Self::Signature => "signature",
            Self::OneElement => "one-element",
            Self::SomeElements => "some-elements",
            Self::AllElements => "all-elements",
            Self::ElementList => "list-of-elements",
            _ => self.backend(),
        }
    }

    /// The name in a configuration.
    pub(super) const fn backend(self) -> &'static str {
        match self {
            Self::Script | Self::Worker => "script",
            Self::Pipeline | Self::OneElement | Self::SomeElements | Self::AllElements | Self::ElementList => {
                "pipeline"
            }
            Self::Http | Self::Plugin => "http",
            Self::Digests | Self::List | Self::Tag | Self::Gate | Self::Signature => "digests",
        }
    }

    /// The parameter sets of the good answer.
    pub(super) fn good(self) -> String {
        match self {
            Self::Digests | Self::Gate | Self::Signature => format!(r#"[{{"app":"{}"}}]"#, digest(MANIFEST)),
            Self::List | Self::Tag => {
                let sets = TAGS.map(|tag| format!(r#"{{"app":"{tag}@{}"}}"#, digest(MANIFEST)));
                format!("[{}]", sets.join(","))
            }
            _ if self.has_elements() => sets(|_| "1"),
            _ => SETS.to_owned(),
        }
    }

    /// Whether faults do not affect `request`.
    pub(super) fn spares(self, request: &Request) -> bool {
        let is_struck = |of: &str| request.target.starts_with(of);
        match self {
            Self::Tag => !["/v2/org/app/manifests/b", "/token", "/elsewhere"].into_iter().any(is_struck),
            Self::Signature => signed::is_tag(request),
            _ => false,
        }
    }

    /// The response to a request that faults do not affect.
    pub(super) fn spared(self, request: &Request) -> Vec<Step> {
        if self == Self::Signature { signed::tag(request, signed::NEXT) } else { self.well(request) }
    }

    /// The response of a working source.
    pub(super) fn well(self, request: &Request) -> Vec<Step> {
        match self {
            Self::List | Self::Tag if is_list(request) => {
                request.answer(200, JSON, json!({"name": "org/app", "tags": TAGS}).to_string())
            }
            Self::Digests | Self::List | Self::Tag => {
                request.answer(200, &format!("{OCI}\r\nDocker-Content-Digest: {}", digest(MANIFEST)), MANIFEST)
            }
            Self::Gate => vec![Step::Send(json_response(PASSED))],
            Self::Signature => signed::well(request),
            Self::Plugin => vec![Step::Send(json_response(format!("{{\"output\":{{\"parameters\":{SETS}}}}}")))],
            _ => vec![Step::Send(json_response(SETS))],
        }
    }

    /// The response of an API whose list is in an object: a working one, or one that has nothing.
    pub(super) fn wrapped(is_well: bool) -> Vec<Step> {
        let list = if is_well { SETS } else { "[]" };
        vec![Step::Send(json_response(format!("{{\"items\":{list}}}")))]
    }

    /// The response of a source that provably has nothing. CI still passes the commit, but the registry has no image.
    pub(super) fn nothing(self, request: &Request) -> Vec<Step> {
        let (status, body) = self.nothing_parts();
        request.answer(status, JSON, body)
    }

    /// The status and body of that response.
    pub(super) const fn nothing_parts(self) -> (u16, &'static str) {
        match self {
            Self::Digests | Self::Signature => (404, UNKNOWN),
            Self::List | Self::Tag => (200, NO_TAGS),
            Self::Gate => (200, PASSED),
            Self::Plugin => (200, r#"{"output":{"parameters":[]}}"#),
            _ => (200, "[]"),
        }
    }
}

/// Whether the request is for a list of tags.
fn is_list(request: &Request) -> bool {
    request.target.starts_with("/v2/org/app/tags/list")
}

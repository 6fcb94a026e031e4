//! The commit that an image was built from, by its label. While CI runs, a tag still points at the image of the commit
//! before.

use schemars::JsonSchema;
use serde::Deserialize;

use super::commit::Commit;
use domain::error::BackendError;
use oci::Contents;

/// The commit that the images must have been built from.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RevisionConfig {
    /// The full commit, a template over `params` and `applicationSet`, such as `{{ params.head_sha }}`.
    pub expect: String,
    /// The requirement for `org.opencontainers.image.revision`, of the annotations or else of the image's labels.
    #[serde(default)]
    pub policy: RevisionPolicy,
}

/// The requirement for an image's revision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RevisionPolicy {
    /// The expected commit; an image without a revision is an error.
    #[default]
    Require,
    /// The expected commit; an image without a revision passes.
    Prefer,
    /// Any: the answer names it, and it is not compared.
    Ignore,
}

/// The result of comparing an image's revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RevisionMatch {
    /// The image may be used; the revision that it names.
    Fits(String),
    /// The image was built for another commit; the reason to show.
    Other(String),
}

/// Checks the revision of an image with `contents` under `tag`. While CI works, the image of the commit before is still there.
///
/// # Errors
/// When the image must name a revision, and does not.
pub(super) fn check(
    policy: RevisionPolicy,
    expected: &Commit,
    contents: &Contents,
    tag: &str,
    is_ci_done: bool,
) -> Result<RevisionMatch, BackendError> {
    let annotated = contents.revision.as_deref().map(str::trim).filter(|annotated| !annotated.is_empty());
    let Some(annotated) = annotated else {
        return match policy {
            RevisionPolicy::Require => Err(BackendError::invalid_output(
                "it has neither an annotation nor a label `org.opencontainers.image.revision`, which `policy: require` needs; \
                 let CI set it (docker/metadata-action does), or set `policy: prefer`",
            )),
            RevisionPolicy::Prefer | RevisionPolicy::Ignore => Ok(RevisionMatch::Fits("it names none".to_owned())),
        };
    };
    let shown: String = annotated.chars().take(64).collect();
    if policy == RevisionPolicy::Ignore || expected.is(annotated) {
        return Ok(RevisionMatch::Fits(shown));
    }
    let hint = if is_ci_done && looks_merged(expected, contents, tag) {
        ". If that stays so, it is a merge commit: CI that builds a pull request checks out the merge of it, unless it is configured otherwise. Let CI \
         build the head commit, or label it: DOCKER_METADATA_PR_HEAD_SHA=true for docker/metadata-action, a branch pipeline or \
         CI_MERGE_REQUEST_SOURCE_BRANCH_SHA for GitLab's merged results"
    } else {
        ""
    };
    Ok(RevisionMatch::Other(format!("it was built for {shown}, not for {expected}{hint}")))
}

/// Whether CI probably built the image for `expected`, but from its merge commit: the tag names the commit or a pull request.
fn looks_merged(expected: &Commit, contents: &Contents, tag: &str) -> bool {
    let is_pull = |name: &str| {
        let name = name.to_ascii_lowercase();
        let number = ["pr-", "pull-", "mr-", "merge-"].iter().find_map(|start| name.strip_prefix(start));
        number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()) || rest.starts_with("request"))
    };
    let (tag, sha) = (tag.to_ascii_lowercase(), expected.as_str());
    tag.contains(&sha[..7]) || is_pull(&tag) || contents.version.as_deref().is_some_and(is_pull)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(
        policy: RevisionPolicy,
        revision: Option<&str>,
        tag: &str,
        version: Option<&str>,
    ) -> Result<RevisionMatch, String> {
        let expected = Commit::parse(&"a1".repeat(20)).unwrap();
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let contents = Contents { revision: owned(revision), version: owned(version), ..Contents::default() };
        check(policy, &expected, &contents, tag, true).map_err(|error| error.message)
    }

    #[test]
    fn each_policy_accepts_its_revisions() {
        let (same, other) = ("A1".repeat(20), "b2".repeat(20));
        for policy in [RevisionPolicy::Require, RevisionPolicy::Prefer, RevisionPolicy::Ignore] {
            assert_eq!(verdict(policy, Some(&same), "main", None), Ok(RevisionMatch::Fits(same.clone())));
            let on_other = verdict(policy, Some(&other), "main", None).unwrap();
            assert_eq!(matches!(on_other, RevisionMatch::Fits(_)), policy == RevisionPolicy::Ignore, "{policy:?}");
            for none in [None, Some(""), Some("  ")] {
                assert_eq!(
                    verdict(policy, none, "main", None).is_err(),
                    policy == RevisionPolicy::Require,
                    "{policy:?}"
                );
            }
        }
        // A shortened commit does not match: several commits may share it.
        assert!(matches!(
            verdict(RevisionPolicy::Require, Some(&same[..12]), "main", None),
            Ok(RevisionMatch::Other(_))
        ));
    }

    #[test]
    fn a_probable_merge_commit_is_explained() {
        let other = "b2".repeat(20);
        let explained = |tag: &str, version: Option<&str>| {
            let RevisionMatch::Other(why) = verdict(RevisionPolicy::Require, Some(&other), tag, version).unwrap()
            else {
                panic!()
            };
            assert!(why.starts_with(&format!("it was built for {other}, not for a1a1")), "{why}");
            why.contains("DOCKER_METADATA_PR_HEAD_SHA") && why.contains("GitLab")
        };
        for (tag, version, expected) in [
            ("main", None, false),
            ("production", Some("1.2.3"), false),
            ("mr-robot", None, false),
            ("pr-12", None, true),
            ("sha-a1a1a1a", None, true),
            ("a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1", None, true),
            ("feat-1", Some("pr-12"), true),
            ("merge-request-7", None, true),
        ] {
            assert_eq!(explained(tag, version), expected, "{tag} {version:?}");
        }
    }
}

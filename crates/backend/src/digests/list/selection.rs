//! Selects tags only by their names, and sorts them.

use regex::Regex;
use schemars::JsonSchema;
use semver::{Version, VersionReq};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::pattern::{GlobPattern, GlobPatternError, check_tag_part};
use domain::{
    error::BackendError,
    pattern::{self, PatternError},
    problem::{Path, Problems},
};
use lang::{
    evaluator::Context,
    scope::NameScope,
    template::{Template, TemplateError, ValueContext},
};

/// The prefix of tags that belong to the image with the digest that follows.
const DIGEST_TAG_PREFIX: &str = "sha256-";

/// Which tags: those that fit every key that is set.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TagsConfig {
    /// A pattern in which `*` stands for any text and `?` for one character; a template over `params` and
    /// `applicationSet`. The texts that they match are in `captures`, a list; of several `*` the first takes as much as it can.
    pub glob: Option<String>,
    /// A regular expression for the whole tag. The texts of its named groups are in `captures`, a map.
    pub regex: Option<String>,
    /// A range of versions, such as `>=1.2, <2`. A tag is a version if it has all three numbers, with or without a `v` before
    /// them, and with a `_` in place of a `+`. Tags that are not versions, such as `1.2`, are left out. So are pre-releases,
    /// unless the range names one.
    pub semver: Option<String>,
    /// Patterns of tags that are left out, with `*` and `?` as in `glob`.
    #[serde(default)]
    pub ignore: Vec<String>,
}

/// An order, the newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Sort {
    /// By version; tags that are not versions are left out. `v1.2.3` comes before `1.2.3`.
    Semver,
    /// By the time of the build, for which all tags must be opened. Tags without a time come last.
    Created,
    /// By name, in reverse alphabetical order.
    Alphabetical,
}

/// A tag that is selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub tag: String,
    /// Its version, if it is one.
    pub version: Option<Version>,
    /// The texts that the pattern's wildcards or groups match.
    pub captures: Option<Value>,
}

/// Selects and sorts tags.
#[derive(Debug)]
pub struct Selection {
    glob: Option<Template>,
    regex: Option<Regex>,
    range: Option<VersionReq>,
    ignored: Vec<GlobPattern>,
    sort: Sort,
}

impl Selection {
    /// Parses the patterns; `path` is the list's.
    pub fn build(
        config: &TagsConfig,
        sort: Option<Sort>,
        scope: &NameScope,
        path: &Path,
        problems: &mut Problems,
    ) -> Self {
        let path = path.key("tags");
        if config.glob.is_some() && config.regex.is_some() {
            problems.error_with_help(
                &path.key("regex"),
                "`glob` and `regex` exclude each other",
                "keep one of them; `ignore` leaves tags out",
            );
        }
        let mut ignored = Vec::new();
        for (index, pattern) in config.ignore.iter().enumerate() {
            ignored.extend(problems.note(&path.key("ignore").index(index), GlobPattern::of_tags(pattern)));
        }
        let glob = config.glob.as_ref().and_then(|glob| {
            let path = path.key("glob");
            let template = problems.note(&path, parse_glob(glob, scope))?;
            template.check(scope, &path, problems);
            Some(template)
        });
        let usual = if config.semver.is_some() { Sort::Semver } else { Sort::Alphabetical };
        Self {
            glob,
            regex: config.regex.as_ref().and_then(|regex| problems.note(&path.key("regex"), parse_regex(regex))),
            range: config.semver.as_ref().and_then(|range| problems.note(&path.key("semver"), parse_range(range))),
            ignored,
            sort: sort.unwrap_or(usual),
        }
    }

    /// The order.
    #[must_use]
    pub const fn sort(&self) -> Sort {
        self.sort
    }

    /// The selected ones of `tags`, sorted as far as names allow.
    ///
    /// # Errors
    /// When a parameter's value is not allowed in the pattern.
    pub async fn select(&self, tags: Vec<String>, context: &Context) -> Result<Vec<Candidate>, BackendError> {
        let glob = match &self.glob {
            Some(glob) => {
                let text = context.render(glob).await;
                let pattern =
                    text.and_then(|text| GlobPattern::of_tags(&text).map_err(|error| error.to_string().into()));
                Some(
                    pattern
                        .map_err(|error| error.within("tags.glob").into_backend_error(BackendError::invalid_input))?,
                )
            }
            None => None,
        };
        let mut selected: Vec<Candidate> =
            tags.into_iter().filter_map(|tag| self.candidate(tag, glob.as_ref())).collect();
        match self.sort {
            Sort::Semver => selected.sort_by(|a, b| (&b.version, &b.tag).cmp(&(&a.version, &a.tag))),
            Sort::Created | Sort::Alphabetical => selected.sort_by(|a, b| b.tag.cmp(&a.tag)),
        }
        Ok(selected)
    }

    fn candidate(&self, tag: String, glob: Option<&GlobPattern>) -> Option<Candidate> {
        if is_beside_an_image(&tag) || self.ignored.iter().any(|pattern| pattern.fits(&tag)) {
            return None;
        }
        let version = version(&tag);
        let is_in_range = |range: &VersionReq| version.as_ref().is_some_and(|version| range.matches(version));
        if self.range.as_ref().is_some_and(|range| !is_in_range(range))
            || (self.sort == Sort::Semver && version.is_none())
        {
            return None;
        }
        let mut captures = None;
        if let Some(glob) = glob {
            captures = Some(glob.captures(&tag)?.into());
        }
        if let Some(regex) = &self.regex {
            let found = regex.captures(&tag)?;
            let named = regex.capture_names().flatten();
            let parts = named.map(|name| (name.to_owned(), found.name(name).map_or("", |part| part.as_str()).into()));
            captures = Some(Value::Object(parts.collect::<Map<_, _>>()));
        }
        Some(Candidate { tag, version, captures })
    }

    /// Whether the pattern depends on the ApplicationSet's name.
    #[must_use]
    pub fn reads_application_set(&self) -> bool {
        self.glob.as_ref().is_some_and(Template::reads_application_set)
    }
}

/// The version of a tag: with or without a `v` before it, and with a `_` for the `+`, which is not allowed in tags.
fn version(tag: &str) -> Option<Version> {
    let text = tag.strip_prefix('v').unwrap_or(tag);
    Version::parse(&text.replacen('_', "+", 1)).ok()
}

/// Whether tools made this tag for an image's digest: a signature, an attestation, or the list of them (distribution
/// specification 1.1, "Referrers Tag Schema").
fn is_beside_an_image(tag: &str) -> bool {
    let Some((digits, rest)) = tag.strip_prefix(DIGEST_TAG_PREFIX).and_then(|rest| rest.split_at_checked(64)) else {
        return false;
    };
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()) && (rest.is_empty() || rest.starts_with('.'))
}

/// Why a text of `tags` cannot select tags.
#[derive(Debug, thiserror::Error)]
enum SelectionError {
    /// It is not a template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// It is not a pattern of tags.
    #[error(transparent)]
    Glob(#[from] GlobPatternError),
    /// It is not a regular expression.
    #[error(transparent)]
    Regex(#[from] PatternError),
    /// It would select tags that belong to an image.
    #[error("tags with `{DIGEST_TAG_PREFIX}` and a digest are kept beside an image, and never selected")]
    BesideAnImage,
}

fn parse_glob(glob: &str, scope: &NameScope) -> Result<Template, SelectionError> {
    let template = Template::parse(glob, ValueContext::Reference, scope)?;
    let fixed = template.fixed_prefix();
    if fixed == glob {
        GlobPattern::of_tags(glob)?;
    }
    check_tag_part(fixed)?;
    refuse_beside(fixed)?;
    Ok(template)
}

/// A text is not a range of versions.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not a range of versions such as `>=1.2, <2`: {cause}")]
struct RangeError {
    text: String,
    #[source]
    cause: semver::Error,
}

fn parse_range(range: &str) -> Result<VersionReq, RangeError> {
    VersionReq::parse(range).map_err(|cause| RangeError { text: range.to_owned(), cause })
}

fn parse_regex(regex: &str) -> Result<Regex, SelectionError> {
    let parsed = pattern::whole(regex)?;
    refuse_beside(regex.trim_start_matches('^'))?;
    Ok(parsed)
}

fn refuse_beside(start: &str) -> Result<(), SelectionError> {
    if start.starts_with(DIGEST_TAG_PREFIX) { Err(SelectionError::BesideAnImage) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use futures_util::FutureExt as _;

    use domain::generator::Query;
    use lang::evaluator::Evaluator;

    fn select(config: &Value, sort: Option<&str>, tags: &[&str]) -> Result<Vec<Candidate>, String> {
        let config: TagsConfig = serde_json::from_value(config.clone()).unwrap();
        let sort = sort.map(|sort| serde_json::from_value(json!(sort)).unwrap());
        let mut problems = Problems::default();
        let selection = Selection::build(&config, sort, &NameScope::input(), &Path::root(), &mut problems);
        if let Some(problem) = problems.into_vec().first() {
            return Err(problem.message.clone());
        }
        let parameters = json!({"number": "12", "branch": "feat/x", "wild": "*"}).as_object().unwrap().clone();
        let query = Query::new("a".into(), parameters.into(), tokio::time::Instant::now());
        let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        selection
            .select(tags, &Context::of_input(&query, &Evaluator::none()))
            .now_or_never()
            .unwrap()
            .map_err(|error| error.message)
    }

    fn names(config: &Value, sort: Option<&str>, tags: &[&str]) -> Vec<String> {
        select(config, sort, tags).unwrap().into_iter().map(|candidate| candidate.tag).collect()
    }

    const TAGS: [&str; 9] =
        ["1.2.3", "v1.10.0", "1.9.0", "2.0.0-rc.1", "2.0.0", "latest", "main", "pr-12-abc", "pr-7-def"];

    #[test]
    fn versions_are_sorted_as_versions() {
        assert_eq!(names(&json!({"semver": ">=1.2, <2"}), None, &TAGS), ["v1.10.0", "1.9.0", "1.2.3"]);
        assert_eq!(names(&json!({"semver": ">=2.0.0-rc.0"}), None, &TAGS), ["2.0.0", "2.0.0-rc.1"]);
        assert_eq!(names(&json!({}), Some("semver"), &TAGS), ["2.0.0", "2.0.0-rc.1", "v1.10.0", "1.9.0", "1.2.3"]);
        assert_eq!(names(&json!({"semver": "*", "ignore": ["v*"]}), None, &TAGS), ["2.0.0", "1.9.0", "1.2.3"]);
    }

    #[test]
    fn equal_versions_and_tags_that_are_not_versions() {
        let tags =
            ["1.2.3", "v1.2.3", "1.2.3_b.2", "1.2.3_b.10", "1.2", "v1", "V1.2.3", "01.2.3", "1.2.3-rc_b", "1.2.3_a_b"];
        let sorted = ["1.2.3_b.10", "1.2.3_b.2", "v1.2.3", "1.2.3", "1.2.3-rc_b"];
        assert_eq!(names(&json!({}), Some("semver"), &tags), sorted);
        let found = select(&json!({"semver": "=1.2.3"}), None, &tags).unwrap();
        assert_eq!(found.len(), 4);
        assert_eq!(found[0].version.as_ref().unwrap().build.as_str(), "b.10");
    }

    #[test]
    fn tags_of_signatures_are_never_selected() {
        let digest = format!("sha256-{}", "0a".repeat(32));
        let (signature, other) = (format!("{digest}.sig"), format!("{digest}0"));
        let tags = [&*digest, &signature, &other, "sha256-notes", "sha256-é", "main"];
        assert_eq!(names(&json!({}), None, &tags), ["sha256-é", "sha256-notes", &*other, "main"]);
    }

    #[test]
    fn patterns_select_and_capture() {
        let found = select(&json!({"glob": "pr-*-*"}), None, &TAGS).unwrap();
        assert_eq!(found[0].tag, "pr-7-def");
        assert_eq!(found[1].captures, Some(json!(["12", "abc"])));
        assert_eq!(names(&json!({"glob": "pr-{{ params.number }}-*"}), None, &TAGS), ["pr-12-abc"]);
        assert_eq!(names(&json!({"glob": "mai?"}), None, &TAGS), ["main"]);
        let found = select(&json!({"regex": r"pr-(?<number>\d+)-(?<sha>[a-z]+)"}), None, &TAGS).unwrap();
        assert_eq!(found[0].captures, Some(json!({"number": "7", "sha": "def"})));
        // A pattern must fit the whole tag.
        assert_eq!(names(&json!({"regex": "pr"}), None, &TAGS), [""; 0]);
        assert_eq!(names(&json!({"glob": "1.2"}), None, &["1.2.3", "1x2", "1.2"]), ["1.2"]);
        assert_eq!(names(&json!({"ignore": ["pr-*", "latest", "*.*"]}), None, &TAGS), ["main"]);
    }

    #[test]
    fn impossible_patterns_are_refused() {
        for (config, says) in [
            (json!({"regex": "("}), "not a regular expression"),
            (json!({"semver": "newest"}), "not a range of versions"),
            (json!({"regex": "a)|(?:b"}), "not a regular expression"),
            (json!({"regex": "^sha256-.*"}), "never selected"),
            (json!({"semver": ""}), "not a range of versions"),
            (json!({"glob": ""}), "empty"),
            (json!({"glob": "[a-z]*"}), "fits no tag"),
            (json!({"glob": "feat/{{ params.number }}"}), "fits no tag"),
            (json!({"glob": "sha256-*.sig"}), "never selected"),
            (json!({"glob": "a*", "regex": "a.*"}), "exclude each other"),
            (json!({"ignore": ["a["]}), "fits no tag"),
            (json!({"ignore": [""]}), "empty"),
            (json!({"glob": "{{ number }}"}), "unknown name"),
        ] {
            let error = select(&config, None, &TAGS).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
        // A parameter's value matches only itself. A value with a character that no tag has would select nothing.
        for glob in ["{{ params.branch }}-*", "{{ params.wild }}", "{{ params.number }}[a]"] {
            let error = select(&json!({"glob": glob}), None, &TAGS).unwrap_err();
            assert!(
                error.starts_with("tags.glob: ") && error.contains("cannot be in") || error.contains("fits no tag"),
                "{error}"
            );
        }
        assert!(select(&json!({"glob": "{{ params.other }}*"}), None, &TAGS).unwrap_err().contains("params.other"));
    }
}

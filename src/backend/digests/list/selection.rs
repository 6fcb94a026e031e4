//! Which tags are selected, by their names alone, and in which order.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use minijinja::Value as TemplateValue;
use regex::Regex;
use schemars::JsonSchema;
use semver::{Version, VersionReq};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    error::BackendError,
    problem::{Path, Problems},
    template::{INPUT_SCOPE, Place, Template},
};

/// Which tags: those that fit all that is set.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TagsConfig {
    /// A pattern in which `*` stands for any text and `?` for one character; a template over `params` and
    /// `applicationSet`. What they stand for is in `captures`, a list.
    pub glob: Option<String>,
    /// A regular expression for the whole tag. What its named groups hold is in `captures`, a map.
    pub regex: Option<String>,
    /// A range of versions, such as `>=1.2, <2`. A tag is a version with or without a `v` before it; those that are none
    /// are left out, and versions before a release too, unless the range names one.
    pub semver: Option<String>,
    /// Patterns of tags that are left out.
    #[serde(default)]
    pub ignore: Vec<String>,
}

/// An order, the newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Sort {
    /// By version; tags that are none are left out.
    Semver,
    /// By the time of the build; what does not say when comes last.
    Created,
    /// By name, the last in the alphabet first.
    Alphabetical,
}

/// A tag that is selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub tag: String,
    /// The version that it is, where that matters.
    pub version: Option<Version>,
    /// What the pattern's wildcards or groups stand for.
    pub captures: Option<Value>,
}

/// What selects tags.
#[derive(Debug)]
pub(super) struct Selection {
    glob: Option<Template>,
    regex: Option<Regex>,
    range: Option<VersionReq>,
    ignored: GlobSet,
    sort: Sort,
}

impl Selection {
    /// Parses the patterns; `path` is the list's.
    pub fn build(config: &TagsConfig, sort: Option<Sort>, path: &Path, problems: &mut Problems) -> Option<Self> {
        let path = path.key("tags");
        let glob = config.glob.as_ref().map(|glob| {
            let parsed = check_glob(glob).and_then(|()| Template::parse(glob, Place::Reference, INPUT_SCOPE));
            problems.note(&path.key("glob"), parsed)
        });
        if config.glob.is_some() && config.regex.is_some() {
            problems.error_with_help(
                &path.key("regex"),
                "both `glob` and `regex` say what tags look like",
                "write one of them; `ignore` leaves tags out",
            );
        }
        let regex = config.regex.as_ref().map(|regex| {
            let anchored = Regex::new(&format!("^(?:{regex})$"));
            problems.note(&path.key("regex"), anchored)
        });
        let range = config.semver.as_ref().map(|range| problems.note(&path.key("semver"), VersionReq::parse(range)));
        let mut ignored = GlobSetBuilder::new();
        for (index, pattern) in config.ignore.iter().enumerate() {
            let glob = GlobBuilder::new(pattern).literal_separator(false).build();
            if let Some(glob) = problems.note(&path.key("ignore").index(index), glob) {
                ignored.add(glob);
            }
        }
        let ignored = problems.note(&path.key("ignore"), ignored.build())?;
        let usual = if config.semver.is_some() { Sort::Semver } else { Sort::Alphabetical };
        let (glob, regex, range) = (
            glob.map_or(Some(None), |glob| glob.map(Some))?,
            regex.map_or(Some(None), |regex| regex.map(Some))?,
            range.map_or(Some(None), |range| range.map(Some))?,
        );
        Some(Self { glob, regex, range, ignored, sort: sort.unwrap_or(usual) })
    }

    /// The order.
    pub const fn sort(&self) -> Sort {
        self.sort
    }

    /// Those of `tags` that are selected, in the order that names alone can tell.
    ///
    /// # Errors
    /// When a parameter cannot stand in the pattern.
    pub fn select(&self, tags: Vec<String>, context: &TemplateValue) -> Result<Vec<Candidate>, BackendError> {
        let invalid = |error: String| BackendError::invalid_input(format!("tags.glob: {error}"));
        let glob = match &self.glob {
            Some(template) => {
                let text = template.render(context).map_err(invalid)?;
                Some(Regex::new(&to_regex(&text)).map_err(|error| invalid(error.to_string()))?)
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

    fn candidate(&self, tag: String, glob: Option<&Regex>) -> Option<Candidate> {
        if self.ignored.is_match(&tag) {
            return None;
        }
        let version = Version::parse(tag.strip_prefix('v').unwrap_or(&tag)).ok();
        let is_in_range = |range: &VersionReq| version.as_ref().is_some_and(|version| range.matches(version));
        if self.range.as_ref().is_some_and(|range| !is_in_range(range))
            || (self.sort == Sort::Semver && version.is_none())
        {
            return None;
        }
        let mut captures = None;
        if let Some(glob) = glob {
            let found = glob.captures(&tag)?;
            let parts = found.iter().skip(1).map(|part| part.map_or("", |part| part.as_str()).into());
            captures = Some(Value::Array(parts.collect()));
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
    pub fn reads_application_set(&self) -> bool {
        self.glob.as_ref().is_some_and(Template::reads_application_set)
    }
}

/// Refuses what looks like more than `*` and `?`.
fn check_glob(glob: &str) -> Result<(), String> {
    let plain = glob.replace("{{", "").replace("}}", "");
    if plain.contains(['[', ']', '\\']) && !glob.contains("{{") {
        return Err("a glob has `*` and `?`, no classes; `regex` has more".to_owned());
    }
    Ok(())
}

/// A pattern as a regular expression with a group for each wildcard.
fn to_regex(glob: &str) -> String {
    let parts = glob.chars().map(|c| match c {
        '*' => "(.*)".to_owned(),
        '?' => "(.)".to_owned(),
        c => regex::escape(c.encode_utf8(&mut [0; 4])),
    });
    format!("^{}$", parts.collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{generator::Query, template::input_context};

    fn select(config: &Value, sort: Option<&str>, tags: &[&str]) -> Result<Vec<Candidate>, String> {
        let config: TagsConfig = serde_json::from_value(config.clone()).unwrap();
        let sort = sort.map(|sort| serde_json::from_value(json!(sort)).unwrap());
        let mut problems = Problems::default();
        let selection = Selection::build(&config, sort, &Path::root(), &mut problems);
        if let Some(problem) = problems.into_vec().first() {
            return Err(problem.message.clone());
        }
        let parameters = json!({"number": "12"}).as_object().unwrap().clone();
        let query = Query::new("a".into(), parameters.into(), tokio::time::Instant::now());
        let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        selection.unwrap().select(tags, &input_context(&query)).map_err(|error| error.message)
    }

    fn names(config: &Value, sort: Option<&str>, tags: &[&str]) -> Vec<String> {
        select(config, sort, tags).unwrap().into_iter().map(|candidate| candidate.tag).collect()
    }

    const TAGS: [&str; 9] =
        ["1.2.3", "v1.10.0", "1.9.0", "2.0.0-rc.1", "2.0.0", "latest", "main", "pr-12-abc", "pr-7-def"];

    #[test]
    fn versions_in_their_own_order() {
        assert_eq!(names(&json!({"semver": ">=1.2, <2"}), None, &TAGS), ["v1.10.0", "1.9.0", "1.2.3"]);
        assert_eq!(names(&json!({"semver": ">=2.0.0-rc.0"}), None, &TAGS), ["2.0.0", "2.0.0-rc.1"]);
        assert_eq!(names(&json!({}), Some("semver"), &TAGS), ["2.0.0", "2.0.0-rc.1", "v1.10.0", "1.9.0", "1.2.3"]);
        assert_eq!(names(&json!({"semver": "*", "ignore": ["v*"]}), None, &TAGS), ["2.0.0", "1.9.0", "1.2.3"]);
    }

    #[test]
    fn patterns_and_what_they_capture() {
        let found = select(&json!({"glob": "pr-*-*"}), None, &TAGS).unwrap();
        assert_eq!(found[0].tag, "pr-7-def");
        assert_eq!(found[1].captures, Some(json!(["12", "abc"])));
        assert_eq!(names(&json!({"glob": "pr-{{ params.number }}-*"}), None, &TAGS), ["pr-12-abc"]);
        assert_eq!(names(&json!({"glob": "mai?"}), None, &TAGS), ["main"]);
        let found = select(&json!({"regex": r"pr-(?<number>\d+)-(?<sha>[a-z]+)"}), None, &TAGS).unwrap();
        assert_eq!(found[0].captures, Some(json!({"number": "7", "sha": "def"})));
        // A pattern is for the whole tag.
        assert_eq!(names(&json!({"regex": "pr"}), None, &TAGS), [""; 0]);
        assert_eq!(names(&json!({"glob": "1.2"}), None, &["1.2.3", "1x2", "1.2"]), ["1.2"]);
        assert_eq!(names(&json!({"ignore": ["pr-*", "latest", "*.*"]}), None, &TAGS), ["main"]);
    }

    #[test]
    fn patterns_that_cannot_be_meant() {
        for (config, says) in [
            (json!({"regex": "("}), "regex"),
            (json!({"semver": "newest"}), "version"),
            (json!({"glob": "[a-z]*"}), "no classes"),
            (json!({"glob": "a*", "regex": "a.*"}), "both"),
            (json!({"ignore": ["a["]}), "glob"),
            (json!({"glob": "{{ number }}"}), "unknown name"),
        ] {
            let error = select(&config, None, &TAGS).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
        assert!(select(&json!({"glob": "{{ params.other }}*"}), None, &TAGS).unwrap_err().contains("params.other"));
    }
}

//! Subjects of many events together, and the known questions that they concern.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, Hash},
};

use aho_corasick::AhoCorasick;
use foldhash::quality::FixedState;

use super::{
    selectors::Selectors,
    subject::{Subject, is_sha, lower_host, split},
};
use domain::generator::{Evidence, Question};

/// How many names are looked for together. More would take much memory, and come with many events, which are compared together.
const MAX_SEARCHED: usize = 100;

/// Subjects of many events, to find the questions that they concern.
#[derive(Debug, Default)]
pub struct Subjects {
    /// The tags, by repository; `None`: all tags.
    images: HashMap<String, HashMap<Option<String>, Reported>>,
    commits: HashSet<String>,
    urls: HashSet<String>,
    selectors: Selectors,
}

/// The information in events about a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reported {
    /// The digests that were pushed.
    Digests,
    /// That something changed, without a digest.
    Change,
}

/// The subjects without a digest that concern one question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Others {
    /// There is none.
    #[default]
    None,
    /// There is one, and its hash.
    One(u64),
    /// There are several, or one that names a question and not what is new there.
    Many,
}

impl Others {
    /// One that is not known.
    pub const UNKNOWN: Self = Self::One(0);

    /// All of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (all, Self::None) | (Self::None, all) => all,
            (Self::One(one), Self::One(same)) if one == same => self,
            _ => Self::Many,
        }
    }

    fn one(subject: impl Hash) -> Self {
        Self::One(FixedState::default().hash_one(subject))
    }
}

impl Subjects {
    /// Adds a subject.
    pub fn add(&mut self, subject: Subject) {
        match subject {
            Subject::Image { repository, tag, digest } => {
                let reported = if tag.is_some() && digest.is_some() { Reported::Digests } else { Reported::Change };
                self.note(repository, tag, reported);
            }
            Subject::Commit(sha) => drop(self.commits.insert(sha)),
            Subject::Url(url) => drop(self.urls.insert(url)),
            Subject::Questions(selector) => self.selectors.add(&selector),
        }
    }

    fn note(&mut self, repository: String, tag: Option<String>, reported: Reported) {
        let before = self.images.entry(repository).or_default().entry(tag).or_insert(reported);
        if reported == Reported::Change {
            *before = reported;
        }
    }

    /// To find the questions that they concern.
    #[must_use]
    pub fn search(&self) -> Search<'_> {
        let names = self.images.keys().chain(&self.commits).chain(&self.urls);
        let count = self.images.len() + self.commits.len() + self.urls.len();
        let few = (count <= MAX_SEARCHED).then(|| AhoCorasick::builder().ascii_case_insensitive(true).build(names));
        Search { subjects: self, names: few.and_then(Result::ok) }
    }

    /// Whether one of `texts` or `evidence` has an image, a commit or a URL of theirs.
    fn is_named(&self, texts: &[&str], evidence: &[Evidence]) -> bool {
        let is_named = |text: &str| words(text).any(|word| self.names(word));
        texts.iter().any(|text| is_named(text))
            || evidence.iter().any(|each| is_named(&each.query) || self.reads(&each.query))
    }

    /// The subjects without a digest that concern `question`, which has these `texts` ([`Search::concerns`]), about which `evidence` was found.
    pub fn others(&self, texts: &[&str], evidence: &[Evidence], question: &Question) -> Others {
        // Two events about a list are the same subject, and the first change need not be the news of either.
        if self.selectors.select(question) || evidence.iter().any(|each| self.reads(&each.query)) {
            return Others::Many;
        }
        let texts = evidence.iter().map(|each| &*each.query).chain(texts.iter().copied());
        texts.flat_map(words).fold(Others::None, |others, word| {
            let commit = self.commit_in(word).map_or(Others::None, |sha| Others::one(("commit", sha)));
            let tags = self.tags_of(word).filter(|(.., reported)| *reported == Reported::Change);
            let images = tags.fold(Others::None, |all, (name, tag, _)| all.and(Others::one(("image", name, tag))));
            others.and(commit).and(images)
        })
    }

    /// Whether `request` reads one of the URLs, or for something below it.
    fn reads(&self, request: &str) -> bool {
        if self.urls.is_empty() {
            return false;
        }
        let Some(url) = request.split_ascii_whitespace().find(|word| word.contains("://")) else { return false };
        let url = url.trim_end_matches([',', ':', '/']);
        let ends = url.match_indices('/').map(|(at, _)| at).chain([url.len()]);
        ends.into_iter().any(|end| self.urls.contains(&url[..end]))
    }

    /// How many subjects there are.
    pub fn len(&self) -> usize {
        let tags: usize = self.images.values().map(HashMap::len).sum();
        tags + self.commits.len() + self.urls.len() + self.selectors.len()
    }

    /// The size of their texts, in bytes.
    pub fn size(&self) -> usize {
        let tags = self.images.values().flat_map(HashMap::keys).flatten();
        let texts = self.images.keys().chain(tags).chain(&self.commits).chain(&self.urls);
        texts.map(String::len).sum::<usize>() + self.selectors.size()
    }

    /// Adds all subjects of `other`.
    pub fn extend(&mut self, other: &Self) {
        for (repository, tags) in &other.images {
            for (tag, reported) in tags {
                self.note(repository.clone(), tag.clone(), *reported);
            }
        }
        self.commits.extend(other.commits.iter().cloned());
        self.urls.extend(other.urls.iter().cloned());
        self.selectors.extend(&other.selectors);
    }

    /// Whether `word` is or has a commit or an image of an event.
    fn names(&self, word: &str) -> bool {
        self.commit_in(word).is_some() || self.tags_of(word).next().is_some()
    }

    /// The commit of an event in `word`.
    fn commit_in(&self, word: &str) -> Option<String> {
        if self.commits.is_empty() {
            return None;
        }
        let parts = word.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| is_sha(part));
        parts.map(str::to_ascii_lowercase).find(|sha| self.commits.contains(sha))
    }

    /// The repository and the tags of events that the image `word` is about. An image that is pinned by its digest does not change.
    fn tags_of<'a>(&'a self, word: &'a str) -> impl Iterator<Item = (&'a str, Option<&'a str>, Reported)> {
        let is_image = !self.images.is_empty() && word.contains('/') && !word.contains('@');
        let (name, tag) = split(word);
        let known = is_image.then(|| self.images.get_key_value(&*lower_host(name))).flatten();
        known.into_iter().flat_map(move |(name, tags)| {
            let (every, one) = match tag {
                None => (Some(tags.iter()), [None, None]),
                Some(tag) => (None, [tags.get_key_value(&None), tags.get_key_value(&Some(tag.to_owned()))]),
            };
            let found = every.into_iter().flatten().chain(one.into_iter().flatten());
            found.map(move |(tag, reported)| (&**name, tag.as_deref(), *reported))
        })
    }
}

/// Finds the questions that subjects concern. The texts of thousands are compared with each event, and few have what it names. So a text is looked
/// through for the names first, and only one that has any is split into words.
#[derive(Debug)]
pub struct Search<'a> {
    subjects: &'a Subjects,
    /// The names of images, commits and URLs. `None`: they are too many.
    names: Option<AhoCorasick>,
}

impl Search<'_> {
    /// Whether a subject concerns a question with these `texts`, its parameters and the item of its part as JSON, about which `evidence` was found.
    /// `open` makes the question.
    pub fn concerns(&self, texts: &[&str], evidence: &[Evidence], open: impl FnOnce() -> Question) -> bool {
        let selectors = &self.subjects.selectors;
        (self.may_be_named(texts, evidence) && self.subjects.is_named(texts, evidence))
            || (!selectors.is_empty() && selectors.select(&open()))
    }

    fn may_be_named(&self, texts: &[&str], evidence: &[Evidence]) -> bool {
        let has_name = |names: &AhoCorasick| {
            texts.iter().any(|text| names.is_match(text)) || evidence.iter().any(|each| names.is_match(&*each.query))
        };
        self.names.as_ref().is_none_or(has_name)
    }
}

/// The words of a text that may be an image reference, an URL or a commit.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '@')))
        .map(|word| word.trim_end_matches(['.', ':']))
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use domain::generator::Selector;
    use oci::Digest;

    fn concerns(subject: &str, text: &str) -> bool {
        let mut subjects = Subjects::default();
        subjects.add(Subject::commit(subject).or_else(|| Subject::image(subject)).unwrap());
        subjects.search().concerns(&["{}"], &[Evidence::present(text, "")], || unreachable!("there is no selector"))
    }

    #[test]
    fn an_image_concerns_the_questions_that_read_it() {
        for (pushed, query, is_meant) in [
            ("ghcr.io/org/app:main", "the manifest of ghcr.io/org/app:main", true),
            ("GHCR.io/Org/App:main", "the manifest of ghcr.io/org/app:main", true),
            ("ghcr.io/org/app:Main", "the manifest of ghcr.io/org/app:main", false),
            ("ghcr.io/org/app:main@sha256:11", "the manifest of ghcr.io/org/app:main", true),
            ("ghcr.io/org/app", "the manifest of ghcr.io/org/app:main", true),
            ("ghcr.io/org/app@sha256:11", "the manifest of ghcr.io/org/app:main", true),
            ("ghcr.io/org/app:main", "the tags of ghcr.io/org/app", true),
            ("ghcr.io/org/app:other", "the manifest of ghcr.io/org/app:main", false),
            ("ghcr.io/org/ap:main", "the manifest of ghcr.io/org/app:main", false),
            ("org/app:main", "the manifest of ghcr.io/org/app:main", false),
            ("nginx:1", "the manifest of docker.io/library/nginx:1", true),
            ("ghcr.io/org/app:main", "the manifest of GHCR.io/org/app:main", true),
            ("GHCR.io/org/app:main", "the tags of Ghcr.IO/org/app", true),
            ("ghcr.io/org/app:main", "the manifest of GHCR.io/org/app:Main", false),
            ("localhost:5000/org/app:main", "the manifest of localhost:5000/org/app:main", true),
        ] {
            assert_eq!(concerns(pushed, query), is_meant, "{pushed}, {query}");
        }
    }

    #[test]
    fn a_url_concerns_who_reads_it_or_something_below_it() {
        for (changed, query, is_meant) in [
            ("https://inventory.example.com/v1/tenants?x=1", "GET https://inventory.example.com/v1/tenants", true),
            ("https://inventory.example.com/v1/tenants", "GET https://inventory.example.com/v1/tenants, 3 pages", true),
            ("https://inventory.example.com/v1", "POST https://inventory.example.com/v1/tenants/7", true),
            ("https://inventory.example.com", "GET https://inventory.example.com/v1/tenants", true),
            ("https://inventory.example.com/v1/ten", "GET https://inventory.example.com/v1/tenants", false),
            ("http://inventory.example.com/v1/tenants", "GET https://inventory.example.com/v1/tenants", false),
        ] {
            let mut subjects = Subjects::default();
            subjects.add(Subject::url(changed).unwrap());
            let evidence = [Evidence::present(query, "200")];
            assert_eq!(
                subjects.search().concerns(&["{}"], &evidence, || unreachable!()),
                is_meant,
                "{changed}, {query}"
            );
        }
        assert_eq!(Subject::url("ftp://h/x"), None);
        assert_eq!(Subject::url("x"), None);
    }

    #[test]
    fn a_commit_concerns_who_names_it() {
        let sha = "0123456789abcdef0123456789abcdef01234567";
        assert!(concerns(sha, &format!("GET https://api.github.com/repos/o/r/commits/{sha}/check-runs")));
        assert!(concerns(&sha.to_uppercase(), &format!("the manifest of ghcr.io/org/app:{sha}")));
        assert!(!concerns(sha, &format!("GET https://api.github.com/repos/o/r/commits/{sha}0/check-runs")));
        let mut subjects = Subjects::default();
        subjects.add(Subject::Commit(sha.to_owned()));
        assert!(subjects.search().concerns(&["{}", &format!(r#"{{"head_sha":"{sha}"}}"#)], &[], || unreachable!()));
        for none in [&"0".repeat(40), &sha[..39], "main", ""] {
            assert_eq!(Subject::commit(none), None, "{none}");
        }
    }

    /// Only subjects that concern the question count, and those whose digest is known do not.
    #[test]
    fn others_are_the_subjects_without_a_digest() {
        let digest = Digest::of(b"x");
        let image = |text: &str| Subject::image(text).unwrap();
        let pinned = |text: &str| image(text).with_digest(Some(digest.as_str()));
        let sha = "0123456789abcdef0123456789abcdef01234567";
        let commit = || Subject::commit(sha).unwrap();
        let url = || Subject::url("https://h.example/v1").unwrap();
        let selected = |value: &str| {
            let parameters = json!({ "team": value }).as_object().unwrap().clone();
            Subject::Questions(Selector { parameters, ..Selector::default() })
        };
        let parameters = Arc::new(json!({"team": "a"}).as_object().unwrap().clone());
        let question = Question { route: "r".into(), application_set: None, parameters, part: None };
        let evidence = [
            Evidence::present("the manifest of r.example/app:1", digest.as_str()),
            Evidence::present("the manifest of r.example/web:1", digest.as_str()),
            Evidence::present(format!("GET https://h.example/v1/commits/{sha}"), "200"),
        ];
        let count = |subjects: Vec<Subject>| {
            let mut all = Subjects::default();
            for subject in subjects {
                all.add(subject);
            }
            match all.others(&[r#"{"team":"a"}"#], &evidence, &question) {
                Others::None => 0,
                Others::One(_) => 1,
                Others::Many => 2,
            }
        };
        assert_eq!(count(vec![pinned("r.example/app:1"), image("r.example/other:1"), selected("b")]), 0);
        assert_eq!(count(vec![image("r.example/app:1"), image("R.example/app:1"), pinned("r.example/web:1")]), 1);
        assert_eq!(count(vec![pinned("r.example/app:1"), image("r.example/app:1")]), 1, "one event has no digest");
        assert_eq!(count(vec![image("r.example/app:1"), image("r.example/web:1")]), 2);
        for one in [commit(), image("r.example/app")] {
            assert_eq!((count(vec![one.clone()]), count(vec![one, image("r.example/web:1")])), (1, 2));
        }
        for list in [url(), selected("a")] {
            assert_eq!(count(vec![list]), 2, "it does not say what is new");
        }
    }

    #[test]
    fn what_is_too_large_is_no_subject() {
        for tag in ["x".repeat(129), "x".repeat(1_000_000), "a b".to_owned(), ".x".to_owned()] {
            assert_eq!(Subject::image(&format!("r.example/app:{tag}")), None);
        }
        assert_eq!(Subject::image(&format!("{}.example/app:1", "h".repeat(3000))), None);
        assert_eq!(Subject::url(&format!("https://h.example/{}", "x".repeat(3000))), None);
        let mut subjects = Subjects::default();
        subjects.add(Subject::image("r.example/app:1").unwrap());
        subjects.add(Subject::url("https://h.example/x").unwrap());
        assert_eq!(subjects.size(), "r.example/app".len() + "1".len() + "https://h.example/x".len());
    }

    #[test]
    fn an_image_that_is_pinned_by_its_digest_does_not_change() {
        let digest = Digest::of(b"x");
        assert!(!concerns("r.example/app:1", &format!("the manifest of r.example/app:1@{}", digest.as_str())));
        assert!(!concerns("r.example/app:1", &format!("the manifest of r.example/app@{}", digest.as_str())));
    }
}

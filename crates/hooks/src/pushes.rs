//! The digests that were pushed, by their events, and whether an answer has them.

use std::collections::{HashMap, HashSet};

use super::{
    subject::{Subject, lower_host, split},
    subjects::words,
};
use domain::generator::{Evidence, Verdict};
use oci::Digest;

/// How many tags are remembered. Pushes to others are not compared with answers.
const MAX_PUSHES: usize = 1000;

/// The digests that were pushed, by repository and tag.
#[derive(Debug, Default)]
pub struct Pushes(HashMap<(String, String), HashSet<Digest>>);

/// How an answer compares with the pushes that concern it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// The answer was made from the pushed digests.
    Known,
    /// The registry named another digest, or none: it is behind its event, or the tag was pushed again.
    Behind,
    /// The answer does not say.
    Untold,
}

impl Pushes {
    /// Adds the push that `subject` is about. Returns false if it has no digest, or the limit is reached.
    pub fn add(&mut self, subject: &Subject) -> bool {
        let Subject::Image { repository, tag: Some(tag), digest: Some(digest) } = subject else { return false };
        if self.0.len() >= MAX_PUSHES {
            return false;
        }
        self.0.entry((repository.clone(), tag.clone())).or_default().insert(digest.clone());
        true
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How the answer with this `evidence` compares with all `pushes` together.
    pub fn known<'a>(pushes: impl IntoIterator<Item = &'a Self>, evidence: &[Evidence]) -> Pushed {
        let mut known = Pushed::Untold;
        for each in pushes {
            match each.known_to(evidence) {
                Pushed::Behind => return Pushed::Behind,
                Pushed::Known => known = Pushed::Known,
                Pushed::Untold => {}
            }
        }
        known
    }

    fn known_to(&self, evidence: &[Evidence]) -> Pushed {
        let mut pushed = Pushed::Untold;
        for each in evidence {
            let found = Digest::parse(&each.answer).ok();
            if found.is_none() && !matches!(each.verdict, Verdict::Absent | Verdict::Refused) {
                continue;
            }
            for digests in words(&each.query).filter_map(|word| self.of(word)) {
                if found.as_ref().is_none_or(|found| digests.iter().any(|digest| digest != found)) {
                    return Pushed::Behind;
                }
                pushed = Pushed::Known;
            }
        }
        pushed
    }

    /// The digests that were pushed to the image `word`. An image that is pinned by its digest does not change.
    fn of(&self, word: &str) -> Option<&HashSet<Digest>> {
        if word.contains('@') {
            return None;
        }
        let (name, tag) = split(word);
        self.0.get(&(lower_host(name).into_owned(), tag?.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(of: u8) -> String {
        Digest::of(&[of]).as_str().to_owned()
    }

    fn pushes(of: &[u8]) -> Pushes {
        let mut pushes = Pushes::default();
        for of in of {
            let subject = Subject::image(&format!("R.example.com/app:1@{}", digest(*of))).unwrap();
            assert!(pushes.add(&subject));
        }
        pushes
    }

    #[test]
    fn an_answer_knows_a_push_if_it_was_made_from_its_digest() {
        let found = |image: &str, of: u8| Evidence::present(format!("the manifest of {image}"), digest(of));
        let missing = Evidence::absent("the manifest of r.example.com/app:1", "404");
        for (events, evidence, expected) in [
            (&[1][..], vec![found("r.example.com/app:1", 1)], Pushed::Known),
            (&[1, 1], vec![found("r.example.com/app:1", 1)], Pushed::Known),
            (&[1], vec![found("r.example.com/app:1", 2)], Pushed::Behind),
            (&[1, 2], vec![found("r.example.com/app:1", 2)], Pushed::Behind),
            (&[1], vec![missing], Pushed::Behind),
            (&[1], vec![found("r.example.com/app:1", 1), found("r.example.com/web:1", 2)], Pushed::Known),
            (&[1], vec![found("r.example.com/app:2", 1)], Pushed::Untold),
            (&[1], vec![Evidence::present("the tags of r.example.com/app", "2 tags are selected")], Pushed::Untold),
            (&[1], vec![Evidence::present("the tags of r.example.com/app:1", "2 tags are selected")], Pushed::Untold),
            (&[], vec![found("r.example.com/app:1", 1)], Pushed::Untold),
        ] {
            assert_eq!(Pushes::known([&pushes(events)], &evidence), expected, "{events:?}, {evidence:?}");
        }
        let evidence = [found("r.example.com/app:1", 1)];
        assert_eq!(Pushes::known([&pushes(&[1]), &pushes(&[])], &evidence), Pushed::Known);
        assert_eq!(Pushes::known([&pushes(&[1]), &pushes(&[2])], &evidence), Pushed::Behind);
    }

    #[test]
    fn only_a_tag_with_a_digest_is_such_a_push() {
        for image in ["r.example.com/app:1", "r.example.com/app", "r.example.com/app:1@sha256:11"] {
            assert!(!Pushes::default().add(&Subject::image(image).unwrap()), "{image}");
        }
        assert!(!Pushes::default().add(&Subject::commit(&"a".repeat(40)).unwrap()));
    }
}

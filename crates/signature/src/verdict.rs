//! The verdict over all documents beside an image.

use std::collections::{HashMap, HashSet};

use domain::document::excerpt;

/// How much of the reasons is shown, in characters.
const MAX_SHOWN: usize = 1000;
/// How many reasons of each kind are kept. There may be thousands of foreign signatures.
const MAX_REASONS: usize = 16;

/// Whether an image is signed, and its provenance proven, as the policy demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyVerdict {
    /// Everything that the policy demands is proven.
    Present(Proof),
    /// There is no signature by a signer of the policy. The text lists the documents that are there instead.
    Absent(String),
    /// The signed provenance is valid, and names another commit.
    OtherCommit {
        /// The commit that it names.
        commit: String,
        /// The text for the evidence, with a hint if the commit may be that of a merge.
        why: String,
    },
    /// It is unknown, such as with a key that cannot be read, or a root that may be outdated.
    Unknown(String),
    /// Something claims to be by a signer of the policy, and is not, or does not fit.
    Bad(String),
}

/// The proof that an image is signed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proof {
    /// The commit that the image was built from, if the policy demands provenance.
    pub commit: Option<String>,
    /// Its signer, for the evidence: the key's file, or issuer and identity; several are separated by commas.
    pub signer: String,
    /// The places of the documents that prove it.
    pub places: Vec<String>,
}

/// All candidates, as evidence for one demand.
#[derive(Debug, Default, Clone)]
pub(super) struct Tally {
    /// The first document of each signer.
    good: Vec<Good>,
    unknown: Vec<String>,
    bad: Vec<String>,
    other: Option<(String, String)>,
    absent: Vec<String>,
}

#[derive(Debug, Clone)]
struct Good {
    place: String,
    signer: String,
    /// The exact signer.
    by: String,
    commit: Option<String>,
}

impl Tally {
    /// The candidate at `place`, which `by` signed, meets the demand of `signer`. The first one of each counts.
    pub(super) fn good(&mut self, place: &str, signer: &str, by: &str, commit: Option<String>) {
        if self.good.iter().all(|good| good.by != by) {
            let [place, signer, by] = [place, signer, by].map(str::to_owned);
            self.good.push(Good { place, signer, by, commit });
        }
    }

    /// The candidate may meet it.
    pub(super) fn unknown(&mut self, place: &str, why: &str) {
        note(&mut self.unknown, place, why);
    }

    /// The candidate claims to meet it, and does not.
    pub(super) fn bad(&mut self, place: &str, why: &str) {
        note(&mut self.bad, place, why);
    }

    /// The candidate is provenance of another commit.
    pub(super) fn other(&mut self, place: &str, commit: String, why: &str) {
        self.other.get_or_insert_with(|| (commit, format!("{place}: {why}")));
    }

    /// The candidate has nothing to do with it.
    pub(super) fn absent(&mut self, place: &str, why: &str) {
        note(&mut self.absent, place, why);
    }

    /// The evidence of both, for a demand that either may meet.
    pub(super) fn or(mut self, other: Self) -> Self {
        self.unknown.extend(other.unknown);
        self.bad.extend(other.bad);
        self.absent.extend(other.absent);
        self.good.extend(other.good);
        Self { other: self.other.or(other.other), ..self }
    }

    /// No candidate meets the demand.
    pub(super) fn clear_good(&mut self) {
        self.good.clear();
    }

    /// Assigns each demand (one of `tallies`) at most one signer, and each signer to at most one demand, although several demands may
    /// describe it.
    pub(super) fn share(tallies: &mut [Self]) {
        let mut taken = HashMap::new();
        for demand in 0..tallies.len() {
            take(demand, tallies, &mut taken, &mut HashSet::new());
        }
        let taken: HashMap<usize, String> = taken.into_iter().map(|(by, demand)| (demand, by.to_owned())).collect();
        for (demand, tally) in tallies.iter_mut().enumerate() {
            let own = taken.get(&demand);
            let shared: Vec<Good> = tally.good.extract_if(.., |good| own != Some(&good.by)).collect();
            if own.is_none() {
                for good in shared {
                    tally.absent(&good.place, "the one who signed it counts for another signer already");
                }
            }
        }
    }
}

/// Finds a signer for `demand`, moving other demands to other signers if needed (Kuhn's algorithm). `tried` are the signers tried already.
fn take<'a>(
    demand: usize,
    tallies: &'a [Tally],
    taken: &mut HashMap<&'a str, usize>,
    tried: &mut HashSet<&'a str>,
) -> bool {
    for Good { by, .. } in &tallies[demand].good {
        if !tried.insert(by) {
            continue;
        }
        // An augmenting path: the demand that has `by` may find another signer.
        let is_free = match taken.get(&**by) {
            Some(&other) => take(other, tallies, taken, tried),
            None => true,
        };
        if is_free {
            taken.insert(by, demand);
            return true;
        }
    }
    false
}

impl PolicyVerdict {
    /// The verdict on several demands, each with the text for an image without any document for it.
    pub(super) fn of(demands: Vec<(String, Tally)>) -> Self {
        let (met, unmet): (Vec<_>, Vec<_>) = demands.into_iter().partition(|(_, tally)| !tally.good.is_empty());
        if unmet.is_empty() {
            return Self::Present(Proof::of(met.into_iter().filter_map(|(_, tally)| tally.good.into_iter().next())));
        }
        let all = |reasons: fn(&Tally) -> &Vec<String>| {
            let found: Vec<&String> = unmet.iter().flat_map(|(_, tally)| reasons(tally)).collect();
            (!found.is_empty()).then(|| listed(&found))
        };
        if let Some(why) = all(|tally| &tally.unknown) {
            return Self::Unknown(why);
        }
        if let Some(why) = all(|tally| &tally.bad) {
            return Self::Bad(why);
        }
        if let Some((commit, why)) = unmet.iter().find_map(|(_, tally)| tally.other.clone()) {
            return Self::OtherCommit { commit, why };
        }
        let texts = unmet.iter().map(|(text, tally)| {
            let found: Vec<&String> = tally.absent.iter().collect();
            if found.is_empty() { text.clone() } else { format!("{text}: {}", listed(&found)) }
        });
        let texts: Vec<String> = texts.collect();
        Self::Absent(texts.join("; "))
    }
}

impl Proof {
    fn of(good: impl Iterator<Item = Good>) -> Self {
        let (mut proof, mut signers) = (Self::default(), Vec::new());
        for Good { place, signer, commit, .. } in good {
            proof.commit = proof.commit.or(commit);
            if !signers.contains(&signer) {
                signers.push(signer);
            }
            if !proof.places.contains(&place) {
                proof.places.push(place);
            }
        }
        Self { signer: signers.join(", "), ..proof }
    }
}

fn note(reasons: &mut Vec<String>, place: &str, why: &str) {
    if reasons.len() >= MAX_REASONS {
        return;
    }
    let reason = format!("{place}: {why}");
    if !reasons.contains(&reason) {
        reasons.push(reason);
    }
}

/// The reasons in one text, each once.
fn listed(reasons: &[&String]) -> String {
    let mut text = String::new();
    for (index, reason) in reasons.iter().enumerate() {
        if reasons[..index].contains(reason) {
            continue;
        }
        if text.len() > MAX_SHOWN {
            return text + "; and others";
        }
        let separator = if text.is_empty() { "" } else { "; " };
        text += separator;
        text += &excerpt(reason.as_bytes(), MAX_SHOWN);
    }
    text
}

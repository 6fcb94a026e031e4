//! Keeps the tags of a list whose images are signed, and the proofs for the next question.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{CONCURRENT_READS, List, opened::OpenedTag};
use crate::{
    backend::digests::{
        commit::Commit,
        signatures::{NotedProofs, ProofKey, ProofQuery, Proven, Signatures, SignedImage, Vouched},
    },
    clients::oci::Reference,
    domain::{
        error::BackendError,
        generator::{Evidence, ParameterSet, Query},
    },
    lang::evaluator::Context,
};

/// The most tags of one repository that are named as not signed.
const MAX_NAMED: usize = 10;
/// For how long *not signed* is remembered: lists hold many tags, of which old ones may never be signed.
const NOT_SIGNED_FOR: Duration = Duration::from_mins(1);

/// What the witness of signatures is asked about each tag.
#[derive(Debug, Default)]
pub(super) struct SignedQuery {
    /// The commit that must be proven.
    commit: Option<Commit>,
    /// The proofs of earlier answers.
    noted: NotedProofs,
}

/// A selected tag, with its proof if a signature is demanded.
#[derive(Debug)]
pub(super) struct KeptTag {
    opened: OpenedTag,
    proof: Option<(ProofKey, Arc<Proven>)>,
}

/// The selected tags of one repository, and those that were left out since they are not signed.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) tags: Vec<KeptTag>,
    not_signed: Vec<Evidence>,
}

/// The proofs of an answer, which come back with the next question.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Notes {
    proofs: BTreeMap<ProofKey, Arc<Proven>>,
}

impl Kept {
    /// What was learned of the repository whose tags were `asked` for.
    pub(super) fn evidence(&self, asked: String) -> Vec<Evidence> {
        let selected = match self.tags.len() {
            0 => Evidence::absent(asked, "no tag is selected"),
            1 => Evidence::present(asked, "1 tag is selected"),
            more => Evidence::present(asked, format!("{more} tags are selected")),
        };
        let mut evidence = vec![selected];
        evidence.extend(self.not_signed.iter().take(MAX_NAMED).cloned());
        let more = self.not_signed.len().saturating_sub(MAX_NAMED);
        if more > 0 {
            evidence.push(Evidence::absent("the signatures of other tags", format!("{more} more are not selected")));
        }
        evidence
    }
}

impl Notes {
    /// Adds the proof of `tag`. Returns its parameter set, in which the proven commit takes the place of the label's.
    pub(super) fn add(&mut self, tag: KeptTag) -> ParameterSet {
        let KeptTag { opened, proof } = tag;
        let mut set = opened.into_set();
        if let Some((key, proven)) = proof {
            if let Some(commit) = &proven.commit {
                set.0.insert("revision".to_owned(), commit.as_str().into());
            }
            self.proofs.insert(key, proven);
        }
        set
    }
}

impl From<Notes> for Value {
    fn from(notes: Notes) -> Self {
        json!({ "proofs": notes.proofs })
    }
}

impl List {
    /// What the witness of signatures is asked about the tags that `query` selects.
    ///
    /// # Errors
    /// When the parameters make no commit.
    pub(super) async fn signed_query(&self, query: &Query) -> Result<SignedQuery, BackendError> {
        let Some(signatures) = &self.signatures else { return Ok(SignedQuery::default()) };
        let commit = match signatures.commit() {
            Some(template) => {
                let commit = Commit::render(template, &Context::of_input(query, &self.evaluator)).await;
                Some(commit.map_err(|error| error.within("provenance.commit"))?)
            }
            None => None,
        };
        let notes = [&query.before.own, &query.before.lineage].into_iter().flatten();
        let read = notes.filter_map(|note| Notes::deserialize(&**note).ok());
        Ok(SignedQuery { commit, noted: read.flat_map(|notes| notes.proofs).collect() })
    }

    /// Adds those of `opened` to `kept` that are signed, up to the limit, in their order. Without a demand for signatures, all are.
    ///
    /// # Errors
    /// When it is not known of a tag whether it is signed.
    pub(super) async fn keep_signed(
        &self,
        opened: Vec<OpenedTag>,
        kept: &mut Kept,
        query: &Query,
        signed: &SignedQuery,
    ) -> Result<(), BackendError> {
        let left = self.limit - kept.tags.len();
        let Some(signatures) = &self.signatures else {
            kept.tags.extend(opened.into_iter().take(left).map(|opened| KeptTag { opened, proof: None }));
            return Ok(());
        };
        let mut judged = stream::iter(opened)
            .map(async |opened| {
                let judged = judge(signatures, &opened, query, signed).await;
                (opened, judged)
            })
            .buffered(left.clamp(1, CONCURRENT_READS));
        while kept.tags.len() < self.limit {
            let Some((opened, judged)) = judged.next().await else { break };
            match judged? {
                Ok(proof) => kept.tags.push(KeptTag { opened, proof: Some(proof) }),
                Err(why) => kept.not_signed.push(Evidence::absent(asked(signatures, &opened.reference), why)),
            }
        }
        Ok(())
    }
}

/// The proof of a tag's image, or why the tag is not selected.
///
/// # Errors
/// When that is not known.
async fn judge(
    signatures: &Signatures,
    opened: &OpenedTag,
    query: &Query,
    signed: &SignedQuery,
) -> Result<Result<(ProofKey, Arc<Proven>), String>, BackendError> {
    let Reference { registry, repository, .. } = opened.reference.clone();
    let image = SignedImage { registry, repository, digests: vec![opened.target.digest.clone()] };
    let label = opened.contents.revision.as_deref().map(str::trim).filter(|label| !label.is_empty());
    let of_image = ProofQuery {
        commit: signed.commit.as_ref(),
        label,
        noted: &signed.noted,
        deadline: query.deadline,
        joins: !query.must_ask,
        may_reuse: !query.reuses_for().is_zero(),
        not_signed_for: NOT_SIGNED_FOR,
    };
    let vouched = signatures.vouch(&image, of_image).await.map_err(|mut error| {
        let asked = asked(signatures, &opened.reference);
        error.evidence = vec![Evidence::unknown(&*asked, error.message.as_str())];
        error.within(asked)
    })?;
    Ok(match vouched {
        Vouched::Proven(key, proven) => match (label, &proven.commit) {
            (Some(label), Some(commit)) if commit.is_contradicted_by(label) => {
                let shown: String = label.chars().take(64).collect();
                Err(format!("its label names {}, and its signed provenance {commit}", shown.escape_debug()))
            }
            _ => Ok((key, proven)),
        },
        Vouched::NotYet(why) | Vouched::Bad(why) => Err(why),
    })
}

fn asked(signatures: &Signatures, reference: &Reference) -> String {
    let what = if signatures.proves_commits() { "the signed provenance" } else { "the signature" };
    format!("{what} of {reference}")
}

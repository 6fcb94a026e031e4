//! The verdict that a commit's pipelines make.

use serde::Deserialize;

use super::{
    super::{
        CiState, CiVerdict,
        forge::{Forge, time, unknown_word},
    },
    GitlabAccept,
};
use crate::digests::commit::Commit;
use domain::{error::BackendError, generator::Evidence, secret::Secrets};

/// One pipeline, as GitLab's two lists show it.
#[derive(Debug, Deserialize)]
pub(super) struct GitlabPipeline {
    id: u64,
    sha: String,
    #[serde(rename = "ref")]
    reference: Option<String>,
    status: String,
    source: Option<String>,
    web_url: Option<String>,
    updated_at: Option<String>,
}

/// The pipelines that count.
pub(super) struct PipelineFilter<'a> {
    /// Of this commit.
    pub commit: &'a Commit,
    /// Of this branch or tag.
    pub reference: Option<&'a str>,
    /// From one of these sources; from any if empty.
    pub sources: &'a [String],
    /// Statuses that count as passed besides `success`.
    pub accept: &'a [GitlabAccept],
}

impl PipelineFilter<'_> {
    /// The verdict of `pipelines`, which are the whole answer to the request `query`.
    ///
    /// # Errors
    /// When the deciding pipeline has an unknown status.
    pub(super) fn check(
        &self,
        pipelines: &[GitlabPipeline],
        query: &str,
        forge: &Forge,
        secrets: &Secrets,
    ) -> Result<CiVerdict, BackendError> {
        let mut newest: Option<&GitlabPipeline> = None;
        for pipeline in pipelines {
            if self.fits(pipeline)? && newest.is_none_or(|newest| newest.id < pipeline.id) {
                newest = Some(pipeline);
            }
        }
        let commit = Some(self.commit.clone());
        let Some(newest) = newest else {
            let evidence = vec![Evidence::absent(query, self.none_of(pipelines, secrets))];
            let state = CiState::Pending;
            return Ok(CiVerdict { state, commit, is_earlier: false, evidence, run_url: None, built_at: None });
        };
        let state =
            state(&newest.status, self.accept).ok_or_else(|| unknown_word("a pipeline", &newest.status, secrets))?;
        let run_url = newest.web_url.as_deref().and_then(|url| forge.link(url)).map(|url| secrets.redact(&url));
        let page = run_url.as_deref().map(|url| format!(", {url}")).unwrap_or_default();
        let text = format!("pipeline {}: {}{page}", newest.id, newest.status);
        let evidence = match state {
            CiState::Passed => Evidence::present(query, text),
            CiState::Pending | CiState::Failed => Evidence::absent(query, text),
        };
        // The lists have no time of the end. A pipeline that ended is not updated any more, so that time is used.
        let built_at = newest.updated_at.as_deref().and_then(time).filter(|_| state != CiState::Pending);
        Ok(CiVerdict { state, commit, is_earlier: false, evidence: vec![evidence], run_url, built_at })
    }

    /// Whether `pipeline` counts. A server ignores filters that it does not know, so all are compared here too.
    fn fits(&self, pipeline: &GitlabPipeline) -> Result<bool, BackendError> {
        if !pipeline.is_of(self.commit)
            || self.reference.is_some_and(|wanted| pipeline.reference.as_deref() != Some(wanted))
        {
            return Ok(false);
        }
        match &pipeline.source {
            _ if self.sources.is_empty() => Ok(true),
            Some(source) => Ok(self.sources.contains(source)),
            None => Err(BackendError::invalid_output(format!(
                "pipeline {} names no source, which `sources` needs",
                pipeline.id
            ))),
        }
    }

    /// Why none of `pipelines` counts.
    fn none_of(&self, pipelines: &[GitlabPipeline], secrets: &Secrets) -> String {
        let Some(other) =
            pipelines.iter().filter(|pipeline| pipeline.is_of(self.commit)).max_by_key(|pipeline| pipeline.id)
        else {
            let is_merged = |pipeline: &&GitlabPipeline| pipeline.reference.as_deref().is_some_and(is_of_merge);
            return match pipelines.iter().filter(is_merged).max_by_key(|pipeline| pipeline.id) {
                Some(merged) => format!(
                    "no pipeline for it yet, but pipeline {} for a merge commit: merged results pipelines and merge trains \
                     never build the head commit itself, so the gate needs a branch pipeline or a merge request pipeline \
                     without merged results",
                    merged.id
                ),
                None => "no pipeline for it yet".to_owned(),
            };
        };
        let shown = |text: Option<&str>| secrets.excerpt(text.unwrap_or("?").as_bytes(), 80);
        format!(
            "no pipeline for it yet that counts; pipeline {} is of `{}`, from `{}`",
            other.id,
            shown(other.reference.as_deref()),
            shown(other.source.as_deref())
        )
    }
}

impl GitlabPipeline {
    /// Its number, which no other pipeline has.
    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    fn is_of(&self, commit: &Commit) -> bool {
        self.sha.eq_ignore_ascii_case(commit.as_str())
    }
}

/// The meaning of GitLab's word. A pipeline that is being cancelled counts as cancelled.
fn state(word: &str, accept: &[GitlabAccept]) -> Option<CiState> {
    match word {
        "success" => Some(CiState::Passed),
        "skipped" if accept.contains(&GitlabAccept::Skipped) => Some(CiState::Passed),
        "failed" | "canceled" | "canceling" | "skipped" => Some(CiState::Failed),
        "created"
        | "waiting_for_resource"
        | "preparing"
        | "waiting_for_callback"
        | "pending"
        | "running"
        | "scheduled"
        | "manual" => Some(CiState::Pending),
        _ => None,
    }
}

/// Whether a ref is that of a merge commit that GitLab made.
fn is_of_merge(reference: &str) -> bool {
    let kind = reference.strip_prefix("refs/merge-requests/").and_then(|rest| rest.split_once('/'));
    matches!(kind, Some((_, "merge" | "train")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_has_a_meaning() {
        let meaning = |word| state(word, &[]);
        assert_eq!(meaning("success"), Some(CiState::Passed));
        for word in ["failed", "canceled", "canceling", "skipped"] {
            assert_eq!(meaning(word), Some(CiState::Failed), "{word}");
        }
        for word in ["created", "waiting_for_resource", "preparing", "waiting_for_callback", "pending", "running"] {
            assert_eq!(meaning(word), Some(CiState::Pending), "{word}");
        }
        for word in ["scheduled", "manual"] {
            assert_eq!(meaning(word), Some(CiState::Pending), "{word}");
        }
        for word in ["", "Success", "succeeded"] {
            assert_eq!(meaning(word), None, "{word}");
        }
        assert_eq!(state("skipped", &[GitlabAccept::Skipped]), Some(CiState::Passed));
        assert_eq!(state("canceled", &[GitlabAccept::Skipped]), Some(CiState::Failed));
    }

    #[test]
    fn refs_of_merge_commits_are_known() {
        for (reference, is_merge) in [
            ("refs/merge-requests/7/merge", true),
            ("refs/merge-requests/7/train", true),
            ("refs/merge-requests/7/head", false),
            ("feature/merge", false),
        ] {
            assert_eq!(is_of_merge(reference), is_merge, "{reference}");
        }
    }
}

//! `appset-gateway conformance --incident` and `--incidents`.

use std::{
    io::{IsTerminal as _, stderr, stdin},
    process::ExitCode,
    time::Duration,
};

use clap::Args;

use super::super::{ReportFormat, exit, print, print_json};
use conformance::{
    cases::Case,
    incidents::{self, Choice, Restart, Stage, report},
    target::Target,
    upstream::Upstream,
};

/// What is played.
#[derive(Debug, Args)]
pub(super) struct IncidentArgs {
    /// Play a documented incident in place of the rules, or `all`: what would Argo CD delete? Needs `--break-upstream`.
    #[arg(long, value_name = "NAME", requires = "break_upstream")]
    incident: Option<Choice>,
    /// List the incidents, with what happened and where it is documented.
    #[arg(long)]
    pub incidents: bool,
    /// A command for `sh` that restarts the plugin server, for the incident `gateway-restart`. Without it you are asked to do that, on a terminal.
    #[arg(long, value_name = "COMMAND", requires = "incident")]
    restart: Option<String>,
}

impl IncidentArgs {
    /// Whether incidents are played, in place of the rules.
    pub(super) const fn are_chosen(&self) -> bool {
        self.incident.is_some()
    }

    /// Plays the incidents, and prints the report.
    pub(super) async fn run(
        &self,
        target: &Target,
        cases: &[Case],
        upstream: Option<&Upstream>,
        max_time: Duration,
        output: ReportFormat,
    ) -> anyhow::Result<ExitCode> {
        let (Some(choice), Some(upstream)) = (&self.incident, upstream) else {
            anyhow::bail!("`--incident` needs `--break-upstream PORT` and `--source URL`");
        };
        let by_hand = || (stdin().is_terminal() && stderr().is_terminal()).then_some(Restart::Person);
        let restart = self.restart.clone().map(Restart::Command).or_else(by_hand);
        let progress = &super::show_progress;
        let stage = Stage { target, cases, upstream, restart: restart.as_ref(), progress };
        let findings = incidents::play(&stage, choice, max_time).await?;
        super::show_progress("");
        match output {
            ReportFormat::Text => print(report::text(&findings).trim_end())?,
            ReportFormat::Markdown => print(report::markdown(&findings).trim_end())?,
            ReportFormat::Junit => print(report::junit(&findings).trim_end())?,
            ReportFormat::Json => print_json(&report::json(&findings))?,
        };
        Ok(if findings.is_safe() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
    }
}

/// Prints the list of incidents.
pub(super) fn list(output: ReportFormat) -> anyhow::Result<ExitCode> {
    match output {
        ReportFormat::Json => print_json(&report::json_list()),
        _ => print(report::list().trim_end()),
    }
}

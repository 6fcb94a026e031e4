//! Documented incidents, played against a plugin server: what would Argo CD have deleted?
//!
//! Start at [`play()`]. An [`Incident`] is a list of acts: faults that the proxy before the plugin's source plays, and restarts of the plugin.
//! `catalogue` lists all incidents with their sources, `edits` changes the source's replies, `restart` restarts the plugin, `findings`
//! has the results, and [`report`] prints them. Nothing else in this crate uses this module.

mod catalogue;
mod edits;
mod findings;
mod play;
pub mod report;
mod restart;

pub use self::{
    catalogue::ALL,
    findings::{Findings, Played, PlayedQuestion},
    play::{Stage, play},
    restart::Restart,
};
use super::upstream::Fault;

/// An incident that happened, and that has a source.
#[derive(Debug)]
pub struct Incident {
    /// The name on the command line and in reports.
    pub name: &'static str,
    /// What happened, in one or two sentences.
    pub happened: &'static str,
    /// The pages that document it.
    pub sources: &'static [&'static str],
    /// What the source must have, for people.
    needs: &'static str,
    /// The order of events.
    acts: &'static [Act],
}

/// One event of an incident. After each, every question is sent once.
#[derive(Debug)]
enum Act {
    /// From now on, the source replies like this.
    Source(Fault),
    /// The plugin server is restarted.
    Restart,
}

impl Incident {
    /// Whether the plugin server must be restarted for it.
    pub fn needs_restart(&self) -> bool {
        self.acts.iter().any(|act| matches!(act, Act::Restart))
    }
}

/// The incidents that an argument names.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The incidents, in the order of the list.
    pub incidents: Vec<&'static Incident>,
    /// Whether they are meant one by one. Otherwise those that cannot be played are left out, as the suite skips rules.
    pub is_named: bool,
}

impl std::str::FromStr for Choice {
    type Err = String;

    /// Reads a name, or `all`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self { incidents: ALL.iter().collect(), is_named: false });
        }
        let found = ALL.iter().find(|incident| incident.name == text);
        let incident = found.ok_or_else(|| {
            let names: Vec<&str> = ALL.iter().map(|incident| incident.name).collect();
            format!("no incident has this name. Write `all`, or one of: {}", names.join(", "))
        })?;
        Ok(Self { incidents: vec![incident], is_named: true })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_incident_has_a_name_a_story_and_a_source() {
        assert!(ALL.len() >= 8, "{}", ALL.len());
        let names: HashSet<&str> = ALL.iter().map(|incident| incident.name).collect();
        assert_eq!(names.len(), ALL.len());
        for incident in ALL {
            assert!(incident.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
            assert!(incident.happened.ends_with('.') && !incident.acts.is_empty(), "{}", incident.name);
            assert!(!incident.sources.is_empty(), "{}", incident.name);
            assert!(incident.sources.iter().all(|source| source.starts_with("https://")), "{}", incident.name);
        }
    }

    #[test]
    fn a_name_that_no_incident_has_is_answered_by_the_list() {
        let all: Choice = "all".parse().unwrap();
        assert!(all.incidents.len() == ALL.len() && !all.is_named);
        let one: Choice = "gateway-restart".parse().unwrap();
        assert!(one.is_named && one.incidents.len() == 1 && one.incidents[0].needs_restart());
        let why = "half-a-lsit".parse::<Choice>().unwrap_err();
        assert!(ALL.iter().all(|incident| why.contains(incident.name)), "{why}");
    }
}

//! Plays incidents: asks before, after each act, and at the end, and reads each reply as Argo CD does.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::{Act, Choice, Findings, Incident, Played, PlayedQuestion, Restart};
use crate::{
    cases::Case,
    checks::shown_status,
    evaluate::Verdict,
    kept::{Kept, count},
    rules::printable,
    target::{Answered, Requester, Target},
    upstream::{Fault, Upstream},
};

/// How often a question is sent until the plugin asks its source.
const TRIES: usize = 40;
/// The pause between two of these, and while a restarted server is not ready.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a restarted server may take until it replies.
const READY: Duration = Duration::from_mins(1);

/// The plugin between the suite and the proxy.
pub struct Stage<'a> {
    /// The plugin.
    pub target: &'a Target,
    /// The questions. Those that must get an error are left out.
    pub cases: &'a [Case],
    /// The proxy before the plugin's source.
    pub upstream: &'a Upstream,
    /// How the plugin is restarted, if it can be.
    pub restart: Option<&'a Restart>,
    /// Called with the name of the next question.
    pub progress: &'a dyn Fn(&str),
}

/// Plays the incidents of `choice` one after the other, for at most `max_time`.
///
/// # Errors
/// When this side cannot ask, for example with a token that no header can carry.
pub async fn play(stage: &Stage<'_>, choice: &Choice, max_time: Duration) -> anyhow::Result<Findings> {
    let mut findings = Findings { played: Vec::new(), unfinished: None, is_named: choice.is_named };
    let until = Instant::now() + max_time;
    for incident in &choice.incidents {
        let played = timeout(until.saturating_duration_since(Instant::now()), stage.incident(incident)).await;
        stage.upstream.play(None);
        let Ok(played) = played else {
            let why = format!("not everything was played within {} s", max_time.as_secs());
            findings.unfinished = Some(why.clone());
            findings.played.push(Played { incident, questions: Vec::new(), why: Some(why) });
            continue;
        };
        findings.played.push(played?);
    }
    Ok(findings)
}

impl Stage<'_> {
    async fn incident(&self, incident: &'static Incident) -> anyhow::Result<Played> {
        let mut played = Played { incident, questions: Vec::new(), why: None };
        if incident.needs_restart() && self.restart.is_none() {
            played.why = Some("it needs `--restart COMMAND`, or a terminal, to restart the plugin server".to_owned());
            return Ok(played);
        }
        let mut questions = Vec::new();
        for case in self.cases.iter().filter(|case| !case.error) {
            if let Some(question) = self.before(incident, case).await? {
                questions.push((case, question));
            }
        }
        if questions.is_empty() {
            let why = "before it, no question had an answer with parameter sets";
            return Ok(Played { why: Some(why.to_owned()), ..played });
        }
        for act in incident.acts {
            match act {
                Act::Source(fault) => self.suffer(incident, fault, &mut questions).await?,
                Act::Restart => {
                    (self.progress)(&format!("{}: the plugin server is restarted", incident.name));
                    if let Err(error) = self.restart_and_wait(incident, &mut questions).await? {
                        played.why = Some(error);
                        break;
                    }
                }
            }
        }
        self.upstream.play(None);
        // A plugin may keep what it heard during the incident.
        for (case, question) in &mut questions {
            let answered = self.ask(incident, "after that", case).await?;
            self.judge("after that", question, &answered);
        }
        let met = questions.into_iter().map(|(_, question)| question).filter(|question| question.is_played);
        played.questions = met.collect();
        let is_missed = played.questions.iter().any(|question| question.is_missed);
        if played.why.is_none() && (is_missed || played.questions.is_empty()) {
            played.why = Some(self.why_not_played(incident));
        }
        Ok(played)
    }

    /// Why a reply of the source was not the incident's.
    fn why_not_played(&self, incident: &Incident) -> String {
        if self.upstream.requests() == 0 {
            return "the plugin did not ask for its source at the port of `--break-upstream`".to_owned();
        }
        format!("it needs {}; a plugin that serves cached answers must not do so here", incident.needs)
    }

    /// Asks a question before the incident. `None` if the answer has no sets that could be lost.
    async fn before(&self, incident: &Incident, case: &Case) -> anyhow::Result<Option<PlayedQuestion>> {
        let mut answer = None;
        for attempt in 0..TRIES {
            let requests = self.upstream.requests();
            let answered = self.ask(incident, "before it", case).await?;
            let is_list = matches!(answered.verdict, Verdict::Parameters(_));
            if is_list {
                answer = Some(Kept::of(&answered.verdict));
            }
            // After the incident before, a plugin may spare its source for a while. One that never asked it will not begin.
            let will_not_ask = requests == 0 && self.upstream.requests() == 0;
            if is_list && (self.upstream.requests() > requests || will_not_ask) {
                break;
            }
            if attempt + 1 < TRIES {
                sleep(PAUSE).await;
            }
        }
        let Some((kept, before)) = answer.and_then(|kept| kept.count.map(|before| (kept, before))) else {
            return Ok(None);
        };
        let (case, replies) = (case.name.clone(), Vec::new());
        Ok(Some(PlayedQuestion {
            case,
            before,
            deletes: 0,
            replies,
            is_unclear: false,
            is_played: false,
            is_missed: false,
            kept,
        }))
    }

    async fn ask(&self, incident: &Incident, when: &str, case: &Case) -> anyhow::Result<Answered> {
        (self.progress)(&format!("{}: {when}: {}", incident.name, case.name));
        Ok(self.target.prepare(Requester::ArgoCd, case.body())?.ask().await.evaluate())
    }

    /// Asks each question while the source replies like `fault`.
    async fn suffer(
        &self,
        incident: &Incident,
        fault: &'static Fault,
        questions: &mut [(&Case, PlayedQuestion)],
    ) -> anyhow::Result<()> {
        self.upstream.play(Some(fault));
        for (case, question) in questions {
            let faults = self.upstream.faults();
            for _ in 0..TRIES {
                let requests = self.upstream.requests();
                let answered = self.ask(incident, fault.does, case).await?;
                self.judge(fault.does, question, &answered);
                if self.upstream.requests() > requests || requests == 0 {
                    break;
                }
                // After a failure a plugin may spare its source for a while.
                sleep(PAUSE).await;
            }
            let is_met = self.upstream.faults() > faults;
            question.is_played |= is_met;
            question.is_missed |= !is_met;
        }
        Ok(())
    }

    /// Restarts the plugin server, and asks until it replies. The inner error says why it is not there.
    async fn restart_and_wait(
        &self,
        incident: &Incident,
        questions: &mut [(&Case, PlayedQuestion)],
    ) -> anyhow::Result<Result<(), String>> {
        if let Err(error) = self.restart.unwrap_or(&Restart::Person).run().await {
            return Ok(Err(printable(&format!("{error:#}"))));
        }
        let until = Instant::now() + READY;
        for (case, question) in questions {
            loop {
                let requests = self.upstream.requests();
                let answered = self.ask(incident, "after the restart", case).await?;
                // A plugin that asks its source is there again, even if it closes the connection then.
                if answered.status.is_some() || self.upstream.requests() > requests {
                    self.judge("after the restart", question, &answered);
                    break;
                }
                if Instant::now() >= until {
                    let seconds = READY.as_secs();
                    return Ok(Err(format!("{seconds} s after the restart the plugin server did not reply")));
                }
                sleep(PAUSE).await;
            }
        }
        Ok(Ok(()))
    }

    /// Notes what Argo CD does after this reply.
    fn judge(&self, when: &str, question: &mut PlayedQuestion, answered: &Answered) {
        let status = shown_status(answered);
        let before = question.before;
        let note = match count(&answered.verdict) {
            None if answered.is_beyond => {
                question.is_unclear = true;
                format!("status {status}, and an answer that is larger than the suite evaluates")
            }
            None => return,
            Some(now) if now < before => {
                question.deletes = question.deletes.max(before - now);
                format!("status {status}, {now} sets instead of {before}")
            }
            Some(now) => match question.kept.difference(&answered.verdict) {
                // More sets than before are new Applications.
                Some(difference) if now == before => {
                    question.is_unclear = true;
                    format!(
                        "status {status}, as many sets, but {difference}; Argo CD deletes Applications whose names change"
                    )
                }
                _ => return,
            },
        };
        question.replies.push(printable(&self.target.secrets().redact(&format!("{when}: {note}"))));
    }
}

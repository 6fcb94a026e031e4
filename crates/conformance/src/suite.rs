//! Runs the suite: sends the questions, and checks the replies. Replies are evaluated one at a time, and only hashes of them are kept.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::{task::yield_now, time::timeout};

use super::{
    cases::Case,
    checks::{check_answer, check_equal, check_refusal, shown_status},
    kept::{Kept, count},
    rules::{self, Results, Rule},
    target::{Answered, Question, Reply, Requester, Target},
    upstream::{FAULTS, Upstream},
};

/// How often each question is sent in all, to find answers that differ.
const ROUNDS: usize = 3;
/// How many questions are sent at once. Argo CD reconciles up to ten ApplicationSets at a time.
const AT_ONCE: usize = 10;

/// A run of the suite.
struct Run<'a> {
    target: &'a Target,
    /// Called with the name of the next question.
    progress: &'a dyn Fn(&str),
    results: &'a mut Results,
}

/// Runs all rules against `target`, for at most `max_time`. With `upstream`, also plays faults of the plugin's source.
///
/// # Errors
/// When the suite itself cannot ask.
pub async fn run(
    target: &Target,
    cases: &[Case],
    upstream: Option<&Upstream>,
    max_time: Duration,
    progress: &dyn Fn(&str),
) -> anyhow::Result<Results> {
    let mut results = Results::new(target.secrets(), target.timeout);
    let run = Run { target, progress, results: &mut results };
    match timeout(max_time, run.all(cases, upstream)).await {
        Ok(requests) => requests?,
        Err(_) => results.stop(&format!("not everything was sent within {} s", max_time.as_secs())),
    }
    Ok(results)
}

impl Run<'_> {
    async fn all(mut self, cases: &[Case], upstream: Option<&Upstream>) -> anyhow::Result<()> {
        let good: Vec<&Case> = cases.iter().filter(|case| !case.error).collect();
        let mut healthy = Vec::new();
        for case in &good {
            healthy.push(self.question(case).await?);
        }
        self.concurrency(&good, &healthy).await?;
        if self.target.has_token() {
            let body = good[0].body();
            let name = "a question without a token";
            self.refusal(rules::NO_TOKEN, name, Requester::NoToken, body.clone()).await?;
            let name = "a question with a wrong token";
            self.refusal(rules::WRONG_TOKEN, name, Requester::WrongToken, body).await?;
        }
        for case in cases.iter().filter(|case| case.error) {
            self.refusal(rules::REFUSES, &case.name, Requester::ArgoCd, case.body()).await?;
        }
        let half = "{\"applicationSetName\":".to_owned();
        self.refusal(rules::REFUSES_HALF, "a body that is half a JSON document", Requester::ArgoCd, half).await?;
        if let Some(upstream) = upstream {
            self.faults(&good, &healthy, upstream).await?;
        }
        Ok(())
    }

    /// Asks once, and evaluates the reply.
    async fn ask(&self, name: &str, requester: Requester, body: String) -> anyhow::Result<Answered> {
        (self.progress)(name);
        Ok(evaluate(self.target.prepare(requester, body)?.ask().await).await)
    }

    /// Asks a good question some times. Returns the part of the first answer that is kept, if it could be evaluated.
    async fn question(&mut self, case: &Case) -> anyhow::Result<Option<Kept>> {
        let first = self.ask(&case.name, Requester::ArgoCd, case.body()).await?;
        check_answer(case, &first, self.results);
        let kept = keep(&first);
        drop(first);
        for _ in 1..ROUNDS {
            let again = self.ask(&case.name, Requester::ArgoCd, case.body()).await?;
            check_answer(case, &again, self.results);
            check_equal(rules::EQUAL, &case.name, kept.as_ref(), &again, self.results);
        }
        Ok(kept)
    }

    async fn concurrency(&mut self, cases: &[&Case], healthy: &[Option<Kept>]) -> anyhow::Result<()> {
        (self.progress)("ten questions at once");
        let requests = (0..AT_ONCE).map(|number| number % cases.len());
        let prepared = requests.clone().map(|index| self.target.prepare(Requester::ArgoCd, cases[index].body()));
        let questions = prepared.collect::<anyhow::Result<Vec<_>>>()?;
        // All replies come before the first is evaluated: evaluating would delay the others.
        let replies = join_all(questions.into_iter().map(Question::ask)).await;
        for (index, reply) in requests.zip(replies) {
            let answered = evaluate(reply).await;
            check_answer(cases[index], &answered, self.results);
            check_equal(rules::CONCURRENT, &cases[index].name, healthy[index].as_ref(), &answered, self.results);
        }
        Ok(())
    }

    /// Asks a bad question.
    async fn refusal(&mut self, rule: Rule, name: &str, requester: Requester, body: String) -> anyhow::Result<()> {
        let refused = self.ask(name, requester, body).await?;
        check_refusal(rule, name, &refused, self.results);
        Ok(())
    }

    /// Plays each fault of the source, and checks that no answer loses sets.
    async fn faults(&mut self, cases: &[&Case], healthy: &[Option<Kept>], upstream: &Upstream) -> anyhow::Result<()> {
        for fault in FAULTS {
            upstream.play(Some(fault));
            for (case, before) in cases.iter().zip(healthy) {
                let Some(had) = before.as_ref().and_then(|kept| kept.count).filter(|had| *had > 0) else { continue };
                let requests = upstream.requests();
                let question = format!("{}, while the source {}", case.name, fault.does);
                let answered = self.ask(&question, Requester::ArgoCd, case.body()).await?;
                if upstream.requests() == requests {
                    // It did not ask its source here, so nothing was broken.
                    continue;
                }
                self.fault(&format!("the source {}: {}", fault.does, case.name), had, &answered);
            }
        }
        upstream.play(None);
        Ok(())
    }

    /// Checks the reply to a question that had so many sets before the source failed.
    fn fault(&mut self, name: &str, had: usize, answered: &Answered) {
        if answered.is_beyond {
            self.results
                .unknown(rules::BROKEN_SOURCE, &format!("{name}: the answer is larger than the suite evaluates"));
            return;
        }
        let status = shown_status(answered);
        let lost = count(&answered.verdict).filter(|has| *has < had).map(|has| {
            let gone = had - has;
            format!("{name} has {has} sets instead of {had}, with status {status}; Argo CD deletes {gone}")
        });
        self.results.check(rules::BROKEN_SOURCE, lost);
    }
}

/// Evaluates a reply. Before that, other tasks may run, and the time of the run may end.
async fn evaluate(reply: Reply) -> Answered {
    yield_now().await;
    reply.evaluate()
}

/// The stored hash of an answer. `None` if the answer was too large to be evaluated.
fn keep(answered: &Answered) -> Option<Kept> {
    if answered.is_beyond { None } else { Some(Kept::of(&answered.verdict)) }
}

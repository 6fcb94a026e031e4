//! Limits the rate and the concurrency of a caller's calls. A call above a limit waits for a permit, in the order of arrival, as long as its
//! deadline allows.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use governor::{
    Quota, RateLimiter,
    clock::Clock,
    middleware::NoOpMiddleware,
    state::{InMemoryState, NotKeyed},
};
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout_at},
};

use super::questions::{MOST, Questions};
use domain::{
    clock::Timestamp,
    problem::{Path, Problems},
};
use telemetry::count::CountGuard;

/// How many calls of one entry may wait for a permit.
const MAX_WAITING: usize = 1000;
/// `Retry-After` if it is unknown when a permit is free again.
const RETRY: Duration = Duration::from_secs(1);

/// The limits that all callers of one entry of the configuration share.
#[derive(Debug, Default)]
pub struct Allowance {
    rate: Option<Rate>,
    concurrency: Option<Concurrency>,
    questions: Option<Questions>,
    waiting: AtomicUsize,
}

/// The limits of an entry, as the configuration has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallLimits {
    /// Calls per second.
    pub rate: Option<u32>,
    /// Calls under way.
    pub concurrency: Option<usize>,
    /// Different questions within a day.
    pub(crate) max_questions: Option<usize>,
}

#[derive(Debug)]
struct Rate {
    max: NonZeroU32,
    limiter: RateLimiter<NotKeyed, InMemoryState, TokioClock, NoOpMiddleware<Duration>>,
    /// Held by the call that gets the next permit. The other calls queue for it.
    next: Mutex<()>,
}

#[derive(Debug)]
struct Concurrency {
    max: usize,
    free: Arc<Semaphore>,
}

/// A call under way, until it is dropped.
#[derive(Debug)]
pub struct CallPermit {
    _permit: Option<OwnedSemaphorePermit>,
}

/// The limit that a call exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    /// The entry's `rate`, and when a call is allowed again.
    Rate(Duration),
    /// The entry's `concurrency`; with when to try again.
    Concurrency(Duration),
    /// The entry's `maxQuestions`: the limit, and when another question may be allowed.
    Questions(usize, Duration),
}

/// The time that tokio's timers go by, so that tests can pause it.
#[derive(Debug, Clone)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

impl Rate {
    fn new(max: NonZeroU32) -> Self {
        let limiter = RateLimiter::direct_with_clock(Quota::per_second(max), TokioClock(Instant::now()));
        Self { max, limiter, next: Mutex::new(()) }
    }

    /// Waits for a permit. A call that stops waiting uses up nothing.
    async fn pass(&self) {
        let _next = self.next.lock().await;
        while let Err(early) = self.limiter.check() {
            sleep(early.wait_time_from(self.limiter.clock().now())).await;
        }
    }
}

/// A call that counts as waiting until the guard is dropped.
type Waiting<'a> = CountGuard<&'a AtomicUsize>;

impl Allowance {
    /// `rate` calls per second, as many of which may come at once, `concurrency` calls under way, and `maxQuestions` different questions
    /// within a day; any unless set. They stand below `path`.
    pub fn build(limits: CallLimits, path: &Path, problems: &mut Problems) -> Arc<Self> {
        let CallLimits { rate, concurrency, max_questions } = limits;
        let configured = [
            ("rate", rate.map(u64::from)),
            ("concurrency", concurrency.map(|max| max as u64)),
            ("maxQuestions", max_questions.map(|max| max as u64)),
        ];
        for (key, _) in configured.into_iter().filter(|(_, max)| *max == Some(0)) {
            problems.error(&path.key(key), "with 0 every call would be refused");
        }
        if max_questions.is_some_and(|max| max > MOST) {
            let help = "leave it out for any number: each route keeps its share of the memory all the same";
            problems.error_with_help(&path.key("maxQuestions"), format!("it can be {MOST} at most"), help);
        }
        let rate = rate.and_then(NonZeroU32::new).map(Rate::new);
        let concurrency =
            concurrency.map(|max| Concurrency { max, free: Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))) });
        let questions = max_questions.map(Questions::new);
        Arc::new(Self { rate, concurrency, questions, waiting: AtomicUsize::new(0) })
    }

    /// Notes that the question `id` is sent, at the time `now`.
    ///
    /// # Errors
    /// When it is one question too many within a day.
    pub fn note_question(&self, id: u64, now: impl FnOnce() -> Timestamp) -> Result<(), Excess> {
        let Some(questions) = &self.questions else { return Ok(()) };
        questions.note(id, now()).map_err(|after| Excess::Questions(questions.max(), after))
    }

    /// A permit for one more call. Calls get permits in the order of arrival.
    ///
    /// # Errors
    /// When no permit can be available before `until`, or the queue is full.
    pub async fn enter(&self, until: Instant) -> Result<CallPermit, Excess> {
        let _waiting = self.queue(until)?;
        let permit = match &self.concurrency {
            None => None,
            Some(Concurrency { free, .. }) => match timeout_at(until, Arc::clone(free).acquire_owned()).await {
                Ok(Ok(permit)) => Some(permit),
                _ => return Err(Excess::Concurrency(RETRY)),
            },
        };
        if let Some(rate) = &self.rate {
            timeout_at(until, rate.pass()).await.map_err(|_| Excess::Rate(RETRY))?;
        }
        Ok(CallPermit { _permit: permit })
    }

    /// A place in the queue, unless it is clear that the call's permit comes too late.
    fn queue(&self, until: Instant) -> Result<Waiting<'_>, Excess> {
        let waiting = Waiting::new(&self.waiting);
        let before = self.waiting.load(Ordering::Relaxed).saturating_sub(1);
        if let Some(rate) = &self.rate {
            // At least so long until those before it have got their permits.
            let all = Duration::from_secs(before as u64) / rate.max.get();
            let late = all.saturating_sub(until.saturating_duration_since(Instant::now()));
            if !late.is_zero() || before >= MAX_WAITING {
                return Err(Excess::Rate(late.max(RETRY)));
            }
        }
        if before >= MAX_WAITING { Err(Excess::Concurrency(RETRY)) } else { Ok(waiting) }
    }

    fn limits(&self) -> CallLimits {
        CallLimits {
            rate: self.rate.as_ref().map(|rate| rate.max.get()),
            concurrency: self.concurrency.as_ref().map(|concurrency| concurrency.max),
            max_questions: self.questions.as_ref().map(Questions::max),
        }
    }
}

/// Lets entries of a new configuration keep the allowance of a former entry with the same name and limits, so that a reload does not reset
/// limits.
pub(crate) fn carry_over<'a>(
    before: impl Iterator<Item = (&'a str, &'a Arc<Allowance>)>,
    now: impl Iterator<Item = (&'a str, &'a mut Arc<Allowance>)>,
) {
    let mut before: Vec<_> = before.collect();
    for (name, own) in now {
        let same = before.iter().position(|(other, former)| *other == name && former.limits() == own.limits());
        if let Some(same) = same {
            *own = Arc::clone(before.remove(same).1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::{FutureExt, future::join_all};

    use super::*;

    fn build(rate: Option<u32>, concurrency: Option<usize>) -> Arc<Allowance> {
        let limits = CallLimits { rate, concurrency, max_questions: None };
        Allowance::build(limits, &Path::root(), &mut Problems::default())
    }

    /// How long `count` calls that come at once take until they have their permits, with at most `patience`.
    async fn enter_all(allowance: &Arc<Allowance>, count: usize, patience: Duration) -> Vec<Result<Duration, Excess>> {
        let began = Instant::now();
        let calls = (0..count).map(async |_| allowance.enter(began + patience).await.map(|_| began.elapsed()));
        join_all(calls).await
    }

    const PATIENCE: Duration = Duration::from_secs(25);

    #[tokio::test(start_paused = true)]
    async fn a_warm_matrix_waits_for_its_permits() {
        let allowance = build(Some(100), None);
        let waits: Vec<Duration> = enter_all(&allowance, 200, PATIENCE).await.into_iter().map(Result::unwrap).collect();
        assert!(waits.is_sorted(), "{waits:?}");
        assert_eq!(waits[99], Duration::ZERO);
        assert!((900..1100).contains(&waits[199].as_millis()), "{waits:?}");
        // One after the other too.
        let began = Instant::now();
        for _ in 0..200 {
            allowance.enter(Instant::now() + PATIENCE).await.unwrap();
        }
        assert!((1900..2200).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_that_comes_too_late_is_refused_at_once() {
        let allowance = build(Some(1), None);
        let began = Instant::now();
        let waits = enter_all(&allowance, 5, Duration::from_millis(2500)).await;
        assert_eq!(waits[..3].iter().flatten().count(), 3, "{waits:?}");
        assert_eq!(waits[3..], [Err(Excess::Rate(RETRY)); 2], "{waits:?}");
        assert_eq!(began.elapsed().as_millis(), 2500);
        let first = allowance.enter(began).await.unwrap_err();
        let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(allowance.enter(began + PATIENCE))).collect();
        assert!(waiting.iter_mut().all(|call| call.now_or_never().is_none()));
        let last = allowance.enter(Instant::now() + Duration::from_secs(1)).now_or_never().expect("at once");
        assert_eq!((first, last.unwrap_err()), (Excess::Rate(RETRY), Excess::Rate(Duration::from_secs(3))));
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_has_a_bound() {
        let allowance = build(None, Some(1));
        let until = Instant::now() + PATIENCE;
        let _permit = allowance.enter(until).await.unwrap();
        let mut calls: Vec<_> = (0..=MAX_WAITING).map(|_| Box::pin(allowance.enter(until))).collect();
        let refused: Vec<_> = calls.iter_mut().filter_map(FutureExt::now_or_never).map(Result::unwrap_err).collect();
        assert_eq!(refused, [Excess::Concurrency(RETRY)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_stops_waiting_takes_no_permit() {
        for (allowance, wait) in [(build(Some(1), None), 1000), (build(None, Some(1)), 0)] {
            let until = Instant::now() + PATIENCE;
            let first = allowance.enter(until).await.unwrap();
            for _ in 0..10 {
                let stopped = timeout_at(Instant::now() + Duration::from_millis(1), allowance.enter(until)).await;
                assert!(stopped.is_err());
            }
            drop(first);
            let began = Instant::now();
            allowance.enter(until).await.unwrap();
            assert!(began.elapsed().as_millis() <= wait, "{:?}", began.elapsed());
            assert_eq!(allowance.waiting.load(Ordering::Relaxed), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_under_way_and_the_next_waits() {
        let allowance = build(None, Some(2));
        let until = Instant::now() + PATIENCE;
        let (first, second) = (allowance.enter(until).await.unwrap(), allowance.enter(until).await.unwrap());
        let mut third = pin!(allowance.enter(until));
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        let third = third.await.unwrap();
        let late = allowance.enter(until).await.unwrap_err();
        assert_eq!((late, Instant::now()), (Excess::Concurrency(RETRY), until));
        drop((second, third));
        let any = build(None, None);
        assert!(join_all((0..10_000).map(|_| any.enter(until))).await.iter().all(Result::is_ok));
    }

    #[test]
    fn nothing_at_all_is_a_mistake() {
        let mut problems = Problems::default();
        let limits = CallLimits { rate: Some(0), concurrency: Some(0), max_questions: Some(0) };
        Allowance::build(limits, &Path::root(), &mut problems);
        Allowance::build(
            CallLimits { max_questions: Some(MOST + 1), ..CallLimits::default() },
            &Path::root(),
            &mut problems,
        );
        let paths: Vec<String> = problems.into_vec().iter().map(|problem| problem.path.to_string()).collect();
        assert_eq!(paths, ["rate", "concurrency", "maxQuestions", "maxQuestions"]);
    }

    #[test]
    fn a_reload_does_not_forget_the_questions() {
        let build = |max| {
            let limits = CallLimits { max_questions: Some(max), ..CallLimits::default() };
            Allowance::build(limits, &Path::root(), &mut Problems::default())
        };
        let ask = |allowance: &Allowance, id: u64| allowance.note_question(id << 32, || Timestamp(0));
        let before = build(2);
        assert_eq!((ask(&before, 1), ask(&before, 2)), (Ok(()), Ok(())));
        let mut now = [("a", build(2)), ("b", build(3))];
        let former = [("a", &before), ("b", &before)];
        carry_over(former.into_iter(), now.iter_mut().map(|(name, allowance)| (*name, allowance)));
        assert!(matches!(ask(&now[0].1, 3), Err(Excess::Questions(2, _))));
        assert_eq!((ask(&now[0].1, 2), ask(&now[1].1, 3)), (Ok(()), Ok(())));
        assert_eq!(Allowance::default().note_question(1, || unreachable!("no limit needs the time")), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_stays_goes_on() {
        let now_or_never = |allowance: &Arc<Allowance>| {
            allowance.enter(Instant::now()).now_or_never().is_some_and(|permit| permit.is_ok())
        };
        let before = [("a", build(Some(1), None)), ("a", build(Some(1), None)), ("b", build(None, Some(1)))];
        let waits =
            before.each_ref().map(|(_, allowance)| allowance.enter(Instant::now()).now_or_never().unwrap().unwrap());
        let mut now = [
            ("b", build(None, Some(1))),
            ("a", build(Some(1), None)),
            ("a", build(Some(2), None)),
            ("c", build(Some(1), None)),
        ];
        carry_over(
            before.iter().map(|(name, allowance)| (*name, allowance)),
            now.iter_mut().map(|(name, allowance)| (*name, allowance)),
        );
        let may = now.each_ref().map(|(_, allowance)| now_or_never(allowance));
        assert_eq!(may, [false, false, true, true], "other limits, and other names, start at zero");
        drop(waits);
        assert!(now_or_never(&now[0].1), "calls that began before are counted until they end");
    }
}

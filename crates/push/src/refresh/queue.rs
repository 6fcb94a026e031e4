//! Which ApplicationSets are refreshed next. One that is refreshed often waits longer, so that a flapping source cannot make Argo CD reconcile all the
//! time. Pure: each call passes the time.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use argocd::{AT_ONCE, Refreshed};

/// How many ApplicationSets wait at most. Argo CD asks for the others when it is their time.
const MAX_WAITING: usize = 1000;
/// How often an ApplicationSet is refreshed in quick succession.
const BURST: u32 = 10;
/// After that, how often.
const EVERY: Duration = Duration::from_secs(5);
/// An ApplicationSet is not refreshed again for the same change within this time: it is about to call.
const SAME_FOR: Duration = Duration::from_secs(5);
/// How many changes are remembered before old ones are removed.
const MAX_CHANGES: usize = 1000;
/// The pauses after failures: each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// How often a refresh is tried. The pauses add up to about ten minutes.
const MAX_ATTEMPTS: u32 = 15;

/// The ApplicationSets that are to be refreshed.
#[derive(Debug, Default)]
pub(super) struct RefreshQueue {
    waiting: HashMap<Arc<str>, Refresh>,
    running: HashSet<Arc<str>>,
    /// From when on an ApplicationSet may be refreshed [`BURST`] times in quick succession again.
    calm_at: HashMap<Arc<str>, Instant>,
    /// When an ApplicationSet was last to be refreshed for a change.
    changes: HashMap<(Arc<str>, u64), Instant>,
}

/// A refresh of an ApplicationSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refresh {
    at: Instant,
    /// Since when it is wanted.
    pub(super) since: Instant,
    attempts: u32,
    /// The namespaces whose ApplicationSet of this name is refreshed already.
    pub(super) refreshed: Vec<Arc<str>>,
}

/// The result of a refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefreshEnd {
    /// It was done, or there is nothing to do.
    Done,
    /// It is tried again later.
    Again,
    /// It is not tried again.
    GivenUp,
}

impl RefreshQueue {
    /// The ApplicationSet `name` is to be refreshed for `change`, a hash of it, as soon as its rate allows. Returns false if too many wait.
    pub(super) fn want(&mut self, name: &Arc<str>, change: u64, now: Instant) -> bool {
        if self.changes.len() >= MAX_CHANGES {
            self.changes.retain(|_, at| now.duration_since(*at) < SAME_FOR);
        }
        let before = self.changes.get(&(Arc::clone(name), change));
        if before.is_some_and(|at| now.duration_since(*at) < SAME_FOR) {
            return true;
        }
        if !self.waiting.contains_key(name) && self.waiting.len() >= MAX_WAITING {
            return false;
        }
        // An earlier change that comes back is a change too.
        self.changes.retain(|(other, _), _| other != name);
        self.changes.insert((Arc::clone(name), change), now);
        if let Some(waiting) = self.waiting.get_mut(name) {
            // It is refreshed once for both, and in each namespace.
            waiting.refreshed.clear();
            return true;
        }
        let at = self.calm_at.get(name).map_or(now, |calm| (*calm).max(now + EVERY * BURST) - EVERY * BURST);
        self.waiting
            .insert(Arc::clone(name), Refresh { at: at.max(now), since: now, attempts: 0, refreshed: Vec::new() });
        true
    }

    /// The next refresh that is due.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Arc<str>, Refresh)> {
        if self.running.len() >= AT_ONCE {
            return None;
        }
        let (name, _) = self.due().filter(|(_, refresh)| refresh.at <= now)?;
        let name = Arc::clone(name);
        let refresh = self.waiting.remove(&name)?;
        self.calm_at.retain(|_, calm| *calm > now);
        let calm = self.calm_at.entry(Arc::clone(&name)).or_insert(now);
        *calm = (*calm).max(now) + EVERY;
        self.running.insert(Arc::clone(&name));
        Some((name, refresh))
    }

    /// When the next refresh is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.due().filter(|_| self.running.len() < AT_ONCE).map(|(_, refresh)| refresh.at)
    }

    /// A refresh has ended. One that failed is tried again after a pause.
    pub(super) fn ended(&mut self, name: Arc<str>, refresh: Refresh, result: &Refreshed, now: Instant) -> RefreshEnd {
        self.running.remove(&name);
        let (pause_asked, refreshed) = match result {
            Refreshed::Failed { after, refreshed, .. } => (*after, refreshed.clone()),
            Refreshed::Unlisted(after) => (Some(*after), refresh.refreshed),
            Refreshed::Annotated(_) | Refreshed::Unknown => return RefreshEnd::Done,
        };
        let attempts = refresh.attempts + 1;
        if attempts >= MAX_ATTEMPTS {
            return RefreshEnd::GivenUp;
        }
        let pause =
            (FIRST_PAUSE * (1 << refresh.attempts.min(6))).min(LONGEST_PAUSE).max(pause_asked.unwrap_or_default());
        // A change that came meanwhile counts everywhere.
        let meanwhile = self.waiting.get(&name).map(|waiting| waiting.since);
        let refreshed = if meanwhile.is_some() { Vec::new() } else { refreshed };
        let since = refresh.since.min(meanwhile.unwrap_or(now));
        self.waiting.insert(name, Refresh { at: now + pause, since, attempts, refreshed });
        RefreshEnd::Again
    }

    /// All that are not refreshed yet, with those whose refresh is under way.
    pub(super) fn into_names(self) -> Vec<Arc<str>> {
        let mut names = self.running;
        names.extend(self.waiting.into_keys());
        names.into_iter().collect()
    }

    fn due(&self) -> Option<(&Arc<str>, &Refresh)> {
        let free = self.waiting.iter().filter(|(name, _)| !self.running.contains(*name));
        free.min_by_key(|(name, refresh)| (refresh.at, Arc::clone(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails() -> Refreshed {
        Refreshed::Failed { error: "no".to_owned(), after: None, refreshed: vec!["argocd".into()] }
    }

    #[test]
    fn requests_that_come_together_are_one_refresh() {
        let (mut queue, now, name) = (RefreshQueue::default(), Instant::now(), Arc::from("a"));
        (0..100).for_each(|_| assert!(queue.want(&name, 1, now)));
        let (_, first) = queue.next(now).unwrap();
        (0..100).for_each(|_| assert!(queue.want(&name, 2, now)));
        assert!(queue.next(now).is_none(), "one at a time");
        assert_eq!(queue.ended(Arc::clone(&name), first, &Refreshed::Annotated(1), now), RefreshEnd::Done);
        let (_, second) = queue.next(now).unwrap();
        queue.ended(name, second, &Refreshed::Annotated(1), now);
        assert!(queue.next(now).is_none() && queue.next_at().is_none());
    }

    #[test]
    fn a_flapping_source_leads_to_fewer_refreshes() {
        let (mut queue, began, name) = (RefreshQueue::default(), Instant::now(), Arc::from("a"));
        let mut refreshed = Vec::new();
        for second in 0..300 {
            let now = began + Duration::from_secs(second);
            queue.want(&name, second, now);
            if let Some((name, refresh)) = queue.next(now) {
                refreshed.push(second);
                queue.ended(name, refresh, &Refreshed::Annotated(1), now);
            }
        }
        assert!(refreshed[..10].iter().copied().eq(0..10), "{refreshed:?}");
        assert!((68..=72).contains(&refreshed.len()), "{}", refreshed.len());
        let (other, later) = (Arc::from("b"), began + Duration::from_mins(5));
        queue.want(&other, 0, later);
        assert!(queue.next(later).is_some(), "each has a rate of its own");
    }

    #[test]
    fn a_failure_is_tried_again_with_longer_pauses_and_then_dropped() {
        let (mut queue, mut now, name) = (RefreshQueue::default(), Instant::now(), Arc::from("a"));
        let began = now;
        queue.want(&name, 1, now);
        let mut pauses = Vec::new();
        loop {
            let (name, refresh) = queue.next(now).unwrap();
            assert_eq!(refresh.since, began);
            assert_eq!(
                refresh.refreshed.len(),
                usize::from(!pauses.is_empty()),
                "what was refreshed is not refreshed again"
            );
            if queue.ended(name, refresh, &fails(), now) == RefreshEnd::GivenUp {
                break;
            }
            let at = queue.next_at().unwrap();
            pauses.push((at - now).as_secs());
            now = at;
        }
        assert_eq!(pauses[..7], [1, 2, 4, 8, 16, 32, 60]);
        assert_eq!(pauses.len(), 14);
        assert!(queue.next_at().is_none());
        queue.want(&name, 2, now);
        let (_, refresh) = queue.next(queue.next_at().unwrap()).unwrap();
        let after = Some(Duration::from_secs(90));
        let pause_asked = Refreshed::Failed { error: "later".to_owned(), after, refreshed: Vec::new() };
        queue.ended(name, refresh, &pause_asked, now);
        assert_eq!(queue.next_at(), Some(now + Duration::from_secs(90)));
    }

    #[test]
    fn few_are_refreshed_at_once_and_not_all_wait() {
        let (mut queue, now) = (RefreshQueue::default(), Instant::now());
        let names: Vec<Arc<str>> = (0..2000).map(|number| format!("set-{number}").into()).collect();
        assert_eq!(names.iter().filter(|name| queue.want(name, 0, now)).count(), MAX_WAITING);
        let running: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
        assert_eq!(running.len(), AT_ONCE);
        assert!(queue.next_at().is_none());
        assert_eq!(queue.into_names().len(), MAX_WAITING, "at the end, all of them are left to others");
    }

    #[test]
    fn the_same_change_leads_to_one_refresh() {
        let (mut queue, now, name) = (RefreshQueue::default(), Instant::now(), Arc::from("a"));
        let mut refreshed = |change, after| {
            let now = now + Duration::from_secs(after);
            queue.want(&name, change, now);
            let next = queue.next(now);
            let is_refreshed = next.is_some();
            if let Some((name, refresh)) = next {
                queue.ended(name, refresh, &Refreshed::Annotated(1), now);
            }
            is_refreshed
        };
        assert_eq!([refreshed(1, 0), refreshed(1, 1), refreshed(2, 2), refreshed(1, 7)], [true, false, true, true]);
        assert_eq!(
            [refreshed(2, 20), refreshed(1, 21), refreshed(2, 22)],
            [true, true, true],
            "an answer that comes back is a change"
        );
    }
}

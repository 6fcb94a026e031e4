//! What is kept to be used again, and not for ever.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

/// How long something may wait to be used again.
const LONGEST: Duration = Duration::from_mins(1);

/// Those that wait, the first to be used again last.
#[derive(Debug)]
pub(crate) struct Idle<T>(Mutex<Waiting<T>>);

#[derive(Debug)]
struct Waiting<T> {
    all: Vec<(T, Instant)>,
    /// Whether somebody looks for those that waited for too long.
    is_swept: bool,
}

impl<T> Default for Idle<T> {
    fn default() -> Self {
        Self(Mutex::new(Waiting { all: Vec::new(), is_swept: false }))
    }
}

impl<T> Idle<T> {
    /// The one that was in use last.
    pub(crate) fn pop(&self) -> Option<T> {
        self.lock().all.pop().map(|(one, _)| one)
    }

    /// All of them.
    pub(crate) fn take(&self) -> Vec<T> {
        self.lock().all.drain(..).map(|(one, _)| one).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those beyond `ahead` that waited for too long; whether there may be more of them later.
    fn old(&self, ahead: usize) -> (Vec<T>, bool) {
        let mut waiting = self.lock();
        let surplus = waiting.all.len().saturating_sub(ahead);
        let old = waiting.all.iter().take(surplus).take_while(|(_, since)| since.elapsed() >= LONGEST).count();
        let ended = waiting.all.drain(..old).map(|(one, _)| one).collect();
        waiting.is_swept = waiting.all.len() > ahead;
        (ended, waiting.is_swept)
    }
}

impl<T: Send + 'static> Idle<T> {
    /// Lets `one` wait. What waits for too long is given to `end`, but for as many as are to be there `ahead`.
    pub(crate) fn push(self: &Arc<Self>, one: T, ahead: usize, end: impl Fn(T) + Send + 'static) {
        let mut waiting = self.lock();
        waiting.all.push((one, Instant::now()));
        if waiting.is_swept || waiting.all.len() <= ahead {
            return;
        }
        waiting.is_swept = true;
        drop(waiting);
        let idle = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut is_more = true;
            while is_more {
                sleep(LONGEST).await;
                let Some(idle) = idle.upgrade() else { return };
                let (old, more) = idle.old(ahead);
                is_more = more;
                old.into_iter().for_each(&end);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_too_long_is_ended() {
        let (idle, (ended, mut gone)) = (Arc::new(Idle::default()), mpsc::unbounded_channel());
        let push = |one: u32| {
            let ended = ended.clone();
            idle.push(one, 1, move |one| ended.send(one).unwrap());
        };
        (1..=4).for_each(push);
        assert_eq!(idle.pop(), Some(4));
        sleep(LONGEST / 2).await;
        push(5);
        sleep(LONGEST).await;
        assert_eq!((gone.try_recv(), gone.try_recv()), (Ok(1), Ok(2)));
        assert_eq!(gone.try_recv(), Ok(3), "the one that is kept is the last");
        assert!(gone.try_recv().is_err());
        sleep(LONGEST * 3).await;
        assert!(gone.try_recv().is_err(), "one is kept ahead");
        push(6);
        sleep(LONGEST * 2).await;
        assert_eq!((gone.try_recv(), idle.pop(), idle.pop()), (Ok(5), Some(6), None));
        push(7);
        assert_eq!(idle.take(), [7]);
    }
}

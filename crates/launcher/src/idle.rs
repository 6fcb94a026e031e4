//! Objects that are kept for reuse, for a limited time.

use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

/// How long an object may wait to be used again.
const MAX_IDLE: Duration = Duration::from_mins(1);

/// Objects that wait for reuse. The last one in is the first one out.
#[derive(Debug)]
pub struct Idle<T>(Mutex<Waiting<T>>);

#[derive(Debug)]
struct Waiting<T> {
    all: Vec<(T, Instant)>,
    /// Whether a task ends the objects that waited too long.
    is_swept: bool,
}

impl<T> Default for Idle<T> {
    fn default() -> Self {
        Self(Mutex::new(Waiting { all: Vec::new(), is_swept: false }))
    }
}

impl<T> Idle<T> {
    /// The object that was used last.
    pub fn pop(&self) -> Option<T> {
        self.lock().all.pop().map(|(one, _)| one)
    }

    /// The object that was used last, of those for which `is_wanted`.
    pub fn pop_if(&self, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
        let mut waiting = self.lock();
        let at = waiting.all.iter().rposition(|(one, _)| is_wanted(one))?;
        Some(waiting.all.remove(at).0)
    }

    /// All objects but the last `max`.
    pub fn surplus(&self, max: usize) -> Vec<T> {
        let mut waiting = self.lock();
        let surplus = waiting.all.len().saturating_sub(max);
        waiting.all.drain(..surplus).map(|(one, _)| one).collect()
    }

    /// All objects.
    pub fn take(&self) -> Vec<T> {
        self.lock().all.drain(..).map(|(one, _)| one).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.0.lock()
    }

    /// Takes the objects beyond `spare` that waited too long, and returns whether more of them may come.
    fn old(&self, spare: usize) -> (Vec<T>, bool) {
        let mut waiting = self.lock();
        let surplus = waiting.all.len().saturating_sub(spare);
        let old = waiting.all.iter().take(surplus).take_while(|(_, since)| since.elapsed() >= MAX_IDLE).count();
        let ended = waiting.all.drain(..old).map(|(one, _)| one).collect();
        waiting.is_swept = waiting.all.len() > spare;
        (ended, waiting.is_swept)
    }
}

impl<T: Send + 'static> Idle<T> {
    /// Keeps `one` for reuse. Passes objects that waited too long to `end`, except for the newest `spare`.
    pub fn push(self: &Arc<Self>, one: T, spare: usize, end: impl Fn(T) + Send + 'static) {
        let mut waiting = self.lock();
        waiting.all.push((one, Instant::now()));
        if waiting.is_swept || waiting.all.len() <= spare {
            return;
        }
        waiting.is_swept = true;
        drop(waiting);
        let idle = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut is_more = true;
            while is_more {
                sleep(MAX_IDLE).await;
                let Some(idle) = idle.upgrade() else { return };
                let (old, more) = idle.old(spare);
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

    #[tokio::test]
    async fn objects_are_found_and_the_oldest_go_first() {
        let idle = Arc::new(Idle::default());
        (1..=6).for_each(|one: u32| idle.push(one, 9, drop));
        assert_eq!((idle.pop_if(|one| one % 2 == 1), idle.pop_if(|one| *one > 6)), (Some(5), None));
        assert_eq!((idle.surplus(3), idle.surplus(3)), (vec![1, 2], vec![]));
        assert_eq!(idle.take(), [3, 4, 6]);
    }

    #[tokio::test(start_paused = true)]
    async fn objects_that_wait_too_long_are_ended() {
        let (idle, (ended, mut gone)) = (Arc::new(Idle::default()), mpsc::unbounded_channel());
        let push = |one: u32| {
            let ended = ended.clone();
            idle.push(one, 1, move |one| ended.send(one).unwrap());
        };
        (1..=4).for_each(push);
        assert_eq!(idle.pop(), Some(4));
        sleep(MAX_IDLE / 2).await;
        push(5);
        sleep(MAX_IDLE).await;
        assert_eq!((gone.try_recv(), gone.try_recv()), (Ok(1), Ok(2)));
        assert_eq!(gone.try_recv(), Ok(3), "the newest object is kept");
        assert!(gone.try_recv().is_err());
        sleep(MAX_IDLE * 3).await;
        assert!(gone.try_recv().is_err(), "one is kept as a spare");
        push(6);
        sleep(MAX_IDLE * 2).await;
        assert_eq!((gone.try_recv(), idle.pop(), idle.pop()), (Ok(5), Some(6), None));
        push(7);
        assert_eq!(idle.take(), [7]);
    }
}

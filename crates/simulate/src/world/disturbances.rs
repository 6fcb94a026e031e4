//! What fails, and for how long. Troubles of one source come one after the other, and so do changes of the store's content and of the processes.

use std::{future::Future, time::Duration};

use tokio::time::sleep;

use super::{CALM, World};
use crate::{plan::Act, sources::Trouble, truth::Set, volume::Damage};

impl World {
    /// Lets the source of `set` be in trouble during `work`. One trouble after the other, and lies with time between them: two equal lies one
    /// after the other are one that lasts longer.
    pub(super) async fn trouble(&self, set: Set, trouble: Trouble, work: impl Future<Output = ()>) {
        let is_close = {
            let mut watched = self.watched.lock();
            let until = &mut watched.troubled_until[set as usize];
            let is_close = self.history.now() < *until + CALM;
            if !is_close {
                *until = Duration::MAX / 2;
            }
            is_close
        };
        if is_close {
            return self.history.say("… but its source has just been in trouble");
        }
        let _fault = self.oracle.fault();
        self.history.count(if trouble.is_lie() { "lie" } else { "source fault" });
        self.sources.set_trouble(set, Some(trouble));
        work.await;
        self.sources.set_trouble(set, None);
        self.watched.lock().troubled_until[set as usize] = self.history.now();
        self.history.say(format!("the source of {} tells the truth again", set.name()));
    }

    pub(super) async fn for_a_while(&self, lasts: u64, set: impl Fn(bool)) {
        let _fault = self.oracle.fault();
        set(true);
        sleep(Duration::from_secs(lasts)).await;
        set(false);
        self.store.wake();
        self.history.say("… and that is over");
        self.recovered().await;
    }

    /// Waits until all processes are in contact again, for some minutes at most.
    async fn recovered(&self) {
        for _ in 0..1200 {
            sleep(Duration::from_secs(1)).await;
            if self.fleet.processes().iter().all(|process| process.is_in_contact()) {
                return;
            }
        }
        self.history.say("some processes are not in contact with the store twenty minutes later");
    }

    /// The store loses something. The only copy is never lost: then its content could not be known.
    pub(super) async fn disturb_store(&self, act: &Act) {
        let _turn = self.turn.lock().await;
        self.recovered().await;
        let _fault = self.oracle.fault();
        self.oracle.requesters_lost();
        let inner = &self.store.inner;
        match *act {
            Act::FailOver => {
                inner.replicate();
                sleep(Duration::from_millis(self.seed.dice(("lost", self.history.now())).u64(..1000))).await;
                inner.fail_over();
            }
            Act::Emptied => inner.flush_all(),
            Act::Backup(since) => {
                inner.replicate();
                sleep(Duration::from_secs(since)).await;
                let _busy = self.pace.busy().await;
                inner.roll_back();
                self.store.wake();
                sleep(Duration::from_secs(20)).await;
            }
            _ => {}
        }
        self.store.wake();
        self.history.say("the store has lost something");
        self.recovered().await;
    }

    pub(super) async fn disturb_processes(&self, act: &Act) {
        let _turn = self.turn.lock().await;
        self.recovered().await;
        let _fault = self.oracle.fault();
        let disks = self.fleet.disks();
        if !self.fleet.is_shared() && disks.iter().any(|disk| disk.is_behind()) {
            return self.history.say("… but the only memory cannot be written");
        }
        match *act {
            Act::Kill(machine, later) => self.fleet.kill(machine, Duration::from_secs(later), Damage::None).await,
            Act::Damage(machine, later, damage) => {
                self.fleet.kill(machine, Duration::from_secs(later), damage).await;
            }
            Act::RollOut => self.fleet.roll_out().await,
            Act::Scale(count) if self.fleet.is_shared() => self.fleet.scale(count).await,
            _ => {}
        }
        if matches!(act, Act::Damage(..)) || disks.iter().any(|disk| disk.has_failed()) {
            self.recover_records().await;
        }
        self.recovered().await;
    }

    /// Records are lost. What is unknown now is confirmed, or an operator sees it.
    async fn recover_records(&self) {
        self.oracle.requesters_lost();
        if !self.fleet.is_shared() {
            self.oracle.forgotten();
        }
        for _ in 0..40 {
            sleep(Duration::from_mins(1)).await;
            self.tend_once().await;
            self.api.annotate(Set::Previews);
        }
    }

    pub(super) async fn change_routes(&self, change: impl FnOnce(&mut [u32; 4])) {
        let _turn = self.turn.lock().await;
        let _fault = self.oracle.fault();
        self.fleet.reload(|settings| change(&mut settings.names)).await;
        sleep(Duration::from_secs(15)).await;
    }
}

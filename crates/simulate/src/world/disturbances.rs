//! What fails, and for how long. Troubles of one source come one after the other, and so do changes of the store's content and of the processes.

use std::{future::Future, time::Duration};

use fastrand::Rng;
use tokio::time::sleep;

use super::{CALM, World};
use crate::{
    plan::Act,
    sources::{Affected, Share, Trouble},
    truth::Set,
    volume::Damage,
};

impl World {
    /// Whether the source of `set` may be in trouble now. One trouble after the other, and lies with time between them: two equal lies one after
    /// the other are one that lasts longer. The list of elements and their source count as one.
    fn may_be_troubled(&self, set: Set) -> bool {
        let mut watched = self.watched.lock();
        let until = &mut watched.troubled_until[set as usize];
        let is_close = self.history.now() < *until + CALM;
        if is_close {
            self.history.say("… but its source has just been in trouble");
        } else {
            *until = Duration::MAX / 2;
        }
        !is_close
    }

    /// Lets the source of `set` be in trouble during `work`.
    pub(super) async fn trouble(&self, set: Set, trouble: Trouble, work: impl Future<Output = ()>) {
        if !self.may_be_troubled(set) {
            return;
        }
        let _fault = self.oracle.fault();
        self.history.count(if trouble.is_lie() { "lie" } else { "source fault" });
        self.sources.set_trouble(set, Some(trouble));
        work.await;
        self.sources.set_trouble(set, None);
        self.watched.lock().troubled_until[set as usize] = self.history.now();
        self.history.say(format!("the source of {} tells the truth again", set.name()));
    }

    /// Lets the source of elements be in trouble about some of them. One that fails is no fault for the others.
    pub(super) async fn trouble_elements(&self, share: Share, trouble: Trouble, lasts: u64, dice: &mut Rng) {
        let open: Vec<String> = self.truth.lock().open().map(|(name, _)| name.clone()).collect();
        if open.is_empty() || !self.may_be_troubled(Set::Pulls) {
            return;
        }
        let affected = match share {
            Share::One => Affected::Only(open[dice.usize(..open.len())].clone()),
            Share::Some => Affected::Third,
            Share::All => Affected::All,
        };
        let (mut fault, mut failing) = (None, None);
        match &affected {
            Affected::Only(branch) if !trouble.is_lie() => failing = Some(self.oracle.fails(branch)),
            _ => fault = Some(self.oracle.fault()),
        }
        self.history.count(if trouble.is_lie() { "lie about elements" } else { "fault of elements" });
        self.history.say(format!("{affected:?}: {trouble:?}"));
        self.sources.set_elements(Some((affected.clone(), trouble)));
        sleep(Duration::from_secs(lasts)).await;
        if trouble.is_lie() && dice.bool() {
            // What it said last, nobody can ask again.
            let lasts = dice.u64(60..900);
            self.history.say(format!("the source of elements fails after the lie, for {lasts} s"));
            self.sources.set_elements(Some((affected, Trouble::Unavailable)));
            sleep(Duration::from_secs(lasts)).await;
        }
        self.sources.set_elements(None);
        self.watched.lock().troubled_until[Set::Pulls as usize] = self.history.now();
        self.history.say("the source of elements tells the truth again");
        drop((fault, failing));
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

    pub(super) async fn change_routes(&self, change: impl FnOnce(&mut [u32; Set::COUNT])) {
        let _turn = self.turn.lock().await;
        let _fault = self.oracle.fault();
        self.fleet.reload(|settings| change(&mut settings.names)).await;
        sleep(Duration::from_secs(15)).await;
    }
}

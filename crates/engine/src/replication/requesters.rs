//! Which ApplicationSets were served another answer than the one that is stored now. They call again once they are notified.

use std::{collections::BTreeMap, hash::BuildHasher as _, sync::Arc, time::Duration};

use foldhash::quality::FixedState;
use tokio::sync::mpsc::Receiver;

use crate::{
    answer::{Engine, live::live},
    cache::{Disk, Key},
    route::RouteTable,
    state::{
        notices::Notice,
        requesters::{Fingerprint, Requester, named},
    },
};
use domain::{clock::Timestamp, generator::Question};

/// For how long the store keeps the requesters of a question.
const KEPT_FOR: Duration = Duration::from_hours(25);

impl Engine {
    /// The notices of runs from now on. `dropped` is called for each that does not fit into the queue.
    pub fn notices(&self, dropped: impl Fn() + Send + Sync + 'static) -> Receiver<Notice> {
        self.known.notices.follow(dropped)
    }

    /// Writes the requesters since the last call, and the answers that they were served, to the file and for the other replicas.
    pub async fn publish_requesters(&self) {
        let mut lists: BTreeMap<Key, Vec<(String, String)>> = BTreeMap::new();
        let now = self.clock.now();
        let changed = self.requesters.take_changed();
        for (key, Requester { name, at, served }) in &changed {
            lists.entry(*key).or_default().push((name.to_string(), format!("{} {served:x}", at.0)));
        }
        if let Some(disk) = self.answers().disk() {
            for key in lists.keys() {
                disk.put_requesters(*key, Some(&self.requesters.of(key, now)));
            }
        }
        let mut unsent = changed;
        for (key, notes) in lists {
            if let Err(error) = self.known.peers.note(&list_of(&key), &notes, KEPT_FOR).await {
                tracing::debug!(%error, "the requesters of a question are not in the store yet");
                self.requesters.put_back(unsent);
                return;
            }
            unsent.retain(|(changed, _)| *changed != key);
        }
    }

    /// All requesters of `question`, at any replica. Its key is `key`.
    pub async fn all_requesters(&self, question: &Question, key: &Key) -> Vec<Arc<str>> {
        let known: Vec<Arc<str>> =
            self.known_requesters(key).await.into_iter().map(|requester| requester.name).collect();
        named(question, known)
    }

    /// The requesters of `question`, at any replica, that were not served the answer that is stored now, and a hash of question
    /// and answer. None if there is no answer that can be served.
    pub async fn served_other(&self, routes: &RouteTable, question: &Question) -> (Vec<Arc<str>>, u64) {
        let Some(resolved) = live(routes, question) else { return Default::default() };
        let usable = self.known.usable(&resolved.route, &resolved.key, self.clock.now());
        let Some((entry, _)) = usable else { return Default::default() };
        let stored = entry.encoded.fingerprint();
        let requesters = self.known_requesters(&resolved.key).await;
        let names =
            requesters.into_iter().filter(|requester| requester.served != stored).map(|requester| requester.name);
        (names.collect(), FixedState::default().hash_one((resolved.key, stored)))
    }

    /// Takes over the requesters from before the start from `disk`.
    pub(crate) fn restore_requesters(&self, disk: &Disk) {
        let now = self.clock.now();
        for (key, requesters) in disk.requesters::<Requester>() {
            if !self.requesters.restore(key, &requesters, now) {
                disk.put_requesters::<Requester>(key, None);
            }
        }
    }

    async fn known_requesters(&self, key: &Key) -> Vec<Requester> {
        let now = self.clock.now();
        let mut requesters = self.requesters.of(key, now);
        let notes = self.known.peers.notes(&list_of(key)).await.unwrap_or_else(|error| {
            tracing::debug!(%error, "the requesters at other replicas are not known");
            Vec::new()
        });
        for (name, note) in notes {
            let Some((at, served)) = read(&note).filter(|(at, _)| now.since(*at).is_none_or(|age| age < KEPT_FOR))
            else {
                continue;
            };
            match requesters.iter_mut().find(|requester| *requester.name == *name) {
                Some(own) if own.at < at => (own.at, own.served) = (at, served),
                Some(_) => {}
                None => requesters.push(Requester { name: name.into(), at, served }),
            }
        }
        requesters
    }
}

fn list_of(key: &Key) -> String {
    format!("askers:{key}")
}

fn read(note: &str) -> Option<(Timestamp, Fingerprint)> {
    let (at, served) = note.split_once(' ')?;
    Some((Timestamp(at.parse().ok()?), Fingerprint::from_str_radix(served, 16).ok()?))
}

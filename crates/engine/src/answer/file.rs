//! Takes the cache file into use.

use crate::{
    answer::{
        Engine,
        live::{live, live_under},
    },
    cache::Disk,
    guard::Held,
    route::RouteTable,
};

impl Engine {
    /// Stores answers on `disk` too, from now on, and restores the held answers on it.
    pub fn keep_on(&self, disk: Disk, routes: &RouteTable) {
        self.known.held.limit(disk.held_limit());
        // What was held before the file was open is newer than what the file has.
        let newer = self.known.held.all();
        for (lineage, held) in disk.held::<Held>() {
            match live_under(routes, &held.question, &held.key).filter(|resolved| resolved.lineage() == lineage) {
                Some(resolved) => self.known.held.restore(held.requeried_as(resolved.question, resolved.key, lineage)),
                // No route answers this question any more. A decision stands all the same: the route may come back.
                None if held.decision.is_some() && held.lineage == lineage => self.known.held.restore(held),
                None => disk.hold(lineage, None::<&()>),
            }
        }
        for (lineage, held) in &newer {
            disk.hold(*lineage, Some(held));
        }
        match self.known.peers.replica() {
            Some(replica) => replica.found_on(&disk),
            None => disk.leave_store(),
        }
        self.restore_requesters(&disk);
        self.known.answers.keep_on(disk);
    }

    /// Takes over from the file the last answer that each route served before the start, for metrics and views. Reads the whole file, if there is one.
    pub fn restore_served(&self, routes: &RouteTable) {
        for (key, answer) in self.answers().disk().map(Disk::list).into_iter().flatten() {
            let Some(resolved) = live(routes, &answer.question)
                .filter(|resolved| resolved.lineage() == key && answer.question.part.is_none())
            else {
                continue;
            };
            resolved.route.metrics.now.restored(answer.stored_at);
            self.known.served.restore(key, &resolved.route.name, &answer);
        }
    }
}

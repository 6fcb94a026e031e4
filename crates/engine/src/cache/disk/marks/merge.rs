//! How marks of loss make room for others: old ones leave, and one mark takes the place of several.

use std::{collections::HashMap, io};

use super::{
    Inner,
    form::{Mark, Scope},
};

impl Inner {
    /// Drops the marks that count no more.
    pub(super) fn drop_old(&mut self, is_of_late: impl Fn(u64) -> bool) {
        let Self { routes, free, .. } = self;
        routes.retain(|_, marks| {
            marks.retain(|(_, is_outdated), (slot, at)| {
                let counts = *is_outdated || is_of_late(*at);
                if !counts {
                    free.push(*slot);
                }
                counts
            });
            !marks.is_empty()
        });
    }

    /// Makes one mark of several ones of the route with the most marks.
    pub(super) fn merge(&mut self) -> io::Result<()> {
        let Some((route, marks)) = self.routes.iter().max_by_key(|(route, marks)| (marks.len(), **route)) else {
            return Ok(());
        };
        let route = *route;
        let mut ranges = HashMap::<(u8, bool), usize>::new();
        for (scope, is_outdated) in marks.keys() {
            if let Scope::One(_, [first, ..]) = scope {
                *ranges.entry((*first, *is_outdated)).or_default() += 1;
            }
        }
        match ranges.into_iter().filter(|(_, count)| *count > 1).max_by_key(|(range, count)| (*count, *range)) {
            Some(((first, is_outdated), _)) => {
                let is_in = |scope| matches!(scope, Scope::One(_, [other, ..]) if other == first);
                self.merge_into(route, Scope::Range(first), is_outdated, is_in)
            }
            None => [false, true]
                .into_iter()
                .try_for_each(|is_outdated| self.merge_into(route, Scope::Route, is_outdated, |_| true)),
        }
    }

    /// Makes one mark with `scope` of those of `route` that `is_in`. It is written in the place of one of them.
    fn merge_into(
        &mut self,
        route: [u8; 4],
        scope: Scope,
        is_outdated: bool,
        is_in: impl Fn(Scope) -> bool,
    ) -> io::Result<()> {
        let Some(marks) = self.routes.get_mut(&route) else { return Ok(()) };
        let is_meant =
            |(other, outdated): &(Scope, bool)| *outdated == is_outdated && (*other == scope || is_in(*other));
        let merged: Vec<(u16, u64)> = marks.iter().filter(|(key, _)| is_meant(key)).map(|(_, place)| *place).collect();
        let Some((slot, _)) = merged.first().copied() else { return Ok(()) };
        marks.retain(|key, _| !is_meant(key));
        let at = merged.iter().map(|(_, at)| *at).max().unwrap_or_default();
        self.free.extend(merged[1..].iter().map(|(slot, _)| *slot));
        self.write(slot, Mark { at, route, scope, is_outdated })
    }
}

//! The truth: the lists of sources, branches with their commits, and the commits that CI passed. It is independent of the gateway.

use std::{collections::BTreeMap, time::Duration};

/// A list that a source has, or the branches of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    /// Tenants: a route with the guard's usual rules.
    Tenants,
    /// Regions: a route that asks its source for each call.
    Regions,
    /// Edges: a route on which only an operator accepts a loss.
    Edges,
    /// Previews of branches: one call each, whose digest is of a commit that CI built.
    Previews,
    /// Previews of the same branches, all by one call of a route with elements: the gateway lists the branches itself.
    Pulls,
}

impl Set {
    /// How many there are.
    pub const COUNT: usize = 5;
    /// All of them.
    pub const ALL: [Self; Self::COUNT] = [Self::Tenants, Self::Regions, Self::Edges, Self::Previews, Self::Pulls];
    /// Those whose items are a list of their own.
    pub const LISTS: [Self; 3] = [Self::Tenants, Self::Regions, Self::Edges];

    /// How many items the list has at least. A list that is truly empty says little. With `guard.identity: auto`, nobody can say of one
    /// or two sets which of them was replaced, and what a source loses of one set is the same each time, so runs would confirm it.
    pub const fn least(self) -> usize {
        match self {
            Self::Tenants | Self::Regions => 3,
            Self::Edges | Self::Previews | Self::Pulls => 1,
        }
    }

    /// Whether its Applications have the digest of a branch's image.
    pub const fn has_digests(self) -> bool {
        matches!(self, Self::Previews | Self::Pulls)
    }

    /// Its name, which is that of the ApplicationSet too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tenants => "tenants",
            Self::Regions => "regions",
            Self::Edges => "edges",
            Self::Previews => "previews",
            Self::Pulls => "pulls",
        }
    }
}

/// When something existed.
#[derive(Debug, Clone, Default)]
pub struct Timeline(Vec<(Duration, bool)>);

impl Timeline {
    fn since(at: Duration) -> Self {
        Self(vec![(at, true)])
    }

    /// Whether it exists now.
    pub fn exists(&self) -> bool {
        self.0.last().is_some_and(|(_, exists)| *exists)
    }

    /// When it last came or went.
    pub fn changed(&self) -> Duration {
        self.0.last().map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// Whether it did not exist at some time since `then`.
    pub fn was_gone_since(&self, then: Duration) -> bool {
        let before = self.0.iter().rev().find(|(at, _)| *at <= then);
        let later = self.0.iter().any(|(at, exists)| *at > then && !exists);
        later || before.is_none_or(|(_, exists)| !exists)
    }

    /// Whether it ceased to exist since `then`.
    fn went_since(&self, then: Duration) -> bool {
        self.0.iter().any(|(at, exists)| *at > then && !exists)
    }

    fn set(&mut self, at: Duration, exists: bool) {
        if self.exists() != exists {
            self.0.push((at, exists));
        }
    }
}

/// A commit of a branch.
#[derive(Debug, Clone)]
pub struct TrueCommit {
    /// Its id.
    pub id: String,
    /// When CI passes it; never if it fails.
    pub passes_at: Option<Duration>,
}

/// A branch with an open pull request.
#[derive(Debug, Clone)]
pub struct Branch {
    /// When it was open.
    pub open: Timeline,
    /// When its element could have parameter sets: while it was open and not parked.
    pub element: Timeline,
    /// Whether it is parked: the list has it, and its element truly has nothing.
    is_parked: bool,
    /// Its commits, the head last.
    pub commits: Vec<TrueCommit>,
}

/// All that truly exists.
#[derive(Debug, Default)]
pub struct Truth {
    lists: BTreeMap<(Set, String), Timeline>,
    branches: BTreeMap<String, Branch>,
    made: usize,
}

impl Truth {
    /// How many items, branches and commits there ever were.
    pub const fn made(&self) -> usize {
        self.made
    }

    /// The items of a list that exist.
    pub fn items(&self, set: Set) -> Vec<String> {
        let own = self.lists.iter().filter(|((of, _), timeline)| *of == set && timeline.exists());
        own.map(|((_, name), _)| name.clone()).collect()
    }

    /// Whether an item of a list or an element ceased to exist since `then`.
    pub fn lost_since(&self, set: Set, then: Duration) -> bool {
        if set == Set::Pulls {
            return self.branches.values().any(|branch| branch.element.went_since(then));
        }
        self.lists.iter().any(|((of, _), timeline)| *of == set && timeline.went_since(then))
    }

    /// Since when, and whether, an Application of `set` should exist. `None`: it never did.
    pub fn of(&self, set: Set, name: &str) -> Option<&Timeline> {
        match set {
            Set::Previews => self.branches.get(name).map(|branch| &branch.open),
            Set::Pulls => self.branches.get(name).map(|branch| &branch.element),
            _ => self.lists.get(&(set, name.to_owned())),
        }
    }

    /// Adds an item: sometimes one of before, or else a new one. Returns its name.
    pub fn add(&mut self, set: Set, at: Duration, dice: &mut fastrand::Rng) -> String {
        let former = self.lists.iter().filter(|((of, _), timeline)| *of == set && !timeline.exists());
        let former: Vec<String> = former.map(|((_, name), _)| name.clone()).collect();
        let name = if !former.is_empty() && dice.u8(..3) == 0 {
            former[dice.usize(..former.len())].clone()
        } else {
            self.made += 1;
            format!("{}-{}", set.name().trim_end_matches('s'), self.made)
        };
        self.lists.entry((set, name.clone())).or_default().set(at, true);
        name
    }

    /// Removes an item.
    pub fn remove(&mut self, set: Set, name: &str, at: Duration) {
        if let Some(timeline) = self.lists.get_mut(&(set, name.to_owned())) {
            timeline.set(at, false);
        }
    }

    /// The open branches.
    pub fn open(&self) -> impl Iterator<Item = (&String, &Branch)> {
        self.branches.iter().filter(|(_, branch)| branch.open.exists())
    }

    /// The branch `name`.
    pub fn branch(&self, name: &str) -> Option<&Branch> {
        self.branches.get(name)
    }

    /// Opens a new branch, and returns its name.
    pub fn open_branch(&mut self, at: Duration) -> String {
        self.made += 1;
        let name = format!("pr-{}", self.made);
        let (open, element) = (Timeline::since(at), Timeline::since(at));
        self.branches.insert(name.clone(), Branch { open, element, is_parked: false, commits: Vec::new() });
        name
    }

    /// Pushes a commit to a branch, and returns its id. CI passes it at `passes_at`, if ever.
    pub fn push(&mut self, branch: &str, passes_at: Option<Duration>) -> String {
        self.made += 1;
        let id = format!("c{}", self.made);
        if let Some(branch) = self.branches.get_mut(branch) {
            branch.commits.push(TrueCommit { id: id.clone(), passes_at });
        }
        id
    }

    /// The closed branches.
    pub fn closed(&self) -> impl Iterator<Item = &String> {
        self.branches.iter().filter(|(_, branch)| !branch.open.exists()).map(|(name, _)| name)
    }

    /// Closes a branch, or opens it again.
    pub fn set_open(&mut self, branch: &str, at: Duration, is_open: bool) {
        if let Some(branch) = self.branches.get_mut(branch) {
            branch.open.set(at, is_open);
            branch.element.set(at, is_open && !branch.is_parked);
        }
    }

    /// Parks a branch, or ends that. Returns whether it is parked now.
    pub fn park(&mut self, branch: &str, at: Duration) -> bool {
        let Some(branch) = self.branches.get_mut(branch) else { return false };
        branch.is_parked = !branch.is_parked;
        branch.element.set(at, branch.open.exists() && !branch.is_parked);
        branch.is_parked
    }

    /// The branches whose element has a parameter set now, each with the commit that CI passed last.
    pub fn elements(&self, now: Duration) -> impl Iterator<Item = (&String, &str)> {
        let there = self.branches.iter().filter(|(_, branch)| branch.element.exists());
        there.filter_map(move |(name, branch)| Some((name, branch.last_passed(&branch.head()?.id, now)?)))
    }
}

impl Branch {
    /// The head.
    pub fn head(&self) -> Option<&TrueCommit> {
        self.commits.last()
    }

    /// The last commit up to `id` that CI has passed by `now`.
    pub fn last_passed(&self, id: &str, now: Duration) -> Option<&str> {
        let at = self.position(id)?;
        let passed = |commit: &&TrueCommit| commit.passes_at.is_some_and(|at| at <= now);
        self.commits[..=at].iter().rfind(passed).map(|commit| &*commit.id)
    }

    /// Where the commit `id` stands among the commits of the branch.
    pub fn position(&self, id: &str) -> Option<usize> {
        self.commits.iter().position(|commit| commit.id == id)
    }

    /// Whether CI has passed the commit `id` by `now`.
    pub fn has_passed(&self, id: &str, now: Duration) -> bool {
        self.commits.iter().any(|commit| commit.id == id && commit.passes_at.is_some_and(|at| at <= now))
    }
}

/// The digest of the image that CI builds of a commit.
pub fn digest(commit: &str) -> String {
    format!("sha256:{commit}")
}

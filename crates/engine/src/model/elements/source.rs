//! The sources of the list and of the elements, and what was read from them.

use std::{collections::BTreeMap, future::pending, panic::resume_unwind, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use domain::{
    error::{BackendError, ErrorKind},
    generator::{Element, Outcome, ParameterSet, Query},
};
use lang::scope::ValueType;
use source::{Backend, Each, MaxUnknown, Nature};

/// How many elements there are.
pub(super) const COUNT: u8 = 6;

/// Why a source gives no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Unavailable,
    Denied,
    Throttled,
    Hangs,
    Crashes,
    /// No request is sent for 5 s, since others failed.
    Refused,
}

/// What an element's source says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// One parameter set of this version.
    Present(u8),
    Absent,
    Unknown(Fault),
}

/// What was last known of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    Present(u8),
    Absent,
    /// It was not in a whole list.
    NotListed,
}

/// All sources.
#[derive(Debug)]
pub(super) struct ElementSource(Mutex<State>);

#[derive(Debug)]
struct State {
    says: [Says; COUNT as usize],
    /// The elements in the list, as bits.
    list: Result<u8, Fault>,
    all: Option<Fault>,
    /// The commits of the elements that have had more than one, which are part of their items.
    commits: BTreeMap<u8, u8>,
    /// The last whole list.
    listed: u8,
    readings: BTreeMap<u8, Reading>,
    /// The number of readings, and that by which each element was last gone.
    now: usize,
    gone_at: BTreeMap<u8, usize>,
    /// The last version of each element that was read.
    versions: BTreeMap<u8, u8>,
}

impl Default for ElementSource {
    fn default() -> Self {
        let says = [Says::Present(0); COUNT as usize];
        let (list, listed) = (Ok(u8::MAX), u8::MAX);
        Self(Mutex::new(State {
            says,
            list,
            all: None,
            commits: BTreeMap::new(),
            listed,
            readings: BTreeMap::new(),
            now: 0,
            gone_at: BTreeMap::new(),
            versions: BTreeMap::new(),
        }))
    }
}

impl State {
    fn read(&mut self, element: u8, reading: Reading) {
        self.now += 1;
        self.readings.insert(element, reading);
        if let Reading::Present(version) = reading {
            self.versions.insert(element, version);
        }
        if let Reading::Absent | Reading::NotListed = reading {
            self.gone_at.insert(element, self.now);
        }
    }
}

const fn is_in(list: u8, element: u8) -> bool {
    list & (1 << element) != 0
}

impl ElementSource {
    pub(super) fn say(&self, element: u8, says: Says) {
        self.0.lock().says[usize::from(element)] = says;
    }

    /// The element gets a new commit, so that it is another item of the list.
    pub(super) fn commit(&self, element: u8) {
        *self.0.lock().commits.entry(element).or_default() += 1;
    }

    pub(super) fn list(&self, list: Result<u8, Fault>) {
        self.0.lock().list = list;
    }

    pub(super) fn all(&self, fault: Option<Fault>) {
        self.0.lock().all = fault;
    }

    /// Ends all faults.
    pub(super) fn heal(&self) {
        let mut state = self.0.lock();
        state.all = None;
        state.list = Ok(state.list.unwrap_or(u8::MAX));
        for says in &mut state.says {
            if let Says::Unknown(_) = says {
                *says = Says::Present(3);
            }
        }
    }

    /// What is last known of each element.
    pub(super) fn readings(&self) -> BTreeMap<u8, Reading> {
        self.0.lock().readings.clone()
    }

    /// The last version of `element` that was read.
    pub(super) fn version(&self, element: u8) -> Option<u8> {
        self.0.lock().versions.get(&element).copied()
    }

    /// How much was read until now.
    pub(super) fn now(&self) -> usize {
        self.0.lock().now
    }

    /// The last reading by which `element` was gone; 0 if it never was.
    pub(super) fn gone_at(&self, element: u8) -> usize {
        self.0.lock().gone_at.get(&element).copied().unwrap_or_default()
    }

    /// How many elements the last whole list had.
    pub(super) fn listed(&self) -> usize {
        let listed = self.0.lock().listed;
        (0..COUNT).filter(|element| is_in(listed, *element)).count()
    }

    /// The elements that there are, with their versions.
    pub(super) fn truth(&self) -> BTreeMap<u8, u8> {
        let state = self.0.lock();
        let list = state.list.unwrap_or(0);
        let version = |element: u8| match state.says[usize::from(element)] {
            Says::Present(version) if is_in(list, element) => Some((element, version)),
            _ => None,
        };
        (0..COUNT).filter_map(version).collect()
    }

    async fn read_list(&self) -> Result<Vec<u8>, BackendError> {
        let list = self.0.lock().list;
        let list = match list {
            Ok(list) => list,
            Err(fault) => return fail(fault).await,
        };
        let mut state = self.0.lock();
        state.listed = list;
        for element in (0..COUNT).filter(|element| !is_in(list, *element)) {
            state.read(element, Reading::NotListed);
        }
        Ok((0..COUNT).filter(|element| is_in(list, *element)).collect())
    }

    async fn read(&self, element: u8) -> Result<Option<u8>, BackendError> {
        let says = {
            let state = self.0.lock();
            state.all.map_or(state.says[usize::from(element)], Says::Unknown)
        };
        let (found, reading) = match says {
            Says::Present(version) => (Some(version), Reading::Present(version)),
            Says::Absent => (None, Reading::Absent),
            Says::Unknown(fault) => return fail(fault).await,
        };
        self.0.lock().read(element, reading);
        Ok(found)
    }
}

/// The element as the engine has it.
pub(super) fn element(element: u8) -> Element {
    Element { id: format!("[{element}]").into(), item: Arc::new(Value::Object(item(element))) }
}

async fn fail<T>(fault: Fault) -> Result<T, BackendError> {
    let kind = match fault {
        Fault::Unavailable | Fault::Refused => ErrorKind::Unavailable,
        Fault::Denied => ErrorKind::Denied,
        Fault::Throttled => ErrorKind::Throttled { retry_after: None },
        Fault::Hangs => return pending().await,
        // A panic without output on stderr.
        Fault::Crashes => resume_unwind(Box::new("as meant by this test")),
    };
    let retry_in = (fault == Fault::Refused).then_some(Duration::from_secs(5));
    Err(BackendError::new(kind, "as meant by this test").retried_in(retry_in))
}

fn item(element: u8) -> Map<String, Value> {
    json!({ "n": element }).as_object().unwrap().clone()
}

/// The element and the version of a parameter set.
pub(super) fn of_set(set: &Map<String, Value>) -> (u8, u8) {
    let number = |key: &str| set[key].as_str().unwrap().parse().unwrap();
    (number("name"), number("version"))
}

/// The backend of the list, of the elements, or of the whole.
#[derive(Debug)]
pub(super) struct ElementBackend {
    source: Arc<ElementSource>,
    each: Option<Each>,
}

impl ElementBackend {
    /// The whole.
    pub(super) fn of(source: &Arc<ElementSource>) -> Self {
        let part = || Arc::new(Self { source: Arc::clone(source), each: None }) as Arc<dyn Backend>;
        let each = Each {
            list: part(),
            element: part(),
            kinds: ["model", "model"],
            key: vec!["n".to_owned()],
            max_unknown: MaxUnknown::HALF,
            has_item_in_sets: true,
        };
        Self { source: Arc::clone(source), each: Some(each) }
    }
}

#[async_trait]
impl Backend for ElementBackend {
    fn nature(&self) -> &Nature {
        static NATURE: Nature =
            Nature { reads_application_set: false, takes_notes: false, gets_old: true, item: ValueType::Anything };
        &NATURE
    }

    fn each(&self) -> Option<&Each> {
        self.each.as_ref()
    }

    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let Some(item) = query.item() else {
            let list = self.source.read_list().await?;
            let commits = self.source.0.lock().commits.clone();
            let with_commit = |element: u8| {
                let mut item = item(element);
                commits.get(&element).map(|commit| item.insert("commit".to_owned(), json!(commit)));
                ParameterSet(item)
            };
            let items = list.into_iter().map(with_commit);
            return Ok(Outcome::of_list(items.collect(), "the list", "[]"));
        };
        let element = item["n"].as_u64().and_then(|n| u8::try_from(n).ok()).unwrap();
        let found = self.source.read(element).await?;
        let set = |version: u8| ParameterSet(json!({"name": element, "version": version}).as_object().unwrap().clone());
        Ok(Outcome::of_list(found.map(set).into_iter().collect(), "the element", "[]"))
    }
}

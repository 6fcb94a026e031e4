//! A gateway with a route for each fault and kind, taken through one state.

use std::{panic::AssertUnwindSafe, path::Path, time::Duration};

use domain::{
    clock::{Clock as _, Timestamp},
    generator::Query,
};
use futures_util::{FutureExt as _, future::join_all};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use super::{
    expected::{Because, Expected, Found, Worth},
    kind::Kind,
    rendition::{Ailment, Fault, TIMEOUT},
    signed::{KEY, KEY_FILE},
    source::{Mode, Source},
    state::State,
};
use crate::support::{Reply, TestApp};

/// Sources that answer at once are asked a few at a time, so that load delays none of them.
static TURNSTILE: Semaphore = Semaphore::const_new(16);
const STORE: &str = "answers.redb";

/// One fault and one kind in one state.
pub(super) struct Outcome {
    /// The index of the fault in the catalogue.
    pub fault: usize,
    /// The backend.
    pub kind: Kind,
    /// The state.
    pub state: State,
    /// The answers in short form, in the order of the calls.
    pub answers: Vec<String>,
    /// The answers that differ from the expected ones.
    pub wrong: Vec<String>,
    /// Whether Argo CD would have applied one of them.
    pub is_wrong_success: bool,
}

/// The route for one outcome.
struct Cell {
    outcome: Outcome,
    kind: Kind,
    route: String,
    codes: Vec<&'static str>,
    asks_for_a_pause: bool,
    source: Source,
}

/// A gateway and its cells.
pub(super) struct Board {
    cells: Vec<Cell>,
    /// Another holder of the store. It is dropped before the folder.
    _holder: Option<redb::Database>,
    app: TestApp,
    ailment: Option<Ailment>,
    /// The earliest and the latest time at which the good answers were stored.
    stored: (Timestamp, Timestamp),
    is_restarted: bool,
    mode: Mode,
}

impl Board {
    /// Starts a gateway with routes for `faults`, which all have the same ailment or none.
    pub(super) async fn start(state: State, faults: &[(usize, &Fault)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        KEY.write(&folder.path().join(KEY_FILE));
        let mut cells = Vec::new();
        for (index, fault) in faults {
            for kind in Kind::ALL {
                let route = format!("f{index:02}-{}", kind.name());
                let source = Source::start(fault, kind, &route, folder.path()).await;
                let (answers, wrong) = (Vec::new(), Vec::new());
                let outcome = Outcome { fault: *index, kind, state, answers, wrong, is_wrong_success: false };
                let is_asked_by_http = !matches!(kind, Kind::Script | Kind::Worker | Kind::Pipeline);
                let (codes, asks_for_a_pause) = (fault.codes(kind), fault.asks_for_a_pause && is_asked_by_http);
                cells.push(Cell { outcome, kind, route, codes, asks_for_a_pause, source });
            }
        }
        let ailment = faults.iter().find_map(|(_, fault)| fault.ailment);
        let is_locked = ailment == Some(Ailment::StoreLocked);
        let holder = is_locked.then(|| redb::Database::create(folder.path().join(STORE)).unwrap());
        let app = TestApp::start_in(folder, &config(&cells, ailment)).await;
        app.app.open_disk();
        assert_eq!(app.app.metrics.disk.errors.get(), u64::from(is_locked), "{ailment:?}");
        let now = app.clock.now();
        Self { cells, app, ailment, stored: (now, now), is_restarted: false, mode: Mode::Well, _holder: holder }
    }

    /// Lets time pass.
    pub(super) fn advance(&self, by: Duration) {
        self.app.clock.advance(by);
    }

    /// Fetches every route's good answer.
    pub(super) async fn begin(&mut self) {
        self.stored.0 = self.app.clock.now();
        let mut missing: Vec<usize> = (0..self.cells.len()).collect();
        // A busy machine may need longer than the hanging faults.
        for _ in 0..20 {
            let replies = missing.iter().map(async |cell| (*cell, self.reply(&self.cells[*cell], &json!({})).await));
            let replies = join_all(replies).await;
            missing = replies
                .into_iter()
                .filter(|(_, reply)| reply.as_ref().map_or(0, |reply| reply.status) != 200)
                .map(|(cell, _)| cell)
                .collect();
            self.stored.1 = self.app.clock.now();
            if missing.is_empty() {
                return self.app.settle().await;
            }
            self.advance(Duration::from_secs(2));
        }
        let names: Vec<&str> = missing.iter().map(|cell| &*self.cells[*cell].route).collect();
        let first = self.reply(&self.cells[missing[0]], &json!({})).await.map(|reply| reply.text());
        panic!("no good answer to begin with: {names:?}, such as {first:?}");
    }

    /// Changes the mode of all sources. With a fault, the gateway's ailment begins.
    pub(super) async fn set_mode(mut self, to: Mode) -> Self {
        self.mode = to;
        for cell in &mut self.cells {
            cell.source.set_mode(to).await;
        }
        match self.ailment.filter(|_| to == Mode::AtFault) {
            Some(Ailment::ClockBack) => self.app.clock.put_back(Duration::from_hours(1)),
            Some(Ailment::ClockReset) => self.app.clock.put_back(Duration::from_millis(self.app.clock.now().0)),
            Some(Ailment::ClockAhead) => self.advance(Duration::from_mins(30)),
            Some(Ailment::ClockFarAhead) => self.advance(Duration::from_hours(100 * 365 * 24)),
            Some(Ailment::StoreOverwritten) => damage(self.app.folder.path()),
            Some(ailment @ (Ailment::StoreLost | Ailment::Restart)) => {
                let is_damaged = ailment == Ailment::StoreLost;
                self.app = self
                    .app
                    .restart(async |folder: &Path| {
                        free(folder).await;
                        if is_damaged {
                            damage(folder);
                        }
                    })
                    .await;
                self.app.app.open_disk();
                assert_eq!(self.app.app.metrics.disk.errors.get(), u64::from(is_damaged), "{ailment:?}");
                self.is_restarted = true;
            }
            Some(Ailment::StoreLocked) | None => {}
        }
        self
    }

    /// Asks every route with `parameters`, waits for background runs, and judges the answers.
    pub(super) async fn ask(&mut self, parameters: &Value, because: Because) {
        let asked: Vec<Option<usize>> = self.cells.iter().map(|cell| cell.source.asked()).collect();
        let is_known = parameters == &json!({}) && !self.is_lost();
        let worth = if is_known { self.worth() } else { Worth::Nothing };
        let replies = join_all(self.cells.iter().map(|cell| self.reply(cell, parameters))).await;
        self.app.settle().await;
        for (index, reply) in replies.into_iter().enumerate() {
            let key = self.key(&self.cells[index], parameters);
            let cell = &mut self.cells[index];
            let asked = asked[index].zip(cell.source.asked()).map(|(before, after)| after - before);
            let (kind, route, codes, is_paused) = (cell.kind, &cell.route, &*cell.codes, cell.asks_for_a_pause);
            let expected = Expected { worth, is_known, because, kind, route, is_paused, codes, key };
            match reply.and_then(|reply| expected.judge(&reply, asked)) {
                // The repeated answer during a source's pause is not recorded again.
                Ok(answers) => cell.outcome.answers.extend((because != Because::Resting).then_some(answers)),
                Err(Found { what, is_success }) => {
                    cell.outcome.answers.push(format!("**{what}**"));
                    cell.outcome.wrong.push(format!("{what} instead of {expected:?}"));
                    cell.outcome.is_wrong_success |= is_success;
                }
            }
        }
    }

    /// Ends the gateway and its sources.
    pub(super) fn end(self) -> Vec<Outcome> {
        self.cells.into_iter().map(|cell| cell.outcome).collect()
    }

    /// Whether the gateway has lost all its answers.
    pub(super) fn is_lost(&self) -> bool {
        self.is_restarted && self.ailment == Some(Ailment::StoreLost)
    }

    async fn reply(&self, cell: &Cell, parameters: &Value) -> Result<Reply, Found> {
        // Hanging sources may be asked all at once.
        let hangs = cell.codes.contains(&TIMEOUT) && self.mode == Mode::AtFault;
        let _turn = if hangs { None } else { Some(TURNSTILE.acquire().await.unwrap()) };
        let asked = AssertUnwindSafe(self.app.ask(&cell.route, parameters.clone())).catch_unwind().await;
        asked.map_err(|panic| {
            let text = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
            // The decoder panics if Argo CD would read the answer as an empty list.
            Found { what: format!("a reply that is none: {text}"), is_success: text.contains("AccidentallyEmpty") }
        })
    }

    /// The current worth of the good answers, by the table of states.
    fn worth(&self) -> Worth {
        let now = self.app.clock.now();
        // A clock that was put back proves no age.
        let Some(min_age) = now.since(self.stored.1) else { return Worth::Stale };
        let max_age = now.since(self.stored.0).unwrap_or_default();
        Worth::of(min_age, max_age, self.is_restarted)
    }

    fn key(&self, cell: &Cell, parameters: &Value) -> String {
        let route = self.app.app.setup().routes.by_name(&cell.route).unwrap().clone();
        let parameters = parameters.as_object().unwrap().clone().into();
        let query = Query::new("test".into(), parameters, Instant::now());
        route.key(&query).to_string()
    }
}

fn config(cells: &[Cell], ailment: Option<Ailment>) -> String {
    let registries: Value = cells.iter().filter_map(|cell| cell.source.registry()).collect();
    let mut routes: Vec<Value> = cells.iter().map(route).collect();
    if ailment == Some(Ailment::StoreLocked) {
        // While the earlier answers are unknown, an answer is accepted only if the guard allows any loss.
        for route in &mut routes {
            route["guard"]["maxShrink"] = json!("100%");
        }
    }
    let store = if ailment.is_some() { format!("cache: {{ path: {STORE} }}\n") } else { String::new() };
    format!("{}{store}registries: {registries}\nroutes: {}\n", TestApp::auth(), json!(routes))
}

fn route(cell: &Cell) -> Value {
    let mut route = json!({
        "name": cell.route,
        "backend": cell.source.backend(cell.kind, &cell.route),
        "cache": {"ttl": "60s", "staleWhileRevalidate": "15m", "staleIfError": "2h"},
        "guard": {"confirmAfter": 2, "confirmFor": "60s"},
    });
    match cell.kind {
        Kind::Digests | Kind::Gate | Kind::Signature => route["output"] = json!({"app": "{{ app.digest }}"}),
        Kind::List | Kind::Tag => route["output"] = json!({"app": "{{ tag }}@{{ digest }}"}),
        kind if kind.has_elements() => {
            route["output"] = json!({"name": "{{ item.name }}", "version": "{{ version }}"});
        }
        _ => {}
    }
    if cell.codes.contains(&TIMEOUT) {
        route["deadline"] = json!("3s");
    }
    route
}

/// Overwrites the store.
fn damage(folder: &Path) {
    std::fs::write(folder.join(STORE), b"<html>".repeat(100_000)).unwrap();
}

/// Waits until nobody holds the store.
async fn free(folder: &Path) {
    let until = Instant::now() + Duration::from_secs(30);
    while let Err(error) = redb::Database::create(folder.join(STORE)) {
        assert!(Instant::now() < until, "{error}");
        sleep(Duration::from_millis(5)).await;
    }
}

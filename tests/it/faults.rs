//! The fault matrix: every fault of the catalogue, in each state of the cache, for each kind of backend. Each
//! cell is judged as Argo CD would read it, against the expected answer. The table is written to
//! `target/fault-matrix.md`.

mod absent;
mod board;
mod catalogue;
mod elements;
mod expected;
mod foreign;
mod kind;
mod registries;
mod rendition;
mod signed;
mod source;
mod state;

use std::{fmt::Write as _, path::Path};

use futures_util::{StreamExt as _, stream};

use self::{
    board::{Board, Outcome},
    kind::Kind,
    rendition::Fault,
    state::State,
};

/// The number of concurrent gateways: each has hundreds of sockets.
const AT_ONCE: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_fault_makes_a_wrong_success() {
    // Tasks borrow them.
    let faults: &'static [Fault] = catalogue::all().leak();
    let numbered: Vec<(usize, &Fault)> = faults.iter().enumerate().collect();
    // A gateway's ailment affects all its routes.
    let (ailing, others): (Vec<_>, Vec<_>) = numbered.into_iter().partition(|(_, fault)| fault.ailment.is_some());
    let groups = std::iter::once(&others[..]).chain(ailing.chunks(1));
    let boards = groups.flat_map(|group| State::ALL.map(|state| (state, group)));
    // Each is a task: to build a gateway with a thousand routes takes seconds, in which the requests of the others would time out.
    let boards = boards.map(|(state, group)| (state, group.to_vec()));
    let led = stream::iter(boards)
        .map(|(state, group)| tokio::spawn(async move { state.lead(Board::start(state, &group).await).await }));
    let outcomes: Vec<Outcome> =
        led.buffer_unordered(AT_ONCE).flat_map(|led| stream::iter(led.expect("a board"))).collect().await;

    let cells = outcomes.len();
    assert_eq!(cells, faults.len() * State::ALL.len() * Kind::ALL.len(), "every cell, and each once");
    assert!(faults.len() >= 40);
    let successes = outcomes.iter().filter(|outcome| outcome.is_wrong_success).count();
    let mut wrong = Vec::new();
    for outcome in &outcomes {
        let name = format!("{} × {} × {}", faults[outcome.fault].name, outcome.state.name(), outcome.kind.name());
        wrong.extend(outcome.wrong.iter().map(|what| format!("{name}: {what}")));
    }
    let summary = format!(
        "{} faults × {} states × {} variants of backends = {cells} cells, {successes} wrong successes",
        faults.len(),
        State::ALL.len(),
        Kind::ALL.len()
    );
    write_table(&summary, faults, &outcomes, wrong.len());
    assert!(wrong.is_empty(), "{summary}; {} things are not as they must be:\n{}", wrong.len(), wrong.join("\n"));
    assert!(include_str!("../../README.md").contains(&summary), "README.md does not say: {summary}");
}

fn write_table(summary: &str, faults: &[Fault], outcomes: &[Outcome], wrong: usize) {
    let cell = |fault: usize, state: State, kind: Kind| {
        let is_meant = |cell: &&Outcome| (cell.fault, cell.state, cell.kind) == (fault, state, kind);
        let cell = outcomes.iter().find(is_meant).unwrap();
        cell.answers.join(" → ").replace('|', "\\|").replace('\n', " ")
    };
    let columns = || State::ALL.into_iter().flat_map(|state| Kind::ALL.map(|kind| (state, kind)));
    let mut text = format!(
        "# The fault matrix\n\n{summary}; {wrong} replies that are not what they must be.\n\n\
         *good* is the last good answer, by `Cache-Status`: `hit`, `stale`, or what its `detail` says. *nothing* is an empty \
         list that was meant, for a question that never had an answer, or after three runs that agree. Everything else is \
         an error: status and code. In the column *held* the source first proves that it has nothing, then comes the fault, and \
         then nothing again. The last four kinds are routes with `each`: *others* is an answer in which the elements that the fault \
         does not affect have their next version, and the affected ones are as they were last.\n\n| fault |"
    );
    for (state, kind) in columns() {
        write!(text, " {}, {} |", state.name(), kind.name()).unwrap();
    }
    text += "\n|---|";
    text.extend(columns().map(|_| "---|"));
    for (index, fault) in faults.iter().enumerate() {
        write!(text, "\n| {} |", fault.name).unwrap();
        for (state, kind) in columns() {
            write!(text, " {} |", cell(index, state, kind)).unwrap();
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("fault-matrix.md"), text + "\n").unwrap();
}

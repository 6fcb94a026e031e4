//! Finds processes by a text in their command line.

use std::{collections::HashSet, path::Path, time::Duration};

use tokio::time::{Instant, sleep};

/// How long a test waits for what takes milliseconds on an idle machine, and seconds beside other tests.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A text for the command line of what a test starts, which occurs nowhere else.
pub(crate) fn marker() -> String {
    format!("{}", fastrand::u32(100_000_000..))
}

/// The processes whose command line contains `marker`. The command line of a zombie is empty: see [`zombies`].
pub(crate) fn processes(marker: &str) -> Vec<String> {
    let of =
        |pid: &Path| std::fs::read(pid.join("cmdline")).map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    all.filter_map(|pid| of(&pid).ok()).filter(|line| line.contains(marker)).collect()
}

/// Fails unless all of them end, and zombies of launchers too. They never end by themselves, so the limit may be generous.
pub(crate) async fn all_gone(marker: &str, what: &str) {
    let until = Instant::now() + PATIENCE;
    while !processes(marker).is_empty() {
        assert!(Instant::now() < until, "{what}: {:?}", processes(marker));
        sleep(Duration::from_millis(10)).await;
    }
    // Zombies of other tests count, too. Those tests may only have begun.
    let (dead, until) = (zombies(), Instant::now() + PATIENCE);
    while !dead.is_disjoint(&zombies()) {
        assert!(Instant::now() < until, "{what}: the zombies {dead:?}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// The zombies of launchers. A running program's zombies are its own affair, and a test's own children are checked at its end.
/// Other tests run at the same time, so a zombie is a fault only if it stays.
pub(crate) fn zombies() -> HashSet<u32> {
    let (found, _) = held(std::process::id());
    let is_of_launcher = |process: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let parent: u32 = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        let line = std::fs::read(format!("/proc/{parent}/cmdline")).ok()?;
        Some(line.split(|byte| *byte == 0).any(|argument| argument == b"launch"))
    };
    let dead = found.into_iter().filter(|(_, state)| *state == 'Z').map(|(process, _)| process);
    dead.filter(|process| is_of_launcher(*process) == Some(true)).collect()
}

/// A process and its descendants: their states, and how many open files they have together. Only root can count
/// those of a gateway.
pub(crate) fn held(process: u32) -> (Vec<(u32, char)>, usize) {
    let (mut found, mut files, mut next) = (Vec::new(), 0, vec![process]);
    while let Some(process) = next.pop() {
        let folder = Path::new("/proc").join(process.to_string());
        let Ok(stat) = std::fs::read_to_string(folder.join("stat")) else { continue };
        let state = stat.rsplit_once(") ").unwrap().1.chars().next().unwrap();
        found.push((process, state));
        files += std::fs::read_dir(folder.join("fd")).map_or(0, Iterator::count);
        for task in std::fs::read_dir(folder.join("task")).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            next.extend(children.split_ascii_whitespace().map(|child| child.parse::<u32>().unwrap()));
        }
    }
    (found, files)
}

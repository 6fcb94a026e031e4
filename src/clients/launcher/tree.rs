//! The processes that a program leaves behind. The launcher is their reaper: whatever they do to get away from their
//! parents, they become its children when those end, so that none of them is overlooked.

use std::{
    collections::HashMap,
    os::unix::fs::MetadataExt,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use super::wire::How;

/// Between two looks at those that are left.
const PACE: Duration = Duration::from_millis(2);

/// What can be reaped right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaped {
    /// A child that has ended, and how.
    Child(Pid, How),
    /// All children are alive.
    NoneYet,
    /// There are no children.
    Alone,
}

/// Reaps a child, or that one, if it has ended.
pub(crate) fn reap(which: Option<Pid>) -> Reaped {
    loop {
        match waitpid(which, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => return Reaped::Child(pid, How::Code(code)),
            Ok(WaitStatus::Signaled(pid, signal, _)) => return Reaped::Child(pid, How::Signal(signal as i32)),
            Ok(WaitStatus::StillAlive) => return Reaped::NoneYet,
            Err(Errno::ECHILD) => return Reaped::Alone,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return Reaped::NoneYet,
        }
    }
}

/// Reaps until there are no children, or for as long as `patience`; `seen` is told each. Whether none is left.
pub(crate) fn reap_all(patience: Duration, mut seen: impl FnMut(Pid, How)) -> bool {
    let mut until = None;
    loop {
        match reap(None) {
            Reaped::Child(pid, how) => seen(pid, how),
            Reaped::Alone => return true,
            Reaped::NoneYet => sleep(PACE),
        }
        // Also while there is always another one: who forks fast leaves them without end.
        if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + patience) {
            return false;
        }
    }
}

/// How the descendants of this process are reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tree {
    /// Whether this process can signal its own descendants and nobody else: then all of them are signalled at once, and
    /// nobody outruns it by forking.
    pub(crate) is_alone: bool,
}

impl Tree {
    /// Kills all descendants of this process until none is left, or for as long as `patience`; `seen` is told each child.
    /// Whether none is left.
    pub(crate) fn kill_all(self, patience: Duration, mut seen: impl FnMut(Pid, How)) -> bool {
        let began = Instant::now();
        loop {
            self.signal_all(Signal::SIGKILL);
            // Whoever was started meanwhile is seen in the next round.
            if reap_all(PACE * 5, &mut seen) {
                return true;
            }
            if began.elapsed() >= patience {
                return false;
            }
        }
    }

    /// Sends `signal` to all descendants of this process.
    pub(crate) fn signal_all(self, signal: Signal) {
        if self.is_alone {
            // All that may be signalled but this process itself (kill(2)).
            let _ = kill(Pid::from_raw(-1), signal);
            return;
        }
        for pid in descendants() {
            // Fails for those that have ended.
            let _ = kill(pid, signal);
        }
    }
}

/// Whether a descendant of this process has `file` open, by its device and number; also when that cannot be seen.
pub(crate) fn is_held(file: (u64, u64)) -> bool {
    descendants().into_iter().any(|pid| match std::fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(open) => open
            .flatten()
            .any(|entry| std::fs::metadata(entry.path()).is_ok_and(|data| (data.dev(), data.ino()) == file)),
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    })
}

/// All descendants of this process, parents before their children.
fn descendants() -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, stat) in processes() {
        if let Some(parent) = stat.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found: Vec<i32> = children.remove(&Pid::this().as_raw()).unwrap_or_default();
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    found.into_iter().map(Pid::from_raw).collect()
}

/// Kills all processes of the session that `leader` made.
pub(crate) fn kill_session(leader: i32) {
    for (pid, stat) in processes() {
        let session = stat.split_ascii_whitespace().nth(3).and_then(|field| field.parse::<i32>().ok());
        if session == Some(leader) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// All processes, each with what follows its name in `/proc/…/stat` (proc(5)): state, parent, group, session.
fn processes() -> impl Iterator<Item = (i32, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name is in parentheses and may hold any character.
        Some((pid, stat.rsplit_once(") ")?.1.to_owned()))
    })
}

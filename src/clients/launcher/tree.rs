//! The processes that a program leaves behind. The launcher is their reaper: when their parents end, they become children
//! of the launcher, whatever they do. So none is overlooked.

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

use super::wire::ExitKind;

/// The time between two checks for remaining processes.
const PACE: Duration = Duration::from_millis(2);

/// The result of one attempt to reap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaped {
    /// A child that has ended.
    Child(Pid, ExitKind),
    /// All children are alive.
    NoneYet,
    /// There are no children.
    Alone,
}

/// Reaps `which`, or any child, if it has ended.
pub(crate) fn reap(which: Option<Pid>) -> Reaped {
    loop {
        match waitpid(which, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => return Reaped::Child(pid, ExitKind::Code(code)),
            Ok(WaitStatus::Signaled(pid, signal, _)) => return Reaped::Child(pid, ExitKind::Signal(signal as i32)),
            Ok(WaitStatus::StillAlive) => return Reaped::NoneYet,
            Err(Errno::ECHILD) => return Reaped::Alone,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return Reaped::NoneYet,
        }
    }
}

/// Reaps children until there are none, or until `patience` is over. Calls `seen` for each. Returns whether none is left.
pub(crate) fn reap_all(patience: Duration, mut seen: impl FnMut(Pid, ExitKind)) -> bool {
    let mut until = None;
    loop {
        match reap(None) {
            Reaped::Child(pid, how) => seen(pid, how),
            Reaped::Alone => return true,
            Reaped::NoneYet => sleep(PACE),
        }
        // Checked even if there is always another child: a fork bomb makes them without end.
        if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + patience) {
            return false;
        }
    }
}

/// How the descendants of this process are found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessTree {
    /// Whether this process can signal its own descendants and no other process. Then one call signals all of them, and
    /// they cannot outrun it by forking.
    pub(crate) is_alone: bool,
}

impl ProcessTree {
    /// Kills all descendants of this process until none is left, or until `patience` is over. Calls `seen` for each child.
    /// Returns whether none is left.
    pub(crate) fn kill_all(self, patience: Duration, mut seen: impl FnMut(Pid, ExitKind)) -> bool {
        let began = Instant::now();
        loop {
            self.signal_all(Signal::SIGKILL);
            // A process that was started meanwhile is found in the next round.
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
            // Every process that this one may signal, except itself (kill(2)).
            let _ = kill(Pid::from_raw(-1), signal);
            return;
        }
        for pid in descendants() {
            // Fails for processes that have ended.
            let _ = kill(pid, signal);
        }
    }
}

/// Whether a descendant of this process has `file` open, given as device and inode number. Also true if that cannot be
/// read.
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

/// Kills all processes of the session of `leader`.
pub(crate) fn kill_session(leader: i32) {
    for (pid, stat) in processes() {
        let session = stat.split_ascii_whitespace().nth(3).and_then(|field| field.parse::<i32>().ok());
        if session == Some(leader) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// All processes, each with the fields after its name in `/proc/…/stat` (proc(5)): state, parent, group, session.
fn processes() -> impl Iterator<Item = (i32, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name is in parentheses and may hold any character.
        Some((pid, stat.rsplit_once(") ")?.1.to_owned()))
    })
}

//! The memory and processor time of a running program and its descendants. The kernel reports that for each process and thread
//! (proc(5)), without help from the program or its launcher.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// The usage of all processes of a program together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The processor time of the living processes since they began.
    pub cpu: Duration,
    /// Their memory, in bytes.
    pub memory: u64,
    /// The most memory that one of them ever had, in bytes.
    pub peak: u64,
}

/// Measures the program of one launcher.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    /// The launcher's process id.
    pub(super) launcher: Option<u32>,
}

impl Meter {
    /// The usage now. Zero if the kernel does not report it.
    #[must_use]
    pub fn read(self) -> Usage {
        let mut usage = Usage::default();
        let mut next = self.launcher.map(|launcher| children(&tasks(launcher))).unwrap_or_default();
        while let Some(process) = next.pop() {
            let tasks = tasks(process);
            usage.cpu += tasks.iter().map(|task| time(task)).sum::<Duration>();
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            usage.memory += size(&status, "VmRSS:");
            usage.peak = usage.peak.max(size(&status, "VmHWM:"));
            next.extend(children(&tasks));
        }
        usage
    }
}

/// The folders of the threads of `process`.
fn tasks(process: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The processes that `tasks` started.
fn children(tasks: &[PathBuf]) -> Vec<u32> {
    let listed = tasks.iter().filter_map(|task| fs::read_to_string(task.join("children")).ok());
    listed.flat_map(|list| list.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect()
}

/// The processor time of a thread. `schedstat` counts nanoseconds, `stat` only hundredths of a second.
fn time(task: &Path) -> Duration {
    let stat = fs::read_to_string(task.join("schedstat")).ok();
    let nanos = stat.and_then(|stat| stat.split_ascii_whitespace().next()?.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// The size called `name` in `status`, in bytes.
fn size(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib: Option<u64> = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kib.map_or(0, |kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_of_children_count() {
        let ourselves = Meter { launcher: Some(std::process::id()) };
        let before = ourselves.read().memory;
        let script = "python3 -c 'import sys; x = bytearray(60000000); print(len(x), flush=True); sys.stdin.read()'; :";
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut byte = [0; 1];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        let usage = ourselves.read();
        assert!(usage.memory > before + 60_000_000 && usage.peak > 60_000_000, "{usage:?}, {before}");
        assert!(usage.cpu > Duration::from_millis(1), "{usage:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Meter { launcher: None }.read(), Usage::default());
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(size("Name:\tsh\nVmHWM:\t    1024 kB\nVmRSS:\t     912 kB\n", "VmRSS:"), 912 * 1024);
        assert_eq!(size("Name:\tsh\n", "VmRSS:"), 0);
    }
}

//! Processes that a test knows by a text in their command line.

use std::{path::Path, time::Duration};

use tokio::time::{Instant, sleep};

/// A text that stands in the command line of what a test starts, and of nothing else.
pub fn marker() -> String {
    format!("{}", fastrand::u32(100_000_000..))
}

/// The processes whose command line holds `marker`, zombies included.
pub fn processes(marker: &str) -> Vec<String> {
    let of =
        |pid: &Path| std::fs::read(pid.join("cmdline")).map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    all.filter_map(|pid| of(&pid).ok()).filter(|line| line.contains(marker)).collect()
}

/// Fails unless all of them are gone within 3 s.
pub async fn all_gone(marker: &str, what: &str) {
    let until = Instant::now() + Duration::from_secs(3);
    while !processes(marker).is_empty() {
        assert!(Instant::now() < until, "{what}: {:?}", processes(marker));
        sleep(Duration::from_millis(10)).await;
    }
}

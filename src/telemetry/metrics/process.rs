//! What the process itself uses, under the names that Prometheus' client libraries have for it. Read when somebody looks.
//! Programs of scripts are processes of their own, and not counted here.

use nix::sys::{
    resource::{Resource, UsageWho, getrlimit, getrusage},
    time::TimeValLike,
};
use prometheus::{Counter, IntGauge, Registry};

use super::gauge;
use crate::domain::clock::Timestamp;

/// What the process itself uses.
#[derive(Debug, Clone)]
pub(crate) struct ProcessMetrics {
    cpu: Counter,
    resident: IntGauge,
    virtual_memory: IntGauge,
    threads: IntGauge,
    open_files: IntGauge,
    max_files: IntGauge,
    started: IntGauge,
}

impl ProcessMetrics {
    /// Nothing that was read yet.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let cpu = Counter::new("process_cpu_seconds_total", "Processor time of the gateway, in seconds.")?;
        registry.register(Box::new(cpu.clone()))?;
        let gauge = |name: &str, help: &str| gauge(registry, name, help);
        Ok(Self {
            cpu,
            resident: gauge("process_resident_memory_bytes", "Resident memory of the gateway, in bytes.")?,
            virtual_memory: gauge("process_virtual_memory_bytes", "Virtual memory of the gateway, in bytes.")?,
            threads: gauge("process_threads", "Threads of the gateway.")?,
            open_files: gauge("process_open_fds", "Files and connections that the gateway has open.")?,
            max_files: gauge("process_max_fds", "The most files and connections that it may have open.")?,
            started: gauge("process_start_time_seconds", "When the gateway started, in seconds since 1970.")?,
        })
    }

    /// Notes that the process started at `at`.
    pub(crate) fn started(&self, at: Timestamp) {
        self.started.set(as_gauge(at.0 / 1000));
    }

    /// Reads them again. What cannot be read stays as it was.
    pub(crate) fn observe(&self) {
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            let used = usage.user_time() + usage.system_time();
            let seconds =
                std::time::Duration::from_micros(used.num_microseconds().try_into().unwrap_or(0)).as_secs_f64();
            self.cpu.inc_by((seconds - self.cpu.get()).max(0.0));
        }
        if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
            self.max_files.set(as_gauge(soft));
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            // One of them is the folder that is read.
            self.open_files.set(as_gauge(files.count().saturating_sub(1) as u64));
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (name, gauge, unit) in
            [("VmRSS:", &self.resident, 1024), ("VmSize:", &self.virtual_memory, 1024), ("Threads:", &self.threads, 1)]
        {
            if let Some(number) = number_of(&status, name) {
                gauge.set(as_gauge(number * unit));
            }
        }
    }
}

/// The number that `status` has in the line that begins with `name`.
fn number_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn as_gauge(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_status_is_read() {
        let status = "Name:\tgateway\nVmSize:\t   10240 kB\nVmRSS:\t    2048 kB\nThreads:\t4\n";
        assert_eq!(
            ["VmRSS:", "VmSize:", "Threads:", "Vm"].map(|name| number_of(status, name)),
            [Some(2048), Some(10240), Some(4), None]
        );
    }

    #[test]
    fn all_of_it_is_read_and_time_goes_on() {
        let metrics = ProcessMetrics::new(&Registry::new()).unwrap();
        metrics.observe();
        let before = metrics.cpu.get();
        for gauge in
            [&metrics.resident, &metrics.virtual_memory, &metrics.threads, &metrics.open_files, &metrics.max_files]
        {
            assert!(gauge.get() > 0, "{gauge:?}");
        }
        while metrics.cpu.get() <= before {
            metrics.observe();
        }
    }
}

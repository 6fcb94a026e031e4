//! The resources of the gateway's process, under the names of Prometheus' client libraries. Read at each scrape. Programs of scripts
//! are processes of their own, and do not count here.

use nix::sys::{
    resource::{Resource, UsageWho, getrlimit, getrusage},
    time::TimeValLike,
};
use prometheus::{Counter, IntGauge};

use super::registry::{Made, MetricRegistry};
use domain::clock::Timestamp;

/// The resources of the gateway's process.
#[derive(Debug, Clone)]
pub struct ProcessMetrics {
    cpu: Counter,
    resident: IntGauge,
    virtual_memory: IntGauge,
    threads: IntGauge,
    open_files: IntGauge,
    max_files: IntGauge,
    started: IntGauge,
}

impl ProcessMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        Ok(Self {
            cpu: registry.seconds("process_cpu_seconds_total", "Processor time of the gateway, in seconds.")?,
            resident: registry.gauge("process_resident_memory_bytes", "Resident memory of the gateway, in bytes.")?,
            virtual_memory: registry
                .gauge("process_virtual_memory_bytes", "Virtual memory of the gateway, in bytes.")?,
            threads: registry.gauge("process_threads", "Threads of the gateway.")?,
            open_files: registry.gauge("process_open_fds", "Open files and connections of the gateway.")?,
            max_files: registry
                .gauge("process_max_fds", "The most files and connections that the gateway may open.")?,
            started: registry
                .gauge("process_start_time_seconds", "When the gateway started, in seconds since 1970.")?,
        })
    }

    /// Notes that the process started at `at`.
    pub fn started(&self, at: Timestamp) {
        self.started.set(as_gauge(at.0 / 1000));
    }

    /// Reads all values again. A value that cannot be read stays as it was.
    pub fn observe(&self) {
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
            // The open folder itself is one of them.
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

/// The number in the line of `status` that begins with `name`.
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
    fn reads_a_line_of_status() {
        let status = "Name:\tgateway\nVmSize:\t   10240 kB\nVmRSS:\t    2048 kB\nThreads:\t4\n";
        assert_eq!(
            ["VmRSS:", "VmSize:", "Threads:", "Vm"].map(|name| number_of(status, name)),
            [Some(2048), Some(10240), Some(4), None]
        );
    }

    #[test]
    fn reads_all_values_and_processor_time_grows() {
        let metrics = ProcessMetrics::new(&mut MetricRegistry::default()).unwrap();
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

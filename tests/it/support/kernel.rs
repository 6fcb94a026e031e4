//! Starts programs under a kernel that seems to lack system calls.

use std::{collections::BTreeMap, env::consts::ARCH, thread};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// Calls `start` while each of `calls` fails with `error`, also in all programs that it starts.
pub(crate) fn failing<T: Send>(calls: &[i64], error: i32, start: impl FnOnce() -> T + Send) -> T {
    let rules: BTreeMap<_, _> = calls.iter().map(|call| (*call, Vec::new())).collect();
    let fails = SeccompAction::Errno(error.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, fails, ARCH.try_into().unwrap()).unwrap();
    let program = BpfProgram::try_from(filter).unwrap();
    // A filter belongs to a thread and its children.
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            apply_filter(&program).unwrap();
            start()
        });
        thread.join().unwrap()
    })
}

//! The program `appset-gateway`. Everything is in [`appset_gateway::cli`].

/// Allocating memory is a large part of a request's cost; see benches/README.md.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    appset_gateway::cli::run()
}

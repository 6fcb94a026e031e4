//! `appset-gateway`: the arguments decide, [`appset_gateway::cli`] does.

/// What memory costs is a part of what a request costs: benches/README.md.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    appset_gateway::cli::run()
}

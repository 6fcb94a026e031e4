//! `appset-gateway`: the arguments decide, [`appset_gateway::cli`] does.

fn main() -> std::process::ExitCode {
    appset_gateway::cli::run()
}

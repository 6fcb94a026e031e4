//! The program `cmp-gateway`. Everything is in [`cmp::cli`].

fn main() -> std::process::ExitCode {
    cmp::cli::run()
}

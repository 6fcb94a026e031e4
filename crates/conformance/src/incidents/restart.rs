//! Restarts the plugin server: by a command, or by a person at the terminal.

use std::{io::stdin, process::Stdio, thread};

use anyhow::Context as _;
use tokio::{process::Command, sync::oneshot};

/// How the plugin server is restarted.
#[derive(Debug)]
pub enum Restart {
    /// By this command of the shell. It must end when the new server was started, and leave that running without its output.
    Command(String),
    /// By the person who reads the terminal, and then presses Enter.
    Person,
}

impl Restart {
    /// Restarts the server. It may not be ready yet.
    pub(super) async fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Command(command) => {
                // Standard output belongs to the report.
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
                let status = shell.status().await.context("cannot run `sh` for `--restart`")?;
                anyhow::ensure!(status.success(), "the command of `--restart` failed: {status}");
            }
            Self::Person => {
                eprintln!("\nRestart the plugin server now, and then press Enter.");
                let (sender, receiver) = oneshot::channel();
                // A thread of its own: the end of the run must not wait for it.
                thread::spawn(move || sender.send(stdin().read_line(&mut String::new())));
                let line = receiver.await??;
                anyhow::ensure!(line > 0, "standard input ended before the restart was confirmed");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failed_command_is_an_error() {
        Restart::Command("exit 0".to_owned()).run().await.unwrap();
        let why = Restart::Command("exit 3".to_owned()).run().await.unwrap_err();
        assert_eq!(why.to_string(), "the command of `--restart` failed: exit status: 3");
    }
}

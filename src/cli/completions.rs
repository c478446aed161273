//! `weir completions`: prints what a shell needs to complete commands, flags and files.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use clap_complete::{Shell, generate};

use super::process::FAILED;

#[derive(Args)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Prints the script to standard output.
    pub fn run(&self) -> ExitCode {
        // The generator panics on a closed pipe, so it writes into memory.
        let mut script = Vec::new();
        generate(self.shell, &mut super::command(), "weir", &mut script);
        match io::stdout().lock().write_all(&script) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => FAILED.into(),
        }
    }
}

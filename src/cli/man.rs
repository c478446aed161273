//! `weir man`: the manual pages, made from the same definitions as `--help`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::process::{FAILED, Failure};

#[derive(Args)]
pub struct Man {
    /// An existing folder for the pages of all commands: weir.1, weir-serve.1, …; without it the
    /// page of `weir` goes to standard output
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Man {
    /// Prints one page, or writes all.
    pub fn run(&self) -> ExitCode {
        let Some(folder) = &self.folder else {
            let printed = page().and_then(|page| io::stdout().lock().write_all(&page));
            return printed.map_or(FAILED.into(), |()| ExitCode::SUCCESS);
        };
        match write_all(folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                Failure::running(format_args!("weir man: {}: {error}", folder.display())).report()
            }
        }
    }
}

/// Returns the commands that have a page. `weir help` has the text of the others.
fn pages() -> clap::Command {
    super::command().disable_help_subcommand(true)
}

/// Returns the page of the program as a whole, in roff.
fn page() -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(pages()).render(&mut page)?;
    Ok(page)
}

fn write_all(folder: &Path) -> io::Result<()> {
    clap_mangen::generate_to(pages(), folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::process::CONFIG_VARIABLE;

    #[test]
    fn every_command_has_a_manual_page() {
        let folder = tempfile::tempdir().unwrap();
        write_all(folder.path()).unwrap();
        for command in super::super::command().get_subcommands() {
            let name = format!("weir-{}.1", command.get_name());
            let page = std::fs::read_to_string(folder.path().join(&name)).unwrap();
            assert!(page.contains(".SH SYNOPSIS"), "{name}");
            let named = command.get_arguments().filter_map(|argument| argument.get_env());
            for variable in named.filter_map(|variable| variable.to_str()) {
                assert!(page.contains(variable), "{name} lacks {variable}");
            }
        }
        let serve = std::fs::read_to_string(folder.path().join("weir-serve.1")).unwrap();
        assert!(serve.contains(CONFIG_VARIABLE), "{serve}");
        assert_eq!(std::fs::read(folder.path().join("weir.1")).unwrap(), page().unwrap());
    }
}

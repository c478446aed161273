//! The commands of the program: versions, completions, manual pages, the checks of a config, and
//! several gateways of the demo.

#[expect(dead_code, reason = "of the build script, only the commit is looked for here")]
#[path = "../../../build.rs"]
mod build_script;
mod check;
mod demo;
mod help;
mod include;
mod variables;
mod version;

use std::path::Path;
use std::process::{Command, Output};

/// Runs `weir` in `folder`, with these variables and without those of this process that matter.
fn weir(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).current_dir(folder).env_remove("WEIR_CONFIG");
    command.envs(variables.iter().copied()).output().expect("the program starts")
}

/// The standard output.
fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The standard error.
fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

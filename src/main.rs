//! The `weir` binary: arguments to subcommands, nothing else.

use std::process::ExitCode;

// Built without huge pages (`no_thp`): with them, each beginning of two MiB counts as all of them,
// at the start of the process already.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    weir::cli::main()
}

//! The `weir` binary.

use std::process::ExitCode;

// Built without huge pages (`no_thp`): with them the process counts each touched 2 MiB as a whole,
// from its start on.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    weir::cli::main()
}

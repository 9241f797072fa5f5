//! The program.

fn main() -> std::process::ExitCode {
    strata_disk::cli::main()
}

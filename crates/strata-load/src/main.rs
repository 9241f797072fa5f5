//! The program.

fn main() -> std::process::ExitCode {
    strata_load::cli::main()
}

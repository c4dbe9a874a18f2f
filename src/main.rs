//! The `unikai` binary: everything is in the library.

fn main() -> std::process::ExitCode {
    unikai::cli::main()
}

//! The `thalweg-bench` binary.

fn main() -> std::process::ExitCode {
    thalweg_bench::main()
}

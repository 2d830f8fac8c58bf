//! `straingauge-simulate`, which `straingauge simulate` starts. Its code is in the library, because rustdoc checks
//! the links of libraries.

fn main() -> std::process::ExitCode {
    simulate::command::main()
}

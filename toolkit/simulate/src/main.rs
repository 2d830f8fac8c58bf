//! `straingauge-simulate`, which `straingauge simulate` starts. All of it is in the library, as rustdoc checks the
//! links of libraries.

fn main() -> std::process::ExitCode {
    simulate::command::main()
}

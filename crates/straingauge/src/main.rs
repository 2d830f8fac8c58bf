//! straingauge: a strain gauge for network servers. The code is in the library, because rustdoc checks only the links
//! of libraries.

fn main() -> std::process::ExitCode {
    straingauge::main()
}

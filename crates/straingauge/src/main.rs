//! straingauge: a strain gauge for network servers. All of it is in the library, as rustdoc checks the links of
//! libraries.

fn main() -> std::process::ExitCode {
    straingauge::main()
}

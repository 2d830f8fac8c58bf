//! The crate's tests: parsers on kernel text and on garbage, and the observer on real processes and sockets.

mod account_parts;
mod actors;
mod goroutines_parts;
mod group;
mod java_parts;
mod machine_parts;
mod netlink;
mod pack_parts;
mod point_parts;
mod process_parts;
mod profile_parts;
mod socket_parts;
mod sockets;
mod text;
mod watch_parts;
mod windows;

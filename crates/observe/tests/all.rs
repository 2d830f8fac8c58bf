//! The crate's tests: parsers on kernel text and on garbage, and the observer on real processes and sockets.

#[path = "all/actors.rs"]
mod actors;
#[path = "all/group.rs"]
mod group;
#[path = "all/netlink.rs"]
mod netlink;
#[path = "all/sockets.rs"]
mod sockets;
#[path = "all/text.rs"]
mod text;
#[path = "all/windows.rs"]
mod windows;

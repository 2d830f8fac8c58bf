//! The engine against servers that behave, and against servers that do not. One binary; every server is in this
//! process, or a child of it, and listens on loopback.

mod cold;
mod connecting;
mod framing;
mod http2;
mod lengths;
mod many_connections;
mod open_loop;
mod outcomes;
mod probing;
mod protocols;
mod real_http2;
mod real_servers;
mod reap;
mod replay;
mod secure;
mod servers;
mod slowest;
mod stall;

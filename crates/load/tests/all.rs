//! The engine against well-behaved and faulty servers, which run in this process or a child of it and listen on
//! loopback.

mod arrival;
mod cold;
mod connecting;
mod framing;
mod http2;
mod lengths;
mod many_connections;
mod open_loop;
mod outcomes;
mod plans;
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

//! The parts of the engine, and the engine against well-behaved and faulty servers, which run in this process or a
//! child of it and listen on loopback.

mod arrival;
mod cold;
mod connecting;
mod engine_parts;
mod framing;
mod header_parts;
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
mod replay_parts;
mod reply_parts;
mod request_parts;
mod result_parts;
mod secure;
mod servers;
mod slowest;
mod stall;

//! Options of HTTP/2 and of the protocols that the URL names; also section `[protocol]` of a scenario file.

use super::overlay;
use crate::quantity::{Bytes, Count, Share, read_as_typed};
use clap::Args;
use serde::Deserialize;
use std::str::FromStr;

/// Requests in protocols other than HTTP/1.1.
#[derive(Debug, Default, Clone, PartialEq, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "HTTP/2, gRPC, Redis, memcached, raw TCP")]
pub struct ProtocolOptions {
    /// Speak HTTP/2 instead of HTTP/1.1
    ///
    /// https://: by ALPN. http://: prior knowledge (the h2c upgrade is not supported).
    #[arg(long)]
    pub http2: bool,
    /// Call this gRPC method, e.g. package.Service/Method
    ///
    /// It sends one message and receives one or a stream (--parts times its gaps). --body is the message, as bytes.
    /// With METHOD@FILE it is JSON; FILE describes the type, as made by 'protoc --include_imports
    /// --descriptor_set_out=FILE'. [default: an empty message]
    #[arg(long, value_name = "METHOD")]
    pub grpc: Option<String>,
    /// Requests in flight on each connection [default: {in_flight}]
    ///
    /// For HTTP/2 and gRPC (streams; a server may allow fewer), redis, memcached and tcp.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub in_flight: Option<Count>,
    /// redis: send this command, e.g. 'GET key:{key}'
    ///
    /// {key} is the number of a key, {value} a value. Quoted as for a shell. Repeatable: sent in turn. [default: GET
    /// and SET with --keys]
    // Not "command": that is the server's, after --.
    #[arg(id = "sent_command", long = "command", value_name = "COMMAND")]
    pub command: Vec<String>,
    /// redis, memcached: number of keys, e.g. 1M,zipf=0.99,size=64,reads=50% [default: {keys}]
    ///
    /// zipf: choose keys by Zipf's law with this exponent [all keys equally often]. size: length of values
    /// [{value_size}]. reads: share of requests that read; the others write [{read_share}]. memcached: per-get: keys
    /// in each get [{keys_per_get}]; meta: send meta commands (mg and ms) instead of get and set.
    #[arg(long, value_name = "KEYS", allow_hyphen_values = true)]
    pub keys: Option<KeyOptions>,
    /// tcp: send these bytes, e.g. 'ping\r\n'
    ///
    /// Escapes: \r, \n, \t, \0, \\ and \xNN.
    #[arg(long, value_name = "TEXT")]
    pub send: Option<String>,
    /// tcp: end of the answer: line, a number of bytes, u16be or u32be [default: {expect}]
    ///
    /// u16be and u32be: the first two or four bytes are the number of bytes that follow.
    #[arg(long, value_name = "END")]
    pub expect: Option<String>,
}
overlay!(ProtocolOptions; grpc, in_flight, keys, send, expect, command, http2);

/// The keys of a store and the requests for them, as typed.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct KeyOptions {
    /// Number of keys.
    pub count: Option<u64>,
    /// Exponent of Zipf's law.
    pub zipf: Option<f64>,
    /// Length of values.
    pub value_bytes: Option<u64>,
    /// Share of requests that read.
    pub read_ratio: Option<f64>,
    /// Keys in each get of memcached.
    pub per_get: Option<Count>,
    /// memcached: meta commands.
    pub is_meta: bool,
}

impl FromStr for KeyOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut keys = KeyOptions::default();
        for part in text.split(',').map(str::trim) {
            let wrong = |why: &dyn std::fmt::Display| format!("'{}': {why}", part.escape_debug());
            match part.split_once('=') {
                None if part == "meta" => keys.is_meta = true,
                None => keys.count = Some(part.parse::<Count>().map_err(|why| wrong(&why))?.0),
                Some(("zipf", value)) => keys.zipf = Some(value.parse().map_err(|why| wrong(&why))?),
                Some(("size", value)) => keys.value_bytes = Some(value.parse::<Bytes>().map_err(|why| wrong(&why))?.0),
                Some(("reads", value)) => keys.read_ratio = Some(value.parse::<Share>().map_err(|why| wrong(&why))?.0),
                Some(("per-get", value)) => keys.per_get = Some(value.parse().map_err(|why| wrong(&why))?),
                Some(_) => return Err(wrong(&"use zipf=, size=, reads=, per-get= or meta")),
            }
        }
        Ok(keys)
    }
}

read_as_typed!(KeyOptions);

//! Options of HTTP/2, and of the protocols other than HTTP, which the URL names. On the command line, and as `[protocol]` of a scenario
//! file.

use super::overlay;
use crate::quantity::{Bytes, Count, Share};
use clap::Args;
use serde::Deserialize;
use std::path::PathBuf;

/// What is asked of a server in another protocol than HTTP/1.1.
#[derive(Debug, Default, Clone, PartialEq, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "HTTP/2, gRPC, Redis, memcached, raw TCP")]
pub struct ProtocolOptions {
    /// Only connect, and close at once: a request is a connection, with its TLS handshake
    ///
    /// For connections and handshakes per second. The close is a reset, as one in order would keep a port of the client for a minute.
    #[arg(long)]
    pub connect_only: bool,
    /// Speak HTTP/2 instead of HTTP/1.1
    ///
    /// https: by ALPN. http: with prior knowledge, as no server answers otherwise.
    #[arg(long)]
    pub http2: bool,
    /// Call this method of gRPC, as package.Service/Method
    ///
    /// It takes one message and answers with one or a stream (--parts times its gaps). The message is --body or --body-file: JSON with
    /// --descriptor-set, else its bytes. [default: an empty message]
    #[arg(long, value_name = "METHOD")]
    pub grpc: Option<String>,
    /// gRPC: where the message's type is described
    ///
    /// Made by protoc --include_imports --descriptor_set_out=FILE.
    #[arg(long, value_name = "FILE")]
    pub descriptor_set: Option<PathBuf>,
    /// HTTP/2, gRPC: requests in flight on a connection [default: {streams}]
    ///
    /// Each is a stream with its own times. A server may allow fewer.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub streams: Option<Count>,
    /// redis: send this, as 'GET key:{key}'
    ///
    /// {key} is the number of a key, {value} a value. Quoted as for a shell. Repeatable: sent in turn. [default: GET and SET by
    /// --read-share]
    // "command" is the server's, after --.
    #[arg(id = "sent_command", long = "command", value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Requests in flight on a connection [default: {pipeline}]
    ///
    /// Each is a request with its own times. redis, memcached, tcp.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub pipeline: Option<Count>,
    /// redis, memcached: number of keys [default: {keys}]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub keys: Option<Count>,
    /// redis, memcached: choose keys by Zipf's law with this exponent, as 0.99 [default: all alike]
    #[arg(long, value_name = "EXPONENT", allow_hyphen_values = true)]
    pub zipf: Option<f64>,
    /// redis, memcached: length of values [default: {value_size}]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub value_size: Option<Bytes>,
    /// redis, memcached: share of requests that read; the others write [default: {read_share}]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub read_share: Option<Share>,
    /// memcached: keys in each get [default: {keys_per_get}]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub keys_per_get: Option<Count>,
    /// memcached: send meta commands (mg and ms) instead of get and set
    #[arg(long)]
    pub meta: bool,
    /// tcp: send this, as 'ping\r\n'
    ///
    /// \r, \n, \t, \0, \\ and \xNN stand for bytes.
    #[arg(long, value_name = "TEXT")]
    pub send: Option<String>,
    /// tcp: where the answer ends: line, a number of bytes, u16be or u32be [default: {expect}]
    ///
    /// u16be and u32be: after as many bytes as its first two or four say.
    #[arg(long, value_name = "END")]
    pub expect: Option<String>,
}
overlay!(ProtocolOptions; grpc, descriptor_set, streams, pipeline, keys, zipf, value_size, read_share, keys_per_get,
    send, expect, command, connect_only, http2, meta);

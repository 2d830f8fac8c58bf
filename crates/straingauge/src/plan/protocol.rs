//! The protocol of a load, from its URL and options. Refuses options that another protocol does not support, by name.

use super::grpc;
use crate::cli::{KeyOptions, Options, ProtocolOptions};
use crate::defaults;
use crate::failure::{refuse_if, refuse_typed, wrong_usage};
use crate::quantity::Count;
use crate::url::{Scheme, Target};
use anyhow::Result;
use record::protocol::{Expect, GrpcPlan, Http2Plan, Keyspace, MemcachedPlan, Protocol, RedisPlan, TcpPlan};

/// Name of the key in a scenario file, for messages.
const CLOSE_FIRST: &str = "close-first of [clients]";

pub fn protocol_plan(options: &Options, target: &Target) -> Result<Protocol> {
    let asked = &options.protocol;
    if options.load.requests_per_connection == Some(Count(0)) {
        refuse_requests(options)?;
        return Ok(Protocol::Connect);
    }
    let of_tcp = [(asked.send.is_some(), "--send"), (asked.expect.is_some(), "--expect")];
    let refuse = |typed: &[(bool, &str)], whose: &str| {
        refuse_typed(typed, |option| format!("{option} is for {whose} URLs: change the URL, or leave {option} out"))
    };
    if target.scheme != Scheme::Redis {
        refuse(&[(!asked.command.is_empty(), "--command")], "redis://")?;
    }
    if target.scheme != Scheme::Tcp {
        refuse(&of_tcp, "tcp://")?;
    }
    if matches!(target.scheme, Scheme::Http | Scheme::Tcp) {
        refuse(&[(asked.keys.is_some(), "--keys")], "redis:// and memcached://")?;
    }
    let in_flight = at_least_one("--in-flight", asked.in_flight, defaults::IN_FLIGHT)?;
    if target.scheme == Scheme::Http {
        if asked.http2 || asked.grpc.is_some() {
            refuse_what_is_http_1s(options)?;
        }
        if let Some(method) = &asked.grpc {
            return Ok(Protocol::Grpc(GrpcPlan { method: grpc::method(method)?.0, streams: in_flight }));
        }
        if asked.http2 {
            return Ok(Protocol::Http2(Http2Plan { streams: in_flight }));
        }
        refuse_if(
            asked.in_flight.is_some(),
            "--in-flight does not apply to HTTP/1.1, which has one request in flight per connection: add --http2, or \
             leave --in-flight out",
        )?;
        return Ok(Protocol::Http);
    }
    refuse(&[(asked.http2, "--http2"), (asked.grpc.is_some(), "--grpc")], "http:// and https://")?;
    refuse_what_is_https(options, |option| {
        format!("{option} is for HTTP, not for {}: leave it out", target.scheme.word())
    })?;
    let keys = asked.keys.clone().unwrap_or_default();
    Ok(match target.scheme {
        Scheme::Http => Protocol::Http,
        Scheme::Redis => {
            refuse_if(
                !asked.command.is_empty() && keys.read_ratio.is_some(),
                "reads= of --keys chooses between GET and SET: leave it out with --command",
            )?;
            refuse_if(
                keys.per_get.is_some() || keys.is_meta,
                "per-get= and meta of --keys are for memcached:// URLs: leave them out",
            )?;
            Protocol::Redis(RedisPlan {
                keyspace: keyspace_of(&keys),
                commands: asked.command.iter().map(|text| command_words(text)).collect::<Result<_>>()?,
                user: target.user.clone(),
                password: target.password.clone(),
                database: database(target)?,
                pipeline: in_flight,
            })
        }
        Scheme::Memcached => Protocol::Memcached(MemcachedPlan {
            keyspace: keyspace_of(&keys),
            keys_per_get: at_least_one("per-get= of --keys", keys.per_get, defaults::KEYS_PER_GET)?,
            is_meta: keys.is_meta,
            pipeline: in_flight,
        }),
        Scheme::Tcp => {
            let send = asked
                .send
                .as_deref()
                .ok_or_else(|| wrong_usage("a tcp:// URL needs --send, as in --send 'ping\\r\\n'"))?;
            let expect = asked.expect.as_deref().unwrap_or(defaults::EXPECT);
            Protocol::Tcp(TcpPlan { send: bytes(send)?, expect: end(expect)?, pipeline: in_flight })
        }
    })
}

fn refuse_what_is_http_1s(options: &Options) -> Result<()> {
    let typed = [
        (options.clients.close_first.is_some(), CLOSE_FIRST),
        (options.workload.logged_host, "logged-host of [workload]"),
    ];
    refuse_typed(&typed, |option| format!("{option} is for HTTP/1.1: leave out {option}, or --http2 and --grpc"))
}

fn refuse_requests(options: &Options) -> Result<()> {
    let ProtocolOptions { http2, grpc, in_flight, command, keys, send, expect } = &options.protocol;
    let typed = [
        (*http2, "--http2"),
        (grpc.is_some(), "--grpc"),
        (in_flight.is_some(), "--in-flight"),
        (!command.is_empty(), "--command"),
        (keys.is_some(), "--keys"),
        (send.is_some(), "--send"),
        (expect.is_some(), "--expect"),
    ];
    let words =
        |option: &str| format!("{option} needs requests, but --requests-per-connection 0 sends none: leave one out");
    refuse_typed(&typed, words)?;
    refuse_what_is_https(options, words)
}

fn refuse_what_is_https(options: &Options, words: impl Fn(&str) -> String) -> Result<()> {
    let (load, workload, clients) = (&options.load, &options.workload, &options.clients);
    let typed = [
        (load.method.is_some(), "--method"),
        (!load.header.is_empty(), "--header"),
        (load.traceparent, "--traceparent"),
        (load.body.is_some(), "--body"),
        (load.urls.is_some(), "--urls"),
        (workload.mix.is_some(), "--mix"),
        (workload.classes.is_some(), "classes of [workload]"),
        (workload.dynamic_urls.is_some(), "dynamic-urls of [workload]"),
        (workload.trace.is_some(), "--trace"),
        (workload.trace_format.is_some(), "trace-format of [workload]"),
        (clients.read_rate.is_some(), "--read-rate"),
        (clients.asked_bandwidth.is_some(), "--asked-bandwidth"),
        (clients.close_first.is_some(), CLOSE_FIRST),
        (clients.parts, "--parts"),
    ];
    refuse_typed(&typed, words)
}

fn at_least_one(option: &str, typed: Option<Count>, default: u64) -> Result<u32> {
    match typed.map_or(default, |count| count.0) {
        0 => Err(wrong_usage(format!("{option} 0 would send nothing: give at least 1"))),
        count => u32::try_from(count).map_err(|_| wrong_usage(format!("{option} {count} is too large"))),
    }
}

fn keyspace_of(keys: &KeyOptions) -> Keyspace {
    Keyspace {
        keys: keys.count.unwrap_or(defaults::KEYS),
        zipf_exponent: keys.zipf.unwrap_or(0.0),
        value_bytes: keys.value_bytes.unwrap_or(defaults::VALUE_SIZE.0),
        read_ratio: keys.read_ratio.unwrap_or(defaults::READ_SHARE.0),
    }
}

fn command_words(command: &str) -> Result<Vec<String>> {
    match shlex::split(command) {
        Some(words) if !words.is_empty() => Ok(words),
        _ => Err(wrong_usage(format!(
            "--command '{}' is not a command: write it as 'GET key:{{key}}', with every quote closed",
            command.escape_debug()
        ))),
    }
}

fn database(target: &Target) -> Result<u32> {
    let path = target.path.trim_matches('/');
    if path.is_empty() {
        return Ok(0);
    }
    path.parse().map_err(|_| {
        wrong_usage(format!(
            "'{}' is not a Redis database number: write the URL as redis://HOST:PORT/0",
            path.escape_debug()
        ))
    })
}

fn bytes(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes().iter().copied();
    let wrong = || {
        wrong_usage(format!(
            "--send '{}': a backslash must be followed by r, n, t, 0, a backslash, or x and two hexadecimal digits",
            text.escape_debug()
        ))
    };
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match rest.next() {
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'0') => 0,
            Some(b'\\') => b'\\',
            Some(b'x') => {
                let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
                let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
                (high * 16 + low) as u8
            }
            _ => return Err(wrong()),
        });
    }
    refuse_if(out.is_empty(), "--send '' sends nothing: give at least one byte")?;
    Ok(out)
}

fn end(text: &str) -> Result<Expect> {
    Ok(match text {
        "line" => Expect::Line,
        "u16be" => Expect::U16be,
        "u32be" => Expect::U32be,
        number => match number.parse::<Count>() {
            Ok(Count(count @ 1..)) => Expect::Bytes(count),
            _ => {
                return Err(wrong_usage(format!(
                    "--expect '{}' is invalid: give line, a number of bytes, u16be or u32be",
                    number.escape_debug()
                )));
            }
        },
    })
}

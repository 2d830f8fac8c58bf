//! The protocol of a load, from its URL and its options; what another protocol cannot do is refused by name.

use super::grpc;
use crate::cli::{ClientOptions, Options, ProtocolOptions};
use crate::defaults;
use crate::failure::{refuse_typed, wrong_usage};
use crate::quantity::Count;
use crate::url::{Scheme, Target};
use anyhow::Result;
use record::protocol::{Expect, GrpcPlan, Http2Plan, Keyspace, MemcachedPlan, Protocol, RedisPlan, TcpPlan};

/// Makes the protocol's part of the engine's plan.
pub fn protocol_plan(options: &Options, target: &Target) -> Result<Protocol> {
    let asked = &options.protocol;
    if asked.connect_only {
        refuse_requests(options, target)?;
        return Ok(Protocol::Connect);
    }
    let redis = [(!asked.command.is_empty(), "--command")];
    let memcached = [(asked.keys_per_get.is_some(), "--keys-per-get"), (asked.meta, "--meta")];
    let tcp = [(asked.send.is_some(), "--send"), (asked.expect.is_some(), "--expect")];
    let keyspace = [
        (asked.keys.is_some(), "--keys"),
        (asked.zipf.is_some(), "--zipf"),
        (asked.value_size.is_some(), "--value-size"),
        (asked.read_share.is_some(), "--read-share"),
    ];
    let pipeline = [(asked.pipeline.is_some(), "--pipeline")];
    let refuse = |typed: &[(bool, &str)], whose: &str| {
        refuse_typed(typed, |option| format!("{option} is for {whose} URLs: write the URL so, or leave it out"))
    };
    if target.scheme != Scheme::Redis {
        refuse(&redis, "redis://")?;
    }
    if target.scheme != Scheme::Memcached {
        refuse(&memcached, "memcached://")?;
    }
    if target.scheme != Scheme::Tcp {
        refuse(&tcp, "tcp://")?;
    }
    if matches!(target.scheme, Scheme::Http | Scheme::Tcp) {
        refuse(&keyspace, "redis:// and memcached://")?;
    }
    if target.scheme == Scheme::Http {
        refuse(&pipeline, "redis://, memcached:// and tcp://")?;
        if asked.http2 || asked.grpc.is_some() {
            refuse_what_is_http_1s(options)?;
        }
        let streams = || at_least_one("--streams", asked.streams, defaults::STREAMS);
        if let Some(method) = &asked.grpc {
            return Ok(Protocol::Grpc(GrpcPlan { method: grpc::method(method)?, streams: streams()? }));
        }
        let of_grpc = [(asked.descriptor_set.is_some(), "--descriptor-set")];
        refuse_typed(&of_grpc, |option| format!("{option} is for gRPC: give --grpc too, or leave it out"))?;
        if asked.http2 {
            return Ok(Protocol::Http2(Http2Plan { streams: streams()? }));
        }
        let of_http_2 = [(asked.streams.is_some(), "--streams")];
        refuse_typed(&of_http_2, |option| format!("{option} is for HTTP/2: give --http2 too, or leave it out"))?;
        return Ok(Protocol::Http);
    }
    let of_http = [
        (asked.http2, "--http2"),
        (asked.grpc.is_some(), "--grpc"),
        (asked.descriptor_set.is_some(), "--descriptor-set"),
        (asked.streams.is_some(), "--streams"),
    ];
    refuse(&of_http, "http:// and https://")?;
    refuse_what_is_https(options, |option| {
        format!("{option} is for HTTP, not for {}: leave it out", target.scheme.word())
    })?;
    refuse_what_is_tls(options, target)?;
    let pipeline = at_least_one("--pipeline", asked.pipeline, defaults::PIPELINE)?;
    Ok(match target.scheme {
        Scheme::Http => Protocol::Http,
        Scheme::Redis => {
            if !asked.command.is_empty() && asked.read_share.is_some() {
                return Err(wrong_usage("--read-share chooses between GET and SET: leave it out with --command"));
            }
            Protocol::Redis(RedisPlan {
                keyspace: keyspace_of(asked)?,
                commands: asked.command.iter().map(|text| words(text)).collect::<Result<_>>()?,
                user: target.user.clone(),
                password: target.password.clone(),
                database: database(target)?,
                pipeline,
            })
        }
        Scheme::Memcached => Protocol::Memcached(MemcachedPlan {
            keyspace: keyspace_of(asked)?,
            keys_per_get: at_least_one("--keys-per-get", asked.keys_per_get, defaults::KEYS_PER_GET)?,
            is_meta: asked.meta,
            pipeline,
        }),
        Scheme::Tcp => {
            let send = asked.send.as_deref().ok_or_else(|| {
                wrong_usage("a tcp:// URL needs what to send: give --send, as in --send 'ping\\r\\n'")
            })?;
            let expect = asked.expect.as_deref().unwrap_or(defaults::EXPECT);
            Protocol::Tcp(TcpPlan { send: bytes(send)?, expect: end(expect)?, pipeline })
        }
    })
}

/// Refuses the options that HTTP/2 does not have.
fn refuse_what_is_http_1s(options: &Options) -> Result<()> {
    let typed = [(options.clients.close_first.is_some(), "--close-first")];
    refuse_typed(&typed, |option| format!("{option} is for HTTP/1.1: leave it out, or --http2 or --grpc"))
}

/// Refuses the options of requests, where none are sent.
fn refuse_requests(options: &Options, target: &Target) -> Result<()> {
    let ProtocolOptions { connect_only: _, http2, grpc, descriptor_set, streams, .. } = &options.protocol;
    let ProtocolOptions { command, pipeline, keys, zipf, value_size, read_share, .. } = &options.protocol;
    let ProtocolOptions { keys_per_get, meta, send, expect, .. } = &options.protocol;
    let typed = [
        (*http2, "--http2"),
        (grpc.is_some(), "--grpc"),
        (descriptor_set.is_some(), "--descriptor-set"),
        (streams.is_some(), "--streams"),
        (!command.is_empty(), "--command"),
        (pipeline.is_some(), "--pipeline"),
        (keys.is_some(), "--keys"),
        (zipf.is_some(), "--zipf"),
        (value_size.is_some(), "--value-size"),
        (read_share.is_some(), "--read-share"),
        (keys_per_get.is_some(), "--keys-per-get"),
        (*meta, "--meta"),
        (send.is_some(), "--send"),
        (expect.is_some(), "--expect"),
        (options.load.requests_per_connection.is_some(), "--requests-per-connection"),
    ];
    let words =
        |option: &str| format!("{option} is about requests, and --connect-only sends none: leave one of them out");
    refuse_typed(&typed, words)?;
    refuse_what_is_https(options, words)?;
    refuse_what_is_tls(options, target)
}

/// Refuses the options that only HTTP has.
fn refuse_what_is_https(options: &Options, words: impl Fn(&str) -> String) -> Result<()> {
    let (load, workload, clients) = (&options.load, &options.workload, &options.clients);
    let typed = [
        (load.method.is_some(), "--method"),
        (!load.header.is_empty(), "--header"),
        (load.body.is_some(), "--body"),
        (load.body_file.is_some(), "--body-file"),
        (load.urls.is_some(), "--urls"),
        (workload.mix.is_some(), "--mix"),
        (workload.classes.is_some(), "--classes"),
        (workload.dynamic_share.is_some(), "--dynamic-share"),
        (workload.dynamic_urls.is_some(), "--dynamic-urls"),
        (workload.trace.is_some(), "--trace"),
        (workload.trace_format.is_some(), "--trace-format"),
        (workload.session_gap.is_some(), "--session-gap"),
        (clients.read_rate.is_some(), "--read-rate"),
        (clients.asked_bandwidth.is_some(), "--asked-bandwidth"),
        (clients.demanded_bandwidth.is_some(), "--demanded-bandwidth"),
        (clients.close_first.is_some(), "--close-first"),
        (clients.parts, "--parts"),
    ];
    refuse_typed(&typed, words)
}

/// Refuses the options of TLS without it.
fn refuse_what_is_tls(options: &Options, target: &Target) -> Result<()> {
    let clients = &options.clients;
    if !target.is_tls {
        let ClientOptions { tls_resumption, tls_ca, tls_insecure, .. } = clients;
        let typed = [
            (tls_resumption.is_some(), "--tls-resumption"),
            (tls_ca.is_some(), "--tls-ca"),
            (*tls_insecure, "--tls-insecure"),
        ];
        refuse_typed(&typed, |option| format!("{option} applies to TLS: write the URL with https or rediss"))?;
    }
    Ok(())
}

fn at_least_one(option: &str, typed: Option<Count>, default: u64) -> Result<u32> {
    match typed.map_or(default, |count| count.0) {
        0 => Err(wrong_usage(format!("{option} 0 would send nothing: give at least 1"))),
        count => u32::try_from(count).map_err(|_| wrong_usage(format!("{option} {count} is too many: give fewer"))),
    }
}

fn keyspace_of(options: &ProtocolOptions) -> Result<Keyspace> {
    Ok(Keyspace {
        keys: options.keys.map_or(defaults::KEYS, |count| count.0),
        zipf_exponent: options.zipf.unwrap_or(0.0),
        value_bytes: options.value_size.map_or(defaults::VALUE_SIZE.0, |size| size.0),
        read_ratio: options.read_share.map_or(defaults::READ_SHARE.0, |share| share.0),
    })
}

/// The words of a command.
fn words(command: &str) -> Result<Vec<String>> {
    match shlex::split(command) {
        Some(words) if !words.is_empty() => Ok(words),
        _ => Err(wrong_usage(format!(
            "--command '{}' is no command: write it as 'GET key:{{key}}', with every quote closed",
            command.escape_debug()
        ))),
    }
}

/// The database in the URL's path.
fn database(target: &Target) -> Result<u32> {
    let path = target.path.trim_matches('/');
    if path.is_empty() {
        return Ok(0);
    }
    path.parse().map_err(|_| {
        wrong_usage(format!("'{}' is no database of Redis: write the URL as redis://HOST:PORT/0", path.escape_debug()))
    })
}

/// The bytes that a text with escapes stands for.
fn bytes(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes().iter().copied();
    let wrong = || {
        wrong_usage(format!(
            "--send '{}': after a backslash come r, n, t, 0, a backslash, or x and two hexadecimal digits",
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
    if out.is_empty() {
        return Err(wrong_usage("--send '' sends nothing: give at least one byte"));
    }
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
                    "--expect '{}' is no end of an answer: give line, a number of bytes, u16be or u32be",
                    number.escape_debug()
                )));
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::LoadOptions;

    fn plan(url: &str, options: ProtocolOptions) -> Result<Protocol> {
        protocol_plan(&Options { protocol: options, ..Options::default() }, &Target::parse(url)?)
    }

    #[test]
    fn a_url_and_its_options_make_a_plan() {
        let options = ProtocolOptions {
            command: vec!["SET 'a b:{key}' {value}".into()],
            pipeline: Some(Count(16)),
            ..Default::default()
        };
        let Protocol::Redis(redis) = plan("redis://u:p%40s@127.0.0.1:6380/3", options).unwrap() else {
            panic!("no Redis")
        };
        assert_eq!((redis.user.as_str(), redis.password.as_str(), redis.database, redis.pipeline), ("u", "p@s", 3, 16));
        assert_eq!(redis.commands, [["SET", "a b:{key}", "{value}"]]);
        let options =
            ProtocolOptions { send: Some(r"a\x00\r\n\\".into()), expect: Some("u16be".into()), ..Default::default() };
        let expected = TcpPlan { send: b"a\0\r\n\\".to_vec(), expect: Expect::U16be, pipeline: 1 };
        assert_eq!(plan("tcp://127.0.0.1:7", options).unwrap(), Protocol::Tcp(expected));
        let options = ProtocolOptions { connect_only: true, ..Default::default() };
        assert_eq!(plan("https://127.0.0.1:7", options).unwrap(), Protocol::Connect);
    }

    #[test]
    fn what_does_not_go_together_is_refused_by_name() {
        let none = ProtocolOptions::default;
        let sending = |text: &str| ProtocolOptions { send: Some(text.into()), ..none() };
        for (url, options, word) in [
            ("http://a/", ProtocolOptions { pipeline: Some(Count(2)), ..none() }, "--pipeline"),
            ("http://a/", ProtocolOptions { keys: Some(Count(2)), ..none() }, "--keys"),
            ("memcached://a", ProtocolOptions { command: vec!["GET a".into()], ..none() }, "--command"),
            ("redis://a", ProtocolOptions { command: vec!["GET 'a".into()], ..none() }, "quote"),
            ("redis://a", ProtocolOptions { pipeline: Some(Count(0)), ..none() }, "--pipeline 0"),
            ("redis://a/x", none(), "database"),
            ("tcp://a:1", none(), "--send"),
            ("tcp://a:1", ProtocolOptions { connect_only: true, ..sending("x") }, "--connect-only"),
            ("tcp://a:1", sending(r"\q"), "backslash"),
            ("tcp://a:1", sending(r"\x1"), "backslash"),
            ("tcp://a:1", ProtocolOptions { expect: Some("0".into()), ..sending("x") }, "--expect"),
        ] {
            let why = plan(url, options).unwrap_err().to_string();
            assert!(why.contains(word) && !why.contains('\n'), "{url}: {why}");
        }
        let load = LoadOptions { method: Some("PUT".into()), ..Default::default() };
        let options = Options { load, ..Options::default() };
        let why = protocol_plan(&options, &Target::parse("redis://a").unwrap()).unwrap_err().to_string();
        assert!(why.contains("--method is for HTTP, not for redis"), "{why}");
    }
}

use crate::error::{LoadError, refuse_if, wrong};
use record::LoadPlan;
use record::protocol::{Expect, Keyspace, Protocol};

const MAX_PIPELINE: u32 = 10_000;
const MAX_KEYS_PER_GET: u32 = 10_000;
/// Keys are drawn as floating-point numbers, which are exact up to here.
const MAX_KEYS: u64 = 1 << 53;
/// Maximum request bytes that may be in flight on a connection.
const MAX_PUT_BYTES: u64 = 1 << 30;

pub(super) fn check(plan: &LoadPlan) -> Result<(), LoadError> {
    let is_http_2 = plan.protocol.is_over_http_2();
    let (only, name) = if is_http_2 { ("HTTP/1.1", "HTTP/2") } else { ("HTTP", plan.protocol.scheme()) };
    let is_grpc = matches!(plan.protocol, Protocol::Grpc(_));
    let not_for_it = [
        ((!is_http_2 || is_grpc) && plan.workload.trace.is_some(), "a replayed log"),
        (!is_http_2 && (!plan.workload.weights.is_empty() || !plan.targets.is_empty()), "a list of URLs"),
        (!is_http_2 && !plan.workload.classes.is_empty(), "classes of size"),
        (!is_http_2 && plan.clients.pace_bytes_per_sec().is_some(), "a limited rate of reading"),
        (plan.clients.close_first.is_some(), "a choice of who closes first"),
        (plan.clients.tls.is_some() && matches!(plan.protocol, Protocol::Memcached(_) | Protocol::Tcp(_)), "TLS"),
    ];
    if let Some((_, what)) = not_for_it.iter().find(|(is_asked, _)| *is_asked) {
        return Err(wrong(format!("{what} applies to {only}, not to {name}: leave it out")));
    }
    let is_of_a_connection = |(name, _): &&(String, String)| {
        ["keep-alive", "proxy-connection", "upgrade"].iter().any(|other| name.eq_ignore_ascii_case(other))
    };
    if let Some((field, _)) = plan.headers.iter().find(is_of_a_connection).filter(|_| is_http_2) {
        return Err(wrong(format!("the header {field} applies to HTTP/1.1, not to HTTP/2: leave it out")));
    }
    let depth = plan.protocol.pipeline();
    refuse_if(
        depth > 1 && plan.workload.trace.is_some(),
        "each client of a log has one request in flight: use 1 stream",
    )?;
    refuse_if(
        depth > MAX_PIPELINE,
        format!("{depth} requests in flight per connection are too many: use at most {MAX_PIPELINE}"),
    )?;
    let request_bytes = match &plan.protocol {
        Protocol::Http => 0,
        Protocol::Connect => {
            refuse_if(
                plan.requests_per_connection != 1,
                "without requests, each connection counts as one: use 1 request per connection",
            )?;
            0
        }
        Protocol::Http2(_) | Protocol::Grpc(_) => plan.body.len() as u64 + 1000,
        Protocol::Redis(redis) => {
            refuse_if(
                redis.commands.iter().any(|words| words.first().is_none_or(String::is_empty)),
                "a command has no name: write it as 'GET key:{key}'",
            )?;
            check_keyspace(&redis.keyspace)?;
            let bytes = |word: &String| {
                word.len() as u64 + 32 + word.matches("{value}").count() as u64 * redis.keyspace.value_bytes
            };
            let longest = redis.commands.iter().map(|words| words.iter().map(bytes).sum::<u64>()).max();
            longest.unwrap_or(redis.keyspace.value_bytes + 100)
        }
        Protocol::Memcached(memcached) => {
            check_keyspace(&memcached.keyspace)?;
            refuse_if(
                memcached.keys_per_get > MAX_KEYS_PER_GET,
                format!("a get has at most {MAX_KEYS_PER_GET} keys: use fewer"),
            )?;
            (memcached.keyspace.value_bytes + 100).max(u64::from(memcached.keys_per_get) * 25)
        }
        Protocol::Tcp(tcp) => {
            refuse_if(tcp.send.is_empty(), "there is nothing to send: give at least one byte")?;
            refuse_if(tcp.expect == Expect::Bytes(0), "an answer cannot have 0 bytes: expect at least 1")?;
            tcp.send.len() as u64
        }
    };
    refuse_if(
        request_bytes.saturating_mul(u64::from(depth)) > MAX_PUT_BYTES,
        "the requests in flight on a connection exceed 1 GiB: use smaller values or fewer requests in flight",
    )?;
    Ok(())
}

fn check_keyspace(keyspace: &Keyspace) -> Result<(), LoadError> {
    refuse_if(
        keyspace.keys == 0 || keyspace.keys > MAX_KEYS,
        format!("{} is not a valid number of keys: use 1 to {MAX_KEYS}", keyspace.keys),
    )?;
    refuse_if(
        !(0.0..=100.0).contains(&keyspace.zipf_exponent),
        format!(
            "{} is not a valid exponent of Zipf's law: use 0 (all keys equally often) to 100",
            keyspace.zipf_exponent
        ),
    )?;
    refuse_if(
        !(0.0..=1.0).contains(&keyspace.read_ratio),
        format!("{} is not a valid share of reads: use 0 to 1", keyspace.read_ratio),
    )?;
    refuse_if(keyspace.value_bytes > 512 << 20, "the server accepts values of at most 512 MiB: use a smaller one")?;
    Ok(())
}

use super::{Found, found};
use crate::port_sockets::PortReader;
use record::machine::line;

pub fn socket_states() -> Found {
    match PortReader::open(None, 1) {
        Ok(reader @ PortReader::Diag(_)) => Ok(format!("by {}", reader.method())),
        Ok(reader) => Err((
            format!("only by {}, which costs several times as much", reader.method()),
            "load the kernel's modules: 'modprobe tcp_diag'",
        )),
        Err(error) => Err((error.to_string(), "mount /proc, or 'modprobe tcp_diag'")),
    }
}

pub fn port_range() -> Found {
    let range = line("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let bounds: Vec<u32> = range.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let count = match bounds[..] {
        [low, high] if high >= low => high - low + 1,
        _ => 0,
    };
    found(
        count >= 28_000,
        format!("{count} ({range})"),
        "few connections to one address at a time: 'sysctl net.ipv4.ip_local_port_range=\"1024 65535\"'",
    )
}

pub fn accept_queue() -> Found {
    let limit = line("/proc/sys/net/core/somaxconn").and_then(|text| text.parse::<u64>().ok());
    found(
        limit.is_some_and(|limit| limit >= 4096),
        limit.map_or("net.core.somaxconn cannot be read".into(), |limit| format!("net.core.somaxconn = {limit}")),
        "bursts of new connections are dropped early: 'sysctl net.core.somaxconn=4096'",
    )
}

pub fn descriptors() -> Found {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    found(
        hard.is_none_or(|hard| hard >= 16_384),
        hard.map_or("no limit".into(), |hard| format!("up to {hard} connections per process")),
        "few connections at a time: raise the hard limit (LimitNOFILE= of the service, or /etc/security/limits.conf)",
    )
}

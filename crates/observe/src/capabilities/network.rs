use super::scratch::{self, Probe};
use super::{Capability, is_root, line};
use crate::port_sockets::PortReader;
use std::fs;

pub fn socket_states() -> Capability {
    let name = "connection states";
    match PortReader::open(None, 1) {
        Ok(reader @ PortReader::Diag(_)) => Capability::there(name, format!("by {}", reader.method())),
        Ok(reader) => Capability::missing(
            name,
            format!("only by {}, which costs several times as much", reader.method()),
            "load the kernel's modules: 'modprobe tcp_diag'",
        ),
        Err(error) => Capability::missing(name, error.to_string(), "mount /proc, or 'modprobe tcp_diag'"),
    }
}

const NEEDS_ROOT: &str = "not tried: it needs root";
const RUN_AS_ROOT: &str = "run the doctor as root to know";

fn probed(name: &str, probe: Probe, there: &str, remedy: &str) -> Capability {
    if !is_root() {
        return Capability::missing(name, NEEDS_ROOT, RUN_AS_ROOT);
    }
    match scratch::try_in_new_namespace(probe) {
        Ok(()) => Capability::there(name, there),
        Err(error) => Capability::missing(name, refusal(&error), remedy),
    }
}

/// "No such file" or "not supported" mean that the kernel was built without this kind of device or queue.
fn refusal(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP) => "this kernel has none".into(),
        _ => format!("refused: {error}"),
    }
}

pub fn namespaces() -> Capability {
    probed(
        "network namespaces",
        Probe::Loopback,
        "client and server can have one each",
        "client and server share the machine's network stack and counters: use a kernel with CONFIG_NET_NS, outside of \
         a container without CAP_SYS_ADMIN and CAP_NET_ADMIN",
    )
}

pub fn veth() -> Capability {
    probed(
        "veth",
        Probe::Veth,
        "client and server can be joined by a separate link",
        "client and server cannot be separated: 'modprobe veth', or use a kernel with CONFIG_VETH",
    )
}

pub fn netem() -> Capability {
    probed(
        "netem",
        Probe::QueueDiscipline("netem"),
        "delay, loss and rate can be emulated by the kernel",
        "delay and loss are emulated in user space, which costs more CPU time: 'modprobe sch_netem', or use a kernel \
         with CONFIG_NET_SCH_NETEM",
    )
}

pub fn tun() -> Capability {
    let name = "TUN devices";
    let remedy = "without netem there is no wide-area path (--delay, --loss, --bandwidth): 'modprobe tun', as root, in \
                  a container with --device /dev/net/tun";
    match fs::File::options().read(true).write(true).open("/dev/net/tun") {
        Ok(_) => Capability::there(name, "a wide-area path can be made without netem"),
        Err(error) => Capability::missing(name, format!("/dev/net/tun: {error}"), remedy),
    }
}

pub fn fq() -> Capability {
    probed(
        "fq",
        Probe::QueueDiscipline("fq"),
        "TCP pacing is done by the queue",
        "pacing (also of BBR) falls back to timers in TCP: 'modprobe sch_fq', or use a kernel with CONFIG_NET_SCH_FQ",
    )
}

pub fn receive_steering() -> Capability {
    let there = fs::exists("/sys/class/net/lo/queues/rx-0/rps_cpus").unwrap_or(false);
    Capability::of(
        "receive packet steering",
        there,
        if there { "RPS is there" } else { "no rps_cpus in /sys/class/net" },
        "the client's CPU does the server's receive work: use a kernel with CONFIG_RPS",
    )
}

pub fn port_range() -> Capability {
    let name = "local ports";
    let range = line("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let bounds: Vec<u32> = range.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let count = match bounds[..] {
        [low, high] if high >= low => high - low + 1,
        _ => 0,
    };
    Capability::of(
        name,
        count >= 28_000,
        format!("{count} ({range})"),
        "fewer connections to one address: 'sysctl net.ipv4.ip_local_port_range=\"1024 65535\"'",
    )
}

pub fn accept_queue() -> Capability {
    let limit = line("/proc/sys/net/core/somaxconn").and_then(|text| text.parse::<u64>().ok());
    Capability::of(
        "accept queue",
        limit.is_some_and(|limit| limit >= 4096),
        limit.map_or("net.core.somaxconn cannot be read".into(), |limit| format!("net.core.somaxconn = {limit}")),
        "bursts of new connections are dropped early: 'sysctl net.core.somaxconn=4096'",
    )
}

pub fn descriptors() -> Capability {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let hard = limit.maximum;
    Capability::of(
        "open descriptors",
        hard.is_none_or(|hard| hard >= 16_384),
        hard.map_or("no limit".into(), |hard| format!("up to {hard} connections per process")),
        "fewer connections than that: raise the hard limit (LimitNOFILE= of the service, or /etc/security/limits.conf)",
    )
}

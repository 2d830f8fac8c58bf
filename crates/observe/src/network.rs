//! Counters of the network stack in the server's namespace: `/proc/net/{snmp,netstat,dev,softnet_stat}` and
//! `/proc/net/stat/nf_conntrack`.
//!
//! The files are opened inside the namespace and stay in it. `softnet_stat` covers the whole machine in any
//! namespace.

use crate::kept_file::{KeptFile, read};
use crate::proc_text::{
    parse_conntrack, parse_net_bytes, parse_net_dev, parse_protocol_counter, parse_softnet_drops,
    parse_softnet_squeezes,
};
use crate::processes::living_thread;
use record::machine::line;
use record::{PlainText, names};
use std::collections::BTreeMap;

/// Figures that are the rates of counters, with the counter's protocol and name in `snmp` or `netstat`.
const PROTOCOL_COUNTERS: [(&str, &str, &str); 7] = [
    (names::TCP_IN, "Tcp", "InSegs"),
    (names::TCP_OUT, "Tcp", "OutSegs"),
    (names::TCP_RETRANSMITS, "Tcp", "RetransSegs"),
    (names::TCP_RESETS_OUT, "Tcp", "OutRsts"),
    (names::TCP_LISTEN_OVERFLOWS, "TcpExt", "ListenOverflows"),
    (names::TCP_LISTEN_DROPS, "TcpExt", "ListenDrops"),
    (names::TIME_WAIT_OVERFLOWS, "TcpExt", "TCPTimeWaitOverflow"),
];

/// Such figures with counters in other files.
const OTHER_COUNTERS: [&str; 5] = [
    names::NET_PACKETS_IN,
    names::NET_PACKETS_OUT,
    names::NET_BACKLOG_DROPS,
    names::NET_CONNTRACK_DROPS,
    names::NET_SQUEEZES,
];

/// The figures that are rates of [`NetworkReading::counts`].
pub fn rates() -> impl Iterator<Item = &'static str> {
    PROTOCOL_COUNTERS.iter().map(|(figure, ..)| *figure).chain(OTHER_COUNTERS)
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkReading {
    /// Counters by the figure that is their rate; those that the kernel does not show are absent.
    pub counts: BTreeMap<&'static str, u64>,
    /// Tracked connections, of all CPUs.
    pub tracked: Option<u64>,
    /// Devices with known speed.
    pub links: Vec<NetworkDevice>,
}

impl NetworkReading {
    /// How much a counter has grown since an earlier reading.
    pub fn grown(&self, earlier: &Self, figure: &str) -> Option<u64> {
        Some(self.counts.get(figure)?.saturating_sub(*earlier.counts.get(figure)?))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkDevice {
    /// Its name; untrusted text.
    pub name: PlainText,
    /// Bits per second.
    pub speed: u64,
    pub received: u64,
    pub sent: u64,
}

#[derive(Debug, Default)]
pub struct NetworkReader {
    snmp: Option<KeptFile>,
    netstat: Option<KeptFile>,
    dev: Option<KeptFile>,
    softnet: Option<KeptFile>,
    conntrack: Option<KeptFile>,
    speeds: BTreeMap<String, u64>,
    buffer: Vec<u8>,
}

impl NetworkReader {
    pub fn open(pid: Option<u32>) -> Self {
        let folder =
            pid.map_or_else(|| "/proc/thread-self/net".to_string(), |pid| format!("/proc/{}/net", living_thread(pid)));
        let open = |name: &str| KeptFile::open(format!("{folder}/{name}")).ok();
        NetworkReader {
            snmp: open("snmp"),
            netstat: open("netstat"),
            dev: open("dev"),
            softnet: open("softnet_stat"),
            conntrack: open("stat/nf_conntrack"),
            speeds: speeds(pid),
            buffer: Vec::new(),
        }
    }

    pub fn read(&mut self) -> NetworkReading {
        let mut reading = NetworkReading::default();
        let mut count = |figure, number: Option<u64>| reading.counts.extend(number.map(|number| (figure, number)));
        for (file, of) in [(&self.snmp, "Tcp"), (&self.netstat, "TcpExt")] {
            let Some(text) = read(file, &mut self.buffer) else { continue };
            for (figure, protocol, name) in PROTOCOL_COUNTERS.iter().filter(|(_, protocol, _)| *protocol == of) {
                count(figure, parse_protocol_counter(text, protocol, name));
            }
        }
        if let Some(text) = read(&self.softnet, &mut self.buffer) {
            count(names::NET_BACKLOG_DROPS, parse_softnet_drops(text));
            count(names::NET_SQUEEZES, parse_softnet_squeezes(text));
        }
        if let Some((entries, drops)) = read(&self.conntrack, &mut self.buffer).and_then(parse_conntrack) {
            count(names::NET_CONNTRACK_DROPS, Some(drops));
            reading.tracked = Some(entries);
        }
        if let Some(text) = read(&self.dev, &mut self.buffer) {
            let (received, sent) = parse_net_dev(text).unzip();
            count(names::NET_PACKETS_IN, received);
            count(names::NET_PACKETS_OUT, sent);
            if !self.speeds.is_empty() {
                let link = |(name, received, sent): (String, u64, u64)| {
                    let speed = *self.speeds.get(&name)?;
                    Some(NetworkDevice { name: name.as_str().into(), speed, received, sent })
                };
                reading.links = parse_net_bytes(text).into_iter().filter_map(link).collect();
            }
        }
        reading
    }
}

/// Connections that the programs of a network namespace could not open, since the namespace began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailedConnections {
    /// TCP connections that were refused or timed out (`AttemptFails` of `/proc/net/snmp`).
    pub refused: u64,
    /// Packets to addresses without a route, among them the first of TCP connections and DNS questions (`OutNoRoutes`).
    pub unrouted: u64,
}

impl FailedConnections {
    /// Those of the calling thread's network namespace.
    pub fn here() -> FailedConnections {
        let text = std::fs::read("/proc/thread-self/net/snmp").unwrap_or_default();
        let count = |protocol, counter| parse_protocol_counter(&text, protocol, counter).unwrap_or(0);
        FailedConnections { refused: count("Tcp", "AttemptFails"), unrouted: count("Ip", "OutNoRoutes") }
    }
}

/// Maximum entries of the table of tracked connections, which all network namespaces share.
pub fn conntrack_limit() -> Option<u64> {
    line("/proc/sys/net/netfilter/nf_conntrack_max")?.parse().ok().filter(|most| *most > 0)
}

/// Speeds of physical devices. `/sys/class/net` shows only those of the caller's namespace, and the 10 Gbit/s of a
/// veth pair are not real, so a server in a separate namespace has none.
fn speeds(pid: Option<u32>) -> BTreeMap<String, u64> {
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/net")).ok();
    if pid.is_some_and(|pid| namespace(&pid.to_string()) != namespace("thread-self")) {
        return BTreeMap::new();
    }
    let Ok(devices) = std::fs::read_dir("/sys/class/net") else { return BTreeMap::new() };
    let speed = |folder: &std::path::Path| {
        let text = folder.join("device").exists().then(|| std::fs::read_to_string(folder.join("speed")).ok())??;
        text.trim().parse::<u64>().ok().filter(|mbit| *mbit > 0).map(|mbit| mbit.saturating_mul(1_000_000))
    };
    let devices = devices.flatten().take(64);
    devices
        .filter_map(|entry| Some((entry.file_name().to_string_lossy().into_owned(), speed(&entry.path())?)))
        .collect()
}

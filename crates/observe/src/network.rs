//! Counters of the network stack in the server's namespace: `/proc/net/{snmp,netstat,dev,softnet_stat}`.
//!
//! The files are opened inside the namespace and stay in it. `softnet_stat` is of the whole machine, whatever the
//! namespace.

use crate::kept_file::KeptFile;
use crate::proc_text::{PacketCounts, parse_net_dev, parse_protocol_counter, parse_softnet_drops};

/// What is missing is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkReading {
    /// `Tcp: InSegs`.
    pub segments_in: Option<u64>,
    /// `Tcp: OutSegs`.
    pub segments_out: Option<u64>,
    /// `Tcp: RetransSegs`.
    pub retransmits: Option<u64>,
    /// `Tcp: OutRsts`.
    pub resets_out: Option<u64>,
    /// `TcpExt: ListenOverflows`.
    pub listen_overflows: Option<u64>,
    /// `TcpExt: ListenDrops`.
    pub listen_drops: Option<u64>,
    /// Packets of all interfaces.
    pub packets: Option<PacketCounts>,
    /// Packets dropped by the backlog queues of all CPUs.
    pub backlog_drops: Option<u64>,
}

/// The open files of one namespace.
#[derive(Debug, Default)]
pub struct NetworkReader {
    snmp: Option<KeptFile>,
    netstat: Option<KeptFile>,
    dev: Option<KeptFile>,
    softnet: Option<KeptFile>,
    buffer: Vec<u8>,
}

impl NetworkReader {
    /// Opens the files of the namespace that the process `pid` is in, or the calling thread.
    pub fn open(pid: Option<u32>) -> Self {
        let folder = pid.map_or_else(|| "/proc/thread-self/net".to_string(), |pid| format!("/proc/{pid}/net"));
        let open = |name: &str| KeptFile::open(format!("{folder}/{name}")).ok();
        NetworkReader {
            snmp: open("snmp"),
            netstat: open("netstat"),
            dev: open("dev"),
            softnet: open("softnet_stat"),
            buffer: Vec::new(),
        }
    }

    /// Reads the counters now.
    pub fn read(&mut self) -> NetworkReading {
        let mut reading = NetworkReading::default();
        if let Some(text) = read(&self.snmp, &mut self.buffer) {
            let tcp = |counter| parse_protocol_counter(text, "Tcp", counter);
            reading.segments_in = tcp("InSegs");
            reading.segments_out = tcp("OutSegs");
            reading.retransmits = tcp("RetransSegs");
            reading.resets_out = tcp("OutRsts");
        }
        if let Some(text) = read(&self.netstat, &mut self.buffer) {
            let extended = |counter| parse_protocol_counter(text, "TcpExt", counter);
            reading.listen_overflows = extended("ListenOverflows");
            reading.listen_drops = extended("ListenDrops");
        }
        reading.packets = read(&self.dev, &mut self.buffer).and_then(parse_net_dev);
        reading.backlog_drops = read(&self.softnet, &mut self.buffer).and_then(parse_softnet_drops);
        reading
    }
}

fn read<'a>(file: &Option<KeptFile>, buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    file.as_ref()?.read(buffer).ok()
}

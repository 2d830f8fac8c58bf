//! Layout: include/uapi/linux/{pkt_sched,gen_stats,rtnetlink,if_link}.h.

use super::{IFLA_IFALIAS, Route, RouteRequest, link_index};
use record::PathPlan;
use record::path::MTU_BYTES;
use std::io;
use std::net::IpAddr;

#[derive(Clone, Copy)]
struct Qdisc {
    handle: u32,
    parent: u32,
}

const DELAY: Qdisc = Qdisc { handle: 0x1_0000, parent: 0xffff_ffff };
const LIMIT: Qdisc = Qdisc { handle: 0x2_0000, parent: 0x1_0001 };
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
/// A 64-bit packet count (Linux 5.5). The basic counter has 32 bits.
const TCA_STATS_PKT64: u16 = 8;
const TCA_NETEM_RATE: u16 = 6;
const TCA_NETEM_RATE64: u16 = 8;
pub const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_PRNG_SEED: u16 = 14;
/// `struct tc_netem_qopt`: latency, limit, loss, gap, duplicate, jitter.
pub const NETEM_OPTIONS_BYTES: usize = 24;
/// netem counts a veth's Ethernet header as part of a packet; a path counts from the IP header on.
const ETHERNET_HEADER_BYTES: i32 = 14;
/// Minimum capacity for delayed packets. netem limits their number, which must never limit the path. With a
/// bandwidth, the capacity is computed from the smallest packets (IPv4 and UDP header).
const DELAYED_PACKETS: f64 = 200_000.0;
const SMALLEST_PACKET_BYTES: f64 = 28.0;
/// Maximum capacity that is requested from netem.
const MOST_PACKETS: f64 = 4e6;
const FEWEST_PACKETS: f64 = 20.0;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTAX_QUICKACK: u16 = 15;
const IPV6_KERNEL_METRIC: u32 = 256;

const IFLA_STATS64: u16 = 23;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetemCounts {
    /// Packets that left it, each segment counted. Wraps around at 32 bits on old kernels.
    pub packets: u64,
    /// Packets lost as planned, or dropped because the queue was full; netem does not distinguish them. Wraps around at
    /// 32 bits.
    pub dropped: u64,
    /// Whether its losses follow the plan's seed (Linux 6.6 and later).
    pub is_seeded: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkDrops {
    /// Incoming packets that a full backlog of the receiver dropped.
    pub received: u64,
    /// Dropped outgoing packets. A veth includes drops of the other end's backlog.
    pub sent: u64,
}

impl RouteRequest {
    /// `struct tcmsg`.
    fn queueing(&mut self, index: u32, place: Qdisc) {
        self.bytes.extend_from_slice(&[libc::AF_UNSPEC as u8, 0, 0, 0]);
        self.words(&[index, place.handle, place.parent, 0]);
    }
}

fn netem_options(limit: f64, loss_ratio: f64) -> RouteRequest {
    let mut options = RouteRequest { bytes: Vec::with_capacity(96) };
    let loss = (loss_ratio * f64::from(u32::MAX)).round() as u32;
    options.words(&[0, limit.ceil().min(MOST_PACKETS) as u32, loss, 0, 0, 0]);
    options
}

pub fn delay_options(plan: &PathPlan, direction: u64) -> RouteRequest {
    let under_way_bytes = plan.bandwidth_bits_per_sec as f64 / 8.0 * plan.delay_ns as f64 / 1e9;
    let mut options = netem_options(DELAYED_PACKETS.max(under_way_bytes / SMALLEST_PACKET_BYTES), plan.loss_ratio);
    options.attribute(TCA_NETEM_LATENCY64, &(plan.delay_ns as i64).to_ne_bytes());
    options.attribute(TCA_NETEM_PRNG_SEED, &(plan.seed ^ (direction << 63)).to_ne_bytes());
    options
}

/// Options of the netem below it, which limits the bandwidth. Its queue is counted in full packets.
pub fn limit_options(plan: &PathPlan) -> RouteRequest {
    let mut options = netem_options((plan.queue_bytes as f64 / MTU_BYTES as f64).max(FEWEST_PACKETS), 0.0);
    let bytes_per_sec = (plan.bandwidth_bits_per_sec / 8).max(1);
    let mut rate = Vec::with_capacity(16);
    rate.extend_from_slice(&u32::try_from(bytes_per_sec).unwrap_or(u32::MAX).to_ne_bytes());
    rate.extend_from_slice(&(-ETHERNET_HEADER_BYTES).to_ne_bytes());
    rate.extend_from_slice(&[0; 8]);
    options.attribute(TCA_NETEM_RATE, &rate);
    if bytes_per_sec > u64::from(u32::MAX) {
        options.attribute(TCA_NETEM_RATE64, &bytes_per_sec.to_ne_bytes());
    }
    options
}

impl Route {
    pub fn add_netem(&self, link: &str, plan: &PathPlan, direction: u64) -> io::Result<()> {
        self.set_netem(link_index(link)?, plan, direction)
    }

    /// Like [`add_netem`](Self::add_netem), for a link in this socket's namespace. An existing netem is reconfigured.
    pub fn set_netem(&self, index: u32, plan: &PathPlan, direction: u64) -> io::Result<()> {
        self.queue(index, DELAY, "netem", &delay_options(plan, direction).bytes)?;
        if plan.bandwidth_bits_per_sec > 0 {
            self.queue(index, LIMIT, "netem", &limit_options(plan).bytes)?;
        }
        Ok(())
    }

    pub fn add_fq(&self, link: &str) -> io::Result<()> {
        self.queue(link_index(link)?, DELAY, "fq", &[])
    }

    fn queue(&self, index: u32, place: Qdisc, kind: &str, options: &[u8]) -> io::Result<()> {
        let mut request = RouteRequest::new(libc::RTM_NEWQDISC, libc::NLM_F_CREATE | libc::NLM_F_REPLACE);
        request.queueing(index, place);
        request.text(TCA_KIND, kind);
        request.attribute(TCA_OPTIONS, options);
        self.execute(request)
    }

    /// Counts of the link's netem, including those of the limiting netem.
    pub fn netem_counts(&self, index: u32) -> io::Result<NetemCounts> {
        // Without ECHO the kernel notifies all listeners but the sender.
        let mut request = RouteRequest::new(libc::RTM_GETQDISC, libc::NLM_F_ECHO);
        request.queueing(index, DELAY);
        let reply = self.query(request)?;
        let mut counts = NetemCounts::default();
        for (kind, payload) in attributes(reply.get(36..).unwrap_or_default()) {
            match kind {
                TCA_OPTIONS => {
                    let more = attributes(payload.get(NETEM_OPTIONS_BYTES..).unwrap_or_default());
                    counts.is_seeded = more.into_iter().any(|(kind, _)| kind == TCA_NETEM_PRNG_SEED);
                }
                TCA_STATS2 => {
                    for (kind, payload) in attributes(payload) {
                        match kind {
                            TCA_STATS_BASIC => counts.packets = u64::from(number32(payload, 8)),
                            // This attribute comes after the basic counters.
                            TCA_STATS_PKT64 => counts.packets = number64(payload, 0),
                            TCA_STATS_QUEUE => counts.dropped = u64::from(number32(payload, 8)),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(counts)
    }

    pub fn link_drops(&self, index: u32) -> io::Result<LinkDrops> {
        let mut request = RouteRequest::new(libc::RTM_GETLINK, 0);
        request.link(index, 0);
        let statistics = self.link_attribute(request, IFLA_STATS64)?;
        // `struct rtnl_link_stats64`: field 7 is rx_dropped, field 8 tx_dropped.
        Ok(LinkDrops { received: number64(&statistics, 48), sent: number64(&statistics, 56) })
    }

    /// The alias of a link; empty without one.
    pub fn alias(&self, link: &str) -> io::Result<String> {
        let alias = self.link_attribute(RouteRequest::about_link(libc::RTM_GETLINK, link)?, IFLA_IFALIAS)?;
        Ok(String::from_utf8_lossy(&alias).trim_end_matches('\0').into())
    }

    /// An attribute in the answer to RTM_GETLINK; empty without it.
    fn link_attribute(&self, request: RouteRequest, wanted: u16) -> io::Result<Vec<u8>> {
        let reply = self.query(request)?;
        let found = attributes(reply.get(32..).unwrap_or_default()).into_iter().find(|(kind, _)| *kind == wanted);
        Ok(found.map_or_else(Vec::new, |(_, payload)| payload.to_vec()))
    }

    /// Makes connections over the network of `address` acknowledge every segment at once. Replaces the kernel's route
    /// for the address by one with the metric `quickack` (tcp_in_quickack_mode in net/ipv4/tcp_input.c).
    pub fn acknowledge_at_once(&self, link: &str, address: IpAddr, prefix_bits: u8) -> io::Result<()> {
        let mut request = RouteRequest::new(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE);
        let (family, own, network) = match address {
            IpAddr::V4(own) => {
                let mask = u32::MAX << (32 - u32::from(prefix_bits));
                (libc::AF_INET, own.octets().to_vec(), (u32::from(own) & mask).to_be_bytes().to_vec())
            }
            IpAddr::V6(own) => {
                let mask = u128::MAX << (128 - u32::from(prefix_bits));
                (libc::AF_INET6, own.octets().to_vec(), (u128::from(own) & mask).to_be_bytes().to_vec())
            }
        };
        // `struct rtmsg`: family, length of destination and source, type of service, table, protocol, scope, type,
        // flags.
        request.bytes.extend_from_slice(&[
            family as u8,
            prefix_bits,
            0,
            0,
            libc::RT_TABLE_MAIN,
            libc::RTPROT_KERNEL,
            libc::RT_SCOPE_LINK,
            libc::RTN_UNICAST,
        ]);
        request.words(&[0]);
        request.attribute(RTA_DST, &network);
        request.attribute(RTA_OIF, &link_index(link)?.to_ne_bytes());
        if address.is_ipv4() {
            request.attribute(RTA_PREFSRC, &own);
        } else {
            request.attribute(RTA_PRIORITY, &IPV6_KERNEL_METRIC.to_ne_bytes());
        }
        request.nested(RTA_METRICS, |metrics| metrics.attribute(RTAX_QUICKACK, &1u32.to_ne_bytes()));
        self.execute(request)
    }
}

pub fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let Some(&[a, b, c, d]) = bytes.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let kind = u16::from_ne_bytes([c, d]) & 0x3fff;
        let Some(payload) = bytes.get(4..length) else { break };
        found.push((kind, payload));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

pub fn number32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn number64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

//! Checks a path from the side of its users, with any mechanism.

use crate::error::{DuringStep, WanError};
use crate::namespace::NetNamespace;
use record::path::MTU_BYTES;
use record::units::{format_bits_per_sec, format_nanos};
use record::{Doubt, DoubtKind, PathPlan};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const PINGS: u16 = 10;
const PING_GAP: Duration = Duration::from_millis(5);
/// A configured loss from which on it may explain that no ping was answered: once in 30,000 tests.
const LOSSY: f64 = 0.2;
/// IPv4 header, ICMP header and payload: the size of a `ping`.
const PING_BYTES: u64 = 84;
/// Answers that take longer count as lost.
const TIMEOUT: Duration = Duration::from_millis(300);
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
const TRAIN_NS: f64 = 100e6;
const TRAIN_PACKETS: std::ops::RangeInclusive<u64> = 8..=20_000;
/// UDP payload that fills the MTU over IPv4.
const TRAIN_PAYLOAD_BYTES: usize = MTU_BYTES as usize - 28;
const ROUND_TRIP_TOLERANCE_NS: f64 = 300_000.0;
const ROUND_TRIP_TOLERANCE_RATIO: f64 = 0.02;
const BANDWIDTH_TOLERANCE: f64 = 0.05;
/// Minimum speed of sending a train, as a multiple of the bandwidth. A slower train shows its own speed instead of
/// the bandwidth.
const SENT_FASTER: f64 = 1.2;
/// The ioctl that returns the arrival time of the last packet that was read from a socket (linux/sockios.h).
const SIOCGSTAMPNS: libc::c_ulong = 0x8907;

/// The result of a self-test.
#[derive(Debug, Clone, PartialEq)]
pub struct SelfTest {
    /// The path that was tested.
    pub plan: PathPlan,
    /// Round trips of the answered pings in nanoseconds, ascending.
    pub round_trips_ns: Vec<u64>,
    /// Bits of IP packets per second at which a train arrived from client to server; `None` without a planned
    /// bandwidth, if too few packets came, or if they were sent too slowly.
    pub bits_per_sec: Option<f64>,
    /// Rate at which the train was sent, if that is too slow to show the bandwidth.
    pub sent_too_slowly_bits_per_sec: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
pub struct Train {
    pub sent_bits_per_sec: f64,
    /// `None` if too few packets arrived.
    pub arrived_bits_per_sec: Option<f64>,
}

impl Train {
    /// The bandwidth that the train shows, or else the rate at which it was sent.
    pub fn bandwidth(&self, asked: f64) -> (Option<f64>, Option<f64>) {
        let is_slow = self.sent_bits_per_sec < SENT_FASTER * asked;
        match self.arrived_bits_per_sec {
            Some(seen) if is_slow && seen < asked * (1.0 - BANDWIDTH_TOLERANCE) => (None, Some(self.sent_bits_per_sec)),
            seen => (seen, None),
        }
    }
}

impl SelfTest {
    /// Median round trip in nanoseconds.
    pub fn round_trip_ns(&self) -> Option<u64> {
        self.round_trips_ns.get(self.round_trips_ns.len() / 2).copied()
    }

    /// The result and the plan as text, such as `round trip 40.1 ms (planned 40.0 ms)`.
    pub fn summary(&self) -> String {
        let seen = self.round_trip_ns().map_or("not seen".to_string(), |nanos| format_nanos(nanos as f64));
        let mut words = format!("round trip {seen} (planned {})", format_nanos(self.plan.round_trip_ns(PING_BYTES)));
        if self.plan.bandwidth_bits_per_sec > 0 {
            let seen = match self.sent_too_slowly_bits_per_sec {
                Some(sent) => format!("not measured, because the test sends only {}", format_bits_per_sec(sent)),
                None => self.bits_per_sec.map_or("not seen".to_string(), format_bits_per_sec),
            };
            let asked = format_bits_per_sec(self.plan.bandwidth_bits_per_sec as f64);
            words.push_str(&format!(", bandwidth {seen} (planned {asked})"));
        }
        words
    }

    /// A doubt for each deviation from the plan.
    pub fn doubts(&self) -> Vec<Doubt> {
        let mut wrong = Vec::new();
        let asked = self.plan.round_trip_ns(PING_BYTES);
        let tolerance_ns = ROUND_TRIP_TOLERANCE_NS + ROUND_TRIP_TOLERANCE_RATIO * asked;
        match self.round_trip_ns() {
            None if self.plan.loss_ratio > LOSSY => {}
            None => wrong.push(format!("none of {PINGS} pings over the path was answered")),
            Some(seen) if (seen as f64 - asked).abs() > tolerance_ns => wrong.push(format!(
                "a ping over the path takes {} instead of {}",
                format_nanos(seen as f64),
                format_nanos(asked)
            )),
            Some(_) => {}
        }
        let asked = self.plan.bandwidth_bits_per_sec as f64;
        if asked > 0.0 {
            match self.bits_per_sec {
                None if self.sent_too_slowly_bits_per_sec.is_some() || self.plan.loss_ratio > LOSSY => {}
                None => wrong.push("a train of packets did not arrive over the path".into()),
                Some(seen) if (seen / asked - 1.0).abs() > BANDWIDTH_TOLERANCE => wrong.push(format!(
                    "the path's bandwidth is {} instead of {}",
                    format_bits_per_sec(seen),
                    format_bits_per_sec(asked)
                )),
                Some(_) => {}
            }
        }
        let doubt = |what| {
            DoubtKind::PathInexact
                .warning(what, "use an idle machine, give client and server separate CPUs, or use a kernel with netem")
        };
        wrong.into_iter().map(doubt).collect()
    }
}

/// Interval between pings. On a slow link a ping must not wait for the previous one.
fn gap(plan: &PathPlan) -> Duration {
    PING_GAP.max(Duration::from_nanos(2 * (plan.round_trip_ns(PING_BYTES) as u64 / 2 - plan.delay_ns)))
}

pub(crate) type ShouldStop<'a> = &'a (dyn Fn() -> bool + Sync);

pub(crate) fn run(
    plan: &PathPlan,
    client: &NetNamespace,
    server: &NetNamespace,
    address: IpAddr,
    should_stop: ShouldStop<'_>,
) -> Result<SelfTest, WanError> {
    let receiver = server.run_inside(|| UdpSocket::bind((address, 0)).during("receive packets over the path"))?;
    // The first request for a time stamp makes the kernel take them from some later moment on (net_enable_timestamp
    // defers it), so it comes before the pings.
    arrival_ns(&receiver);
    let mut round_trips_ns = client.run_inside(|| ping(plan, address, should_stop))?;
    round_trips_ns.sort_unstable();
    let mut tested =
        SelfTest { plan: plan.clone(), round_trips_ns, bits_per_sec: None, sent_too_slowly_bits_per_sec: None };
    if plan.bandwidth_bits_per_sec > 0 {
        let train = train(plan, client, &receiver, should_stop)?;
        (tested.bits_per_sec, tested.sent_too_slowly_bits_per_sec) =
            train.bandwidth(plan.bandwidth_bits_per_sec as f64);
    }
    Ok(tested)
}

/// Returns the round trips of the answered pings. The kernel answers them, so no process of the other
/// side takes part.
fn ping(plan: &PathPlan, to: IpAddr, should_stop: ShouldStop<'_>) -> Result<Vec<u64>, WanError> {
    let what = "ping over the path";
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::ICMP))
            .during(what)?;
    let identifier = (std::process::id() as u16).to_be_bytes();
    let expected = Duration::from_nanos(plan.round_trip_ns(PING_BYTES) as u64);
    let gap = gap(plan);
    let mut sent = vec![None; usize::from(PINGS)];
    let mut round_trips = Vec::new();
    let end = Instant::now() + gap * u32::from(PINGS) + expected * 2 + TIMEOUT;
    let mut next = 0u16;
    let mut next_at = Instant::now();
    while round_trips.len() < sent.len() && Instant::now() < end {
        if should_stop() {
            return Err(WanError::Stopped);
        }
        if next < PINGS && Instant::now() >= next_at {
            sent[usize::from(next)] = Some(Instant::now());
            rustix::net::sendto(&socket, &echo_request(identifier, next), SendFlags::empty(), &SocketAddr::new(to, 0))
                .during(what)?;
            next += 1;
            next_at += gap;
        }
        let wait = if next < PINGS { next_at.min(end) } else { end }.saturating_duration_since(Instant::now());
        rustix::net::sockopt::set_socket_timeout(
            &socket,
            rustix::net::sockopt::Timeout::Recv,
            Some(wait.clamp(Duration::from_micros(1), CHECK_INTERVAL)),
        )
        .during(what)?;
        let mut answer = [0u8; 256];
        match rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty()) {
            Ok((length, _)) => {
                let now = Instant::now();
                let number = echo_reply(&answer[..length.min(256)], identifier);
                let slot = number.and_then(|number| sent.get_mut(usize::from(number)));
                if let Some(at) = slot.and_then(Option::take) {
                    round_trips.push(now.duration_since(at).as_nanos() as u64);
                }
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno).during(what),
        }
    }
    Ok(round_trips)
}

/// An ICMP echo request (RFC 792): type 8, code 0, checksum, identifier, sequence number, 56 bytes of payload.
pub fn echo_request(identifier: [u8; 2], number: u16) -> [u8; 64] {
    let mut packet = [0u8; 64];
    packet[0] = 8;
    packet[4..6].copy_from_slice(&identifier);
    packet[6..8].copy_from_slice(&number.to_be_bytes());
    let sum: u32 = packet.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    packet[2..4].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    packet
}

/// The sequence number of an echo reply to this process. A raw socket also returns the IP header.
pub fn echo_reply(packet: &[u8], identifier: [u8; 2]) -> Option<u16> {
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let icmp = packet.get(header..header + 8)?;
    (icmp[0] == 0 && icmp[4..6] == identifier).then(|| u16::from_be_bytes([icmp[6], icmp[7]]))
}

/// Sends a train of full packets and measures how fast they arrive, by the receiving kernel's time stamps. As many
/// packets arrive as the link's queue holds.
fn train(
    plan: &PathPlan,
    client: &NetNamespace,
    receiver: &UdpSocket,
    should_stop: ShouldStop<'_>,
) -> Result<Train, WanError> {
    let what = "send packets over the path";
    let bandwidth = plan.bandwidth_bits_per_sec as f64;
    let fitting = plan.queue_bytes / MTU_BYTES * 9 / 10;
    let wanted = (bandwidth / 8.0 * TRAIN_NS / 1e9 / MTU_BYTES as f64) as u64;
    let arriving = wanted.max(*TRAIN_PACKETS.start()).min(fitting.max(*TRAIN_PACKETS.start()));
    let packets = ((arriving as f64 / (1.0 - plan.loss_ratio)).ceil() as u64).min(*TRAIN_PACKETS.end());
    let sender = client.run_inside(|| UdpSocket::bind(("0.0.0.0", 0)).during(what))?;
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(receiver, packets as usize * 4096);
    let to = receiver.local_addr().during(what)?;
    let payload = [0u8; TRAIN_PAYLOAD_BYTES];
    let began = Instant::now();
    for _ in 0..packets {
        match sender.send_to(&payload, to) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // The queue is full; enough packets have passed.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Err(error) => return Err(error).during(what),
        }
    }
    let rate = |packets: u64, nanos: u64| packets as f64 * MTU_BYTES as f64 * 8e9 / nanos.max(1) as f64;
    let mut train =
        Train { sent_bits_per_sec: rate(packets, began.elapsed().as_nanos() as u64), arrived_bits_per_sec: None };
    let longest = packets as f64 * MTU_BYTES as f64 * 8e9 / bandwidth + plan.delay_ns as f64;
    let end = Instant::now() + Duration::from_nanos((longest * 1.5) as u64) + TIMEOUT;
    // After the first packet the others follow closely, except lost ones. So the wait is only as long as a few
    // packets take.
    let quiet = Duration::from_nanos((20.0 * MTU_BYTES as f64 * 8e9 / bandwidth) as u64) + Duration::from_millis(100);
    let mut buffer = [0u8; TRAIN_PAYLOAD_BYTES];
    let (mut received, mut first, mut last, mut until) = (0u64, None, None, end);
    while received < packets {
        if should_stop() {
            return Err(WanError::Stopped);
        }
        let wait = until.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            break;
        }
        receiver.set_read_timeout(Some(wait.min(CHECK_INTERVAL))).during(what)?;
        match receiver.recv(&mut buffer) {
            Ok(_) => {
                received += 1;
                let at = arrival_ns(receiver);
                first = first.or(at);
                last = at;
                until = end.min(Instant::now() + quiet);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => break,
        }
    }
    if let (Some(first), Some(last)) = (first, last)
        && received >= 3
        && last > first
    {
        train.arrived_bits_per_sec = Some(rate(received - 1, last - first));
    }
    Ok(train)
}

fn arrival_ns(socket: &UdpSocket) -> Option<u64> {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a live timespec, as SIOCGSTAMPNS requires.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSTAMPNS as libc::Ioctl, &mut at) } == 0;
    done.then(|| at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64)
}

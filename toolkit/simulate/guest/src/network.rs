//! Two network namespaces and the link between them.

use crate::{Outcome, because, sys};
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

pub const CLIENT: &str = "client";
pub const SERVER: &str = "server";
pub const CLIENT_LINK: &str = "c0";
pub const SERVER_LINK: &str = "s0";
pub const CLIENT_ADDRESS: &str = "10.0.0.1";
pub const SERVER_ADDRESS: &str = "10.0.0.2";

/// ETHTOOL_STSO, ETHTOOL_SGSO: the stack splits segments, so that a packet is a segment.
const SPLITTING: [u32; 2] = [0x1f, 0x24];
/// ETHTOOL_SGRO: without it veth has no NAPI, and so no receiving thread.
const JOINING: u32 = 0x2c;

/// Runs a program in the guest to its end.
pub fn run(line: &str) -> Outcome<()> {
    let mut words = line.split(' ');
    let program = words.next().unwrap_or_default();
    let output = Command::new(format!("/bin/{program}")).args(words).output().map_err(because(program))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("'{line}' in the guest: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Runs a closure within a namespace, in a separate thread.
pub fn within<T: Send>(namespace: &str, what: impl FnOnce() -> Outcome<T> + Send) -> Outcome<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            sys::enter_namespace(namespace)?;
            what()
        });
        thread.join().unwrap_or_else(|_| Err("a thread of the guest died".into()))
    })
}

pub fn lay() -> Outcome<()> {
    run(&format!("ip netns add {CLIENT}"))?;
    run(&format!("ip netns add {SERVER}"))?;
    run(&format!("ip link add {CLIENT_LINK} netns {CLIENT} type veth peer name {SERVER_LINK} netns {SERVER}"))?;
    for (namespace, link, address) in [(CLIENT, CLIENT_LINK, CLIENT_ADDRESS), (SERVER, SERVER_LINK, SERVER_ADDRESS)] {
        for line in [
            format!("ip -n {namespace} link set lo up"),
            format!("ip -n {namespace} addr add {address}/24 dev {link}"),
            format!("ip -n {namespace} link set {link} up"),
            // Every segment is acknowledged at once, as in the paper, so there are as many acknowledgements as
            // segments.
            format!("ip -n {namespace} route change 10.0.0.0/24 dev {link} src {address} quickack 1"),
        ] {
            run(&line)?;
        }
        within(namespace, || {
            SPLITTING.iter().try_for_each(|feature| sys::switch(link, *feature, false))?;
            sys::switch(link, JOINING, true)?;
            receive_in_a_thread(namespace, link)
        })?;
    }
    Ok(())
}

/// A separate thread handles the packets that the link receives, so that their receiver is known.
fn receive_in_a_thread(namespace: &str, link: &str) -> Outcome<()> {
    // A mount of sysfs shows the interfaces of the namespace in which it was mounted.
    let folder = format!("/run/sys-{namespace}");
    sys::mount("sysfs", &folder, "sysfs")?;
    let file = format!("{folder}/class/net/{link}/threaded");
    std::fs::write(&file, "1").map_err(because(file))
}

/// Sends a datagram each way. The first exchange lets both ends learn each other's address, so that no address
/// request comes later. The second, with `is_counted`, lets the plugin learn which thread receives for which end.
pub fn introduce(is_counted: bool) -> Outcome<()> {
    let port = 9;
    let socket = |namespace: &'static str, address: &'static str| {
        within(namespace, move || {
            let socket = UdpSocket::bind((address, port)).map_err(because("a datagram's socket"))?;
            socket.set_read_timeout(Some(Duration::from_secs(5))).map_err(because("a datagram's socket"))?;
            Ok(socket)
        })
    };
    let (client, server) = (socket(CLIENT, CLIENT_ADDRESS)?, socket(SERVER, SERVER_ADDRESS)?);
    let send = |from: &UdpSocket, to: &UdpSocket, address: &str| {
        from.send_to(b"x", (address, port)).map_err(because("a datagram"))?;
        to.recv(&mut [0]).map_err(because("a datagram does not arrive"))
    };
    if is_counted {
        sys::mark::<6>();
    }
    send(&client, &server, SERVER_ADDRESS)?;
    if is_counted {
        sys::mark::<7>();
    }
    send(&server, &client, CLIENT_ADDRESS)?;
    if is_counted {
        sys::mark::<8>();
    }
    Ok(())
}

/// Sets the path's one-way delay, both directions at the client's end, so that delaying is no work of the server's
/// CPU.
pub fn delay(one_way_us: u64) -> Outcome<()> {
    if one_way_us == 0 {
        return Ok(());
    }
    let round_trip = 2 * one_way_us;
    run(&format!("tc -n {CLIENT} qdisc add dev {CLIENT_LINK} root netem delay {round_trip}us limit 100000"))
}

/// Packets that the server's link received and sent. The calling thread is in the server's namespace.
pub fn packets() -> Outcome<(u64, u64)> {
    let path = "/proc/thread-self/net/dev";
    let text = std::fs::read_to_string(path).map_err(because(path))?;
    let link = format!("{SERVER_LINK}:");
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&link)).ok_or("the server's link is gone")?;
    let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
    match numbers[..] {
        [_, received, _, _, _, _, _, _, _, sent, ..] => Ok((received, sent)),
        _ => Err(format!("{path} has an unexpected format")),
    }
}

/// Number of connections that servers in the calling thread's namespace have accepted since it was created.
pub fn accepted() -> Outcome<u64> {
    let path = "/proc/thread-self/net/snmp";
    let text = std::fs::read_to_string(path).map_err(because(path))?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: ")).map(str::split_whitespace);
    let (names, values) = (lines.next(), lines.next());
    let mut pairs = names.into_iter().flatten().zip(values.into_iter().flatten());
    let found = pairs.find(|(name, _)| *name == "PassiveOpens").and_then(|(_, value)| value.parse().ok());
    found.ok_or_else(|| format!("{path} has an unexpected format"))
}

/// Where servers in the calling thread's namespace listen: `port 80`, or `127.0.0.1:80`.
pub fn listening() -> Outcome<Vec<String>> {
    let mut places = Vec::new();
    for path in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        // Without IPv6 the second file does not exist.
        for line in std::fs::read_to_string(path).unwrap_or_default().lines().skip(1).take(1000) {
            let mut words = line.split_whitespace();
            let (Some(local), Some("0A")) = (words.nth(1), words.nth(1)) else { continue };
            let Some((address, port)) = local.split_once(':') else { continue };
            let port = u16::from_str_radix(port, 16).map_err(because(path))?;
            let bits = u32::from_str_radix(address, 16).ok().filter(|bits| address.len() == 8 && *bits != 0);
            places.push(match bits {
                Some(bits) => format!("{}:{port}", std::net::Ipv4Addr::from(bits.swap_bytes())),
                None => format!("port {port}"),
            });
        }
    }
    places.sort();
    places.dedup();
    Ok(places)
}

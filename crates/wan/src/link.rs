//! The link between client and server: a veth pair without or with netem at both ends, or two TUN devices with the
//! delay line between them. All have the same names and addresses.

use crate::capabilities::tried;
use crate::cgroup::owned_name;
use crate::delay_line::DelayLine;
use crate::error::{DuringStep, WanError};
use crate::ethtool;
use crate::meter::PathMeter;
use crate::namespace::NetNamespace;
use crate::rtnetlink::{IFLA_GSO_MAX_SEGS, IFLA_IFALIAS, IFLA_TXQLEN, Route, link_index};
use crate::setting;
use crate::tun::Tun;
use record::{PathMechanism, PathPlan};
use rustix::fd::AsFd;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses of both ends, drawn from the token, in RFC 2544's benchmarking block and in a unique local prefix (RFC
/// 4193).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    pub server_v4: Ipv4Addr,
    pub client_v4: Ipv4Addr,
    pub server_v6: Ipv6Addr,
    pub client_v6: Ipv6Addr,
}

const PREFIX_BITS_V4: u8 = 30;
const PREFIX_BITS_V6: u8 = 64;
/// Queue length of a TUN device. It must hold a burst until the delay line reads it.
const TUN_QUEUE_PACKETS: u32 = 10_000;

impl Addresses {
    pub fn of_token(token: &str) -> Self {
        let number = u64::from_str_radix(token, 16).unwrap_or(0);
        let [third, fourth] = [(number >> 8) as u8, (number as u8) & 0xfc];
        let word = |shift: u32| (number >> shift) as u16;
        let v6 = |host| Ipv6Addr::new(0xfd00 | (word(32) & 0xff), word(16), word(0), 0, 0, 0, 0, host);
        Addresses {
            server_v4: Ipv4Addr::new(198, 18, third, fourth + 1),
            client_v4: Ipv4Addr::new(198, 18, third, fourth + 2),
            server_v6: v6(1),
            client_v6: v6(2),
        }
    }

    pub fn known() -> Self {
        Addresses::of_token("0")
    }
}

/// Uses 14 of the 15 bytes that a link's name may have.
pub(crate) fn server_link(token: &str) -> String {
    format!("sgs-{token}")
}

pub(crate) fn client_link(token: &str) -> String {
    format!("sgc-{token}")
}

pub(crate) struct PathSides<'a> {
    pub client: &'a NetNamespace,
    pub server: &'a NetNamespace,
    pub token: &'a str,
    pub addresses: Addresses,
    /// CPUs of the delay line. Empty for any.
    pub line_cpus: &'a [usize],
}

#[derive(Debug)]
pub(crate) struct EmulatedPath {
    /// The plan with the chosen mechanism.
    pub plan: PathPlan,
    pub meter: PathMeter,
    /// The delay line, if it is the mechanism. Its devices live as long as this value.
    pub line: Option<DelayLine>,
    /// Notes on settings that could not be made as planned.
    pub notes: Vec<String>,
}

/// Whether this kernel has netem. Tries it in a separate namespace.
pub fn has_netem() -> bool {
    tried(|route, _| route.add_netem("lo", &PathPlan::default(), 0)).is_ok()
}

/// The mechanism `Other` means netem if the kernel has it, else the delay line. The path's plan names the mechanism
/// in use.
pub(crate) fn join(sides: &PathSides<'_>, plan: &PathPlan) -> Result<EmulatedPath, WanError> {
    plan.check()?;
    let mechanism = match plan.mechanism {
        _ if !plan.shapes_packets() => PathMechanism::Link,
        PathMechanism::Netem => PathMechanism::Netem,
        PathMechanism::TunDelayLine => PathMechanism::TunDelayLine,
        _ if has_netem() => PathMechanism::Netem,
        _ => PathMechanism::TunDelayLine,
    };
    let plan = PathPlan { mechanism, ..plan.clone() };
    let (client_name, server_name) = (client_link(sides.token), server_link(sides.token));
    let mut devices = None;
    if mechanism == PathMechanism::TunDelayLine {
        let merges = plan.is_pure_delay();
        let client = sides.client.run_inside(|| Tun::create(&client_name, merges))?;
        let server = sides.server.run_inside(|| Tun::create(&server_name, merges))?;
        devices = Some((client, server));
    } else {
        sides.client.run_inside(|| {
            let route = Route::connect()?;
            route.add_veth(&client_name, &server_name, sides.server.as_fd()).map_err(|error| {
                refused(
                    error,
                    "make a veth pair",
                    "load the module with 'modprobe veth', or use a kernel with CONFIG_VETH",
                )
            })
        })?;
    }
    let mut notes = Vec::new();
    let ends = sides.addresses;
    let client_end = PathEnd {
        link: &client_name,
        v4: ends.client_v4.into(),
        v6: ends.client_v6.into(),
        peer: [ends.server_v4.into(), ends.server_v6.into()],
        number: 0,
        alias: &owned_name(sides.token),
    };
    let server_end = PathEnd {
        link: &server_name,
        v4: ends.server_v4.into(),
        v6: ends.server_v6.into(),
        peer: [ends.client_v4.into(), ends.client_v6.into()],
        number: 1,
        ..client_end
    };
    let (client_route, client_index) = sides.client.run_inside(|| client_end.set_up(&plan))?;
    let (server_route, server_index, has_ipv6) = sides.server.run_inside(|| {
        let (route, index) = server_end.set_up(&plan)?;
        Ok((route, index, std::path::Path::new("/proc/thread-self/net/if_inet6").exists()))
    })?;
    if !has_ipv6 {
        notes.push("the pair has no IPv6 addresses: IPv6 is disabled in this kernel".into());
    }
    let line = match devices {
        Some((client, server)) => Some(DelayLine::start(&plan, client, server, sides.line_cpus)?),
        None => None,
    };
    if line.as_ref().is_some_and(DelayLine::lacks_real_time) {
        notes.push("the delay line has no real-time priority (CAP_SYS_NICE), so that other work delays it more".into());
    }
    let meter = PathMeter::new(
        plan.clone(),
        [(client_route, client_index), (server_route, server_index)],
        line.as_ref().map(|line| line.shared.clone()),
    );
    if mechanism == PathMechanism::Netem && plan.loss_ratio > 0.0 && !meter.is_seeded() {
        notes.push("the losses do not follow the seed: this kernel's netem (before Linux 6.6) draws its own".into());
    }
    Ok(EmulatedPath { plan, meter, line, notes })
}

#[derive(Debug, Clone, Copy)]
struct PathEnd<'a> {
    link: &'a str,
    v4: IpAddr,
    v6: IpAddr,
    /// The other end's IPv4 and IPv6 address.
    peer: [IpAddr; 2],
    /// 0 for the client's end, whose packets have direction 0.
    number: u8,
    /// Alias of the loopback device. It names the owner of the namespace even after the link is gone (a TUN device
    /// vanishes as soon as its process is killed).
    alias: &'a str,
}

impl PathEnd<'_> {
    /// Sets addresses, offloads, netem and routes. Returns a socket in the namespace and the link's index, for the
    /// counters.
    fn set_up(&self, plan: &PathPlan) -> Result<(Route, u32), WanError> {
        let route = Route::connect()?;
        let link = self.link;
        route.set_link("lo", IFLA_IFALIAS, self.alias.as_bytes()).during("name the owner of a network namespace")?;
        let is_tun = plan.mechanism == PathMechanism::TunDelayLine;
        if is_tun {
            let length = TUN_QUEUE_PACKETS.to_ne_bytes();
            route.set_link(link, IFLA_TXQLEN, &length).during(format!("lengthen the queue of {link}"))?;
        }
        let counts_segments = plan.mechanism == PathMechanism::Netem && !plan.is_pure_delay();
        if counts_segments {
            // Without offload TCP would still build packets of several segments, which the stack cuts after netem
            // (Linux 4.17).
            let what = format!("limit the packets of {link} to one segment");
            route.set_link(link, IFLA_GSO_MAX_SEGS, &1u32.to_ne_bytes()).during(what)?;
            ethtool::segment_in_stack(link).during(format!("switch off the segmentation offload of {link}"))?;
        }
        let has_ipv6 = bring_up(&route, link, self.v4, self.v6)?;
        if !is_tun {
            for address in self.peer.into_iter().filter(|address| address.is_ipv4() || has_ipv6) {
                let what = || format!("add a neighbour entry for {address} to {link}");
                route.add_neighbour(link, address, 1 - self.number).during(what())?;
            }
        }
        if plan.mechanism == PathMechanism::Netem {
            route.add_netem(link, plan, self.number.into()).map_err(|error| {
                refused(
                    error,
                    "delay packets itself (netem)",
                    "load the module with 'modprobe sch_netem', or use the TUN delay line",
                )
            })?;
        }
        if plan.quickack {
            let what = || format!("make {link} acknowledge at once");
            route.acknowledge_at_once(link, self.v4, PREFIX_BITS_V4).during(what())?;
            if has_ipv6 {
                route.acknowledge_at_once(link, self.v6, PREFIX_BITS_V6).during(what())?;
            }
        }
        let index = link_index(link).during(format!("look up {link}"))?;
        Ok((route, index))
    }
}

/// Returns whether the link also has its IPv6 address. Without IPv6, IPv4 is still measured.
fn bring_up(route: &Route, link: &str, v4: IpAddr, v6: IpAddr) -> Result<bool, WanError> {
    route.set_up("lo").during("set the loopback device up")?;
    route.add_address(link, v4, PREFIX_BITS_V4).during(format!("give {link} the address {v4}"))?;
    // New namespaces may inherit "IPv6 off". Only the load may cross the path, so the link gets no link-local address
    // and sends no router solicitations.
    let _ = setting::set(&format!("net/ipv6/conf/{link}/disable_ipv6"), "0");
    let _ = setting::set(&format!("net/ipv6/conf/{link}/addr_gen_mode"), "1");
    let _ = setting::set(&format!("net/ipv6/conf/{link}/router_solicitations"), "0");
    let has_ipv6 = match route.add_address(link, v6, PREFIX_BITS_V6) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EACCES)) => false,
        result => result.during(format!("give {link} the address {v6}")).map(|()| true)?,
    };
    route.set_up(link).during(format!("set {link} up"))?;
    Ok(has_ipv6)
}

fn refused(source: std::io::Error, what: &'static str, remedy: &'static str) -> WanError {
    match source.raw_os_error() {
        Some(libc::EPERM) => WanError::NotPermitted,
        Some(libc::ENOENT | libc::EOPNOTSUPP) => WanError::Unsupported { what, remedy, source },
        _ => WanError::Step { what: what.into(), source },
    }
}

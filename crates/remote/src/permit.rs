use crate::error::{Result, unusable};
use record::LoadPlan;
use record::machine;
use std::net::IpAddr;

/// Refuses a plan with fewer connections than clients.
pub fn can_be_split(plan: &LoadPlan, clients: u64) -> Result<()> {
    if plan.connections >= clients {
        return Ok(());
    }
    Err(unusable(format!(
        "{} connections cannot be split over {clients} clients: use at least one per client (--connections)",
        plan.connections
    )))
}

/// Whether this number of machines may send load to these addresses of a host, so that a typo does not become an
/// attack. One machine may load private networks and itself; several may load only loopback. The user must allow
/// every other target by name.
pub fn permit(allowed: &[String], host: &str, addresses: &[IpAddr], machines: u64) -> Result<()> {
    let is_named = |text: &str| allowed.iter().any(|known| known.trim_matches(['[', ']']).eq_ignore_ascii_case(text));
    let is_near = |address: &IpAddr| {
        address.is_loopback() || (machines < 2 && (is_private(address) || machine::has_address(*address)))
    };
    let is_permitted = |address: &IpAddr| is_near(address) || is_named(&address.to_string());
    if is_named(host.trim_matches(['[', ']'])) || addresses.iter().all(is_permitted) {
        return Ok(());
    }
    let why = match machines {
        0 | 1 => format!("{host} is on a public network, and loading a server of others is an attack"),
        _ => format!("several clients would send load to {host}"),
    };
    Err(unusable(format!("{why}: if you may load it, allow it with --allow-target {host}")))
}

/// Whether an address cannot be on the public Internet: private, carrier-grade NAT, link-local, or for benchmarks
/// such as `straingauge wan` (RFC 1918, 6598, 3927, 2544, 4193, 4291).
fn is_private(address: &IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(four) => {
            let [first, second, ..] = four.octets();
            let is_shared = first == 100 && second & 0xc0 == 64;
            let is_for_benchmarks = first == 198 && second & 0xfe == 18;
            four.is_loopback()
                || four.is_private()
                || four.is_link_local()
                || four.is_unspecified()
                || is_shared
                || is_for_benchmarks
        }
        IpAddr::V6(six) => six.is_unique_local() || six.is_unicast_link_local() || six.is_unspecified(),
    }
}

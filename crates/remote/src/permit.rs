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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_clients_send_only_where_they_are_allowed() {
        let address = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
        let list = |hosts: &[&str]| hosts.iter().map(|host| host.to_string()).collect::<Vec<_>>();
        assert!(permit(&[], "127.0.0.1", &address("127.0.0.1"), 2).is_ok());
        assert!(permit(&[], "::1", &address("::1"), 2).is_ok());
        assert!(permit(&[], "example.org", &address("192.0.2.1"), 2).is_err());
        assert!(permit(&list(&["example.com"]), "example.org", &address("192.0.2.1"), 2).is_err());
        assert!(permit(&list(&["Example.org"]), "example.org", &address("192.0.2.1"), 2).is_ok());
        assert!(permit(&list(&["192.0.2.1"]), "example.org", &address("192.0.2.1"), 2).is_ok());
        // A host needs all of its addresses allowed.
        let both = [address("192.0.2.1"), address("192.0.2.2")].concat();
        assert!(permit(&list(&["192.0.2.1"]), "example.org", &both, 2).is_err());
    }

    #[test]
    fn one_client_needs_permission_only_for_public_addresses() {
        let sent = |text: &str| permit(&[], "host", &[text.parse::<IpAddr>().unwrap()], 1);
        for near in [
            "127.0.0.2",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "0.0.0.0",
            "198.18.0.1",
            "198.19.255.255",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(sent(near).is_ok(), "{near}");
        }
        for far in [
            "192.0.2.1",
            "172.32.0.1",
            "100.128.0.1",
            "100.63.255.255",
            "11.0.0.1",
            "198.20.0.1",
            "2001:db8::1",
            "::ffff:192.0.2.1",
        ] {
            let why = sent(far).expect_err(far).to_string();
            assert!(why.contains("--allow-target host"), "{why}");
            assert!(permit(&["host".into()], "host", &[far.parse().unwrap()], 1).is_ok(), "{far}");
        }
        let both: Vec<IpAddr> = ["10.0.0.1", "192.0.2.1"].iter().map(|text| text.parse().unwrap()).collect();
        assert!(permit(&[], "host", &both, 1).is_err());
        assert!(permit(&[], "host", &both[..1], 2).is_err());
    }
}

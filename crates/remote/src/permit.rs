//! Refuses loads before a client machine sends anything: targets that were not allowed, and loads too small to split.

use crate::error::{Result, unusable};
use record::LoadPlan;
use std::net::IpAddr;

/// Refuses a plan with fewer connections than clients.
pub fn can_be_split(plan: &LoadPlan, clients: u64) -> Result<()> {
    if plan.connections >= clients {
        return Ok(());
    }
    Err(unusable(format!(
        "{} connections cannot be split over {clients} clients: give at least one for each with --connections",
        plan.connections
    )))
}

/// Several machines send to a target only if it is loopback, or named as allowed: a typo must not become an attack.
pub fn permit(allowed: &[String], host: &str, addresses: &[IpAddr]) -> Result<()> {
    let is_named = |text: &str| allowed.iter().any(|known| known.trim_matches(['[', ']']).eq_ignore_ascii_case(text));
    let is_permitted = |address: &IpAddr| address.is_loopback() || is_named(&address.to_string());
    if is_named(host.trim_matches(['[', ']'])) || addresses.iter().all(is_permitted) {
        return Ok(());
    }
    Err(unusable(format!(
        "several clients would send load to {host}: if it is yours to load, allow it with --allow-target {host}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_clients_send_only_where_they_are_allowed() {
        let address = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
        let list = |hosts: &[&str]| hosts.iter().map(|host| host.to_string()).collect::<Vec<_>>();
        assert!(permit(&[], "127.0.0.1", &address("127.0.0.1")).is_ok());
        assert!(permit(&[], "::1", &address("::1")).is_ok());
        assert!(permit(&[], "example.org", &address("192.0.2.1")).is_err());
        assert!(permit(&list(&["example.com"]), "example.org", &address("192.0.2.1")).is_err());
        assert!(permit(&list(&["Example.org"]), "example.org", &address("192.0.2.1")).is_ok());
        assert!(permit(&list(&["192.0.2.1"]), "example.org", &address("192.0.2.1")).is_ok());
        // A name that also leads elsewhere is not allowed by one of its addresses.
        let both = [address("192.0.2.1"), address("192.0.2.2")].concat();
        assert!(permit(&list(&["192.0.2.1"]), "example.org", &both).is_err());
    }
}

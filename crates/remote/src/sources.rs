//! The addresses that a worker connects from: they belong to its machine, so they are options of the worker, not of the
//! plan.

use crate::error::{Result, system, unusable};
use record::{LoadPlan, machine};
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The worker's options for its addresses.
#[derive(Debug, Default, Clone)]
pub struct Sources {
    /// These addresses, if there are any.
    pub addresses: Vec<IpAddr>,
    /// All addresses of this interface.
    pub interface: Option<String>,
}

impl Sources {
    /// Fills in what the driver leaves to this machine: the threads of a plan, and the addresses of the target's family.
    pub fn complete(&self, plan: &mut LoadPlan) -> Result<()> {
        if plan.threads == 0 {
            let cpus = machine::allowed_cpus().len();
            let is_local = plan.addresses.iter().all(|address| address.ip().is_loopback());
            plan.threads = if is_local { (cpus / 2).max(1) } else { cpus.max(1) };
        }
        plan.threads = plan.threads.min(usize::try_from(plan.connections).unwrap_or(usize::MAX)).max(1);
        let mut addresses = self.addresses.clone();
        if let Some(name) = &self.interface {
            addresses.extend(addresses_of(name)?);
        }
        if addresses.is_empty() {
            return Ok(());
        }
        let is_v4 = plan.addresses.iter().any(|target| target.is_ipv4());
        addresses.retain(|address| address.is_ipv4() == is_v4);
        if addresses.is_empty() {
            let family = if is_v4 { "IPv4" } else { "IPv6" };
            return Err(unusable(format!(
                "none of this worker's source addresses is an {family} address, as the target is"
            )));
        }
        plan.source_addresses = addresses;
        Ok(())
    }
}

/// The addresses of an interface that are valid beyond its link.
fn addresses_of(name: &str) -> Result<Vec<IpAddr>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` is a live place for the pointer; what it is set to is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(system("cannot list the addresses of this machine")(std::io::Error::last_os_error()));
    }
    let (mut found, mut is_there, mut at) = (Vec::new(), false, list);
    while !at.is_null() {
        // SAFETY: `at` is an element of the list that getifaddrs made, which is freed after this loop.
        let entry = unsafe { &*at };
        // SAFETY: getifaddrs gives each entry a name that ends in a zero byte.
        if unsafe { CStr::from_ptr(entry.ifa_name) }.to_bytes() == name.as_bytes() {
            is_there = true;
            found.extend(address(entry.ifa_addr));
        }
        at = entry.ifa_next;
    }
    // SAFETY: the list came from getifaddrs and is not used any more.
    unsafe { libc::freeifaddrs(list) };
    if !is_there {
        return Err(unusable(format!("this worker has no network interface '{name}' (--source-interface)")));
    }
    Ok(found)
}

fn address(raw: *const libc::sockaddr) -> Option<IpAddr> {
    if raw.is_null() {
        return None;
    }
    // SAFETY: not null, so it is a socket address of the list, which begins with its family.
    let address = match i32::from(unsafe { (*raw).sa_family }) {
        libc::AF_INET => {
            // SAFETY: an address of family AF_INET is a sockaddr_in.
            let v4 = unsafe { &*raw.cast::<libc::sockaddr_in>() };
            IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)))
        }
        libc::AF_INET6 => {
            // SAFETY: an address of family AF_INET6 is a sockaddr_in6.
            let v6 = unsafe { &*raw.cast::<libc::sockaddr_in6>() };
            IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr))
        }
        _ => return None,
    };
    let is_of_the_link = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    (!is_of_the_link).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address_and_an_unknown_one_is_named() {
        assert!(addresses_of("lo").unwrap().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(addresses_of("no-such-0").unwrap_err().to_string().contains("no-such-0"));
    }
}

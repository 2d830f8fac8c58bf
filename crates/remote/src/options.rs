//! Options of a worker that depend on its machine and are therefore not in the plan: CPUs, threads, source addresses.

use crate::error::{Result, system, unusable};
use crate::protocol::Capacity;
use record::{LoadPlan, machine};
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The options of a load worker.
#[derive(Debug, Default, Clone)]
pub struct WorkerOptions {
    /// CPUs for its threads. Empty for all.
    pub cpus: Vec<usize>,
    /// Number of its threads, instead of the driver's number.
    pub threads: Option<usize>,
    /// Source addresses. Empty for the system's choice.
    pub addresses: Vec<IpAddr>,
    /// An interface whose addresses are all used as source addresses as well.
    pub interface: Option<String>,
}

impl WorkerOptions {
    /// Measures the machine's capacity within these options, which takes a few milliseconds.
    pub fn capacity(&self) -> Option<Capacity> {
        let cpus = if self.cpus.is_empty() { machine::allowed_cpus().len() } else { self.cpus.len() };
        // A worker cannot use more CPUs than threads.
        let cpus = u32::try_from(self.threads.map_or(cpus, |threads| threads.min(cpus))).ok()?;
        let speed_per_sec = observe::yardstick(self.cpus.first().copied(), Duration::from_millis(5)).value?;
        Some(Capacity { cpus, speed_per_sec })
    }

    /// Fills in the threads, the CPUs, and the source addresses of the target's family.
    pub fn complete(&self, plan: &mut LoadPlan) -> Result<()> {
        plan.threads = self.threads.unwrap_or(plan.threads);
        if !self.cpus.is_empty() {
            plan.cpus.clone_from(&self.cpus);
        }
        if plan.threads == 0 && !self.cpus.is_empty() {
            plan.threads = self.cpus.len();
        } else if plan.threads == 0 {
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
                "none of this worker's source addresses is an {family} address like the target"
            )));
        }
        plan.source_addresses = addresses;
        Ok(())
    }
}

/// The addresses of an interface except link-local ones.
fn addresses_of(name: &str) -> Result<Vec<IpAddr>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` is a valid place for the pointer; the memory behind it is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(system("cannot list the addresses of this machine")(std::io::Error::last_os_error()));
    }
    let (mut found, mut is_there, mut at) = (Vec::new(), false, list);
    while !at.is_null() {
        // SAFETY: `at` is an element of the list from getifaddrs, which is freed after this loop.
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
    // SAFETY: it is not null, so it points to a socket address of the list, which begins with its family.
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
    fn a_worker_has_the_cpus_and_threads_that_it_was_given() {
        let completed = |cpus: &[usize], threads, asked| {
            let options = WorkerOptions { cpus: cpus.to_vec(), threads, ..WorkerOptions::default() };
            let simple = LoadPlan::simple("192.0.2.1:80".parse().unwrap());
            let mut plan = LoadPlan { connections: 9, threads: asked, cpus: Vec::new(), ..simple };
            options.complete(&mut plan).unwrap();
            (plan.cpus, plan.threads)
        };
        assert_eq!(completed(&[0, 1, 2], None, 0), (vec![0, 1, 2], 3));
        assert_eq!(completed(&[0, 1, 2], None, 2), (vec![0, 1, 2], 2));
        assert_eq!(completed(&[0], Some(4), 2), (vec![0], 4));
        assert_eq!(completed(&[], Some(40), 2), (Vec::new(), 9));
        assert_eq!(completed(&[], None, 0), (Vec::new(), machine::allowed_cpus().len().min(9)));
        let cpus = machine::allowed_cpus();
        let capacity = |cpus: &[usize], threads| {
            let options = WorkerOptions { cpus: cpus.to_vec(), threads, ..WorkerOptions::default() };
            options.capacity().map(|capacity| capacity.cpus as usize)
        };
        assert_eq!(capacity(&cpus[..1], None), Some(1));
        assert_eq!(capacity(&cpus, Some(1)), Some(1));
        assert_eq!(capacity(&[], Some(4000)), Some(cpus.len()));
    }

    #[test]
    fn the_loopback_interface_has_its_address_and_an_unknown_one_is_named() {
        assert!(addresses_of("lo").unwrap().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(addresses_of("no-such-0").unwrap_err().to_string().contains("no-such-0"));
    }
}

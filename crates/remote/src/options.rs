//! Options of a worker that depend on its machine and are therefore not in the plan: CPUs, threads, source addresses.

use crate::error::{Result, system, unusable};
use crate::protocol::Capacity;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use record::{LoadPlan, machine};
use std::net::IpAddr;
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
                "none of this worker's source addresses is an {family} address, as the target is"
            )));
        }
        plan.source_addresses = addresses;
        Ok(())
    }
}

/// The addresses of an interface except link-local ones.
fn addresses_of(name: &str) -> Result<Vec<IpAddr>> {
    let all = getifaddrs().map_err(|errno| system("cannot list the addresses of this machine")(errno.into()))?;
    let of_interface: Vec<_> = all.filter(|entry| entry.interface_name == name).collect();
    if of_interface.is_empty() {
        return Err(unusable(format!("this worker has no network interface '{name}' (--source-interface)")));
    }
    let v4 = |address: &SockaddrStorage| Some(IpAddr::V4(address.as_sockaddr_in()?.ip()));
    let v6 = |address: &SockaddrStorage| Some(address.as_sockaddr_in6()?.ip());
    let addresses = of_interface.iter().filter_map(|entry| entry.address.as_ref());
    let addresses = addresses.filter_map(|address| {
        v4(address).or_else(|| v6(address).filter(|ip| !ip.is_unicast_link_local()).map(IpAddr::V6))
    });
    Ok(addresses.collect())
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
        assert!(addresses_of("lo").unwrap().contains(&IpAddr::from([127, 0, 0, 1])));
        assert!(addresses_of("no-such-0").unwrap_err().to_string().contains("no-such-0"));
    }
}

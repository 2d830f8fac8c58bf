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

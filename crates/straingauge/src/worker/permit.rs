//! What is refused before a client machine sends anything: targets that nobody allowed, and what one machine must do alone.

use super::fleet::{Fleet, OnLoss};
use super::link::Source;
use super::ray::Nodes;
use crate::cli::{FleetOptions, LoadOptions, WorkerLossWord};
use crate::failure::wrong_usage;
use crate::progress::Progress;
use crate::signals::Stop;
use anyhow::Result;
use record::LoadPlan;
use std::net::IpAddr;

/// Starts the workers that were asked for; `None` where this process sends the load itself. `starts_server`: the run
/// starts its server itself, on this machine.
pub fn connect(
    clients: &FleetOptions,
    load: &LoadOptions,
    starts_server: bool,
    host: &str,
    plan: &LoadPlan,
    stop: &Stop,
    progress: &mut Progress,
) -> Result<Option<Fleet>> {
    if clients.ray.is_some() && !clients.client.is_empty() {
        return Err(wrong_usage("straingauge fleet brings clients of its own: leave --client out, or leave fleet out"));
    }
    if clients.client.is_empty() && clients.ray.is_none() {
        if clients.on_worker_loss.is_some() || !clients.allow_target.is_empty() {
            return Err(wrong_usage("--on-worker-loss and --allow-target are about clients: add --client COMMAND"));
        }
        return Ok(None);
    }
    if starts_server {
        return Err(wrong_usage(
            "clients send load from other machines, which do not see a server in a namespace of this one: start the server yourself and leave -- SERVER out",
        ));
    }
    if load.cold.is_some_and(|cold| cold.0 > 0) || load.cpus.is_some() {
        return Err(wrong_usage("--cold and --cpus are about this machine: they do not go with clients on others"));
    }
    let workload = &plan.workload;
    if workload.trace.is_some() || workload.series.is_some() || !workload.classes.is_empty() {
        return Err(wrong_usage("mixes, rate series and logs are not split over clients: leave --client out for them"));
    }
    let kind = &plan.clients;
    if kind.tls.is_some() || kind.bandwidth.is_some() || kind.read_bytes_per_sec > 0 {
        return Err(wrong_usage(
            "TLS, --read-rate and --asked-bandwidth are not split over clients: leave --client out for them",
        ));
    }
    // How many nodes a cluster has shows later: one or several.
    let wanted = clients.ray.as_ref().map_or(clients.client.len() as u64, |ray| ray.workers.map_or(2, |count| count.0));
    if clients.ray.is_none() || clients.ray.as_ref().is_some_and(|ray| ray.workers.is_some()) {
        can_be_split(plan, wanted)?;
    }
    if wanted > 1 {
        let addresses: Vec<IpAddr> = plan.addresses.iter().map(|address| address.ip()).collect();
        permit(&clients.allow_target, host, &addresses)?;
    }
    let on_loss = match clients.on_worker_loss {
        Some(WorkerLossWord::GoOn) => OnLoss::GoOn,
        _ => OnLoss::End,
    };
    let threads = load.threads.map(|_| plan.threads);
    let nodes = clients.ray.as_ref().map(|ray| Nodes::start(ray, stop.flag(), progress)).transpose()?;
    let sources = match &nodes {
        Some(nodes) => nodes.sources.clone(),
        None => clients.client.iter().cloned().map(Source::Command).collect(),
    };
    can_be_split(plan, sources.len() as u64)?;
    progress.show(&format!("starting {} clients", sources.len()));
    Fleet::connect(&sources, nodes, on_loss, threads, stop.flag()).map(Some)
}

fn can_be_split(plan: &LoadPlan, clients: u64) -> Result<()> {
    if plan.connections >= clients {
        return Ok(());
    }
    Err(wrong_usage(format!(
        "{} connections cannot be split over {clients} clients: give at least one for each with --connections",
        plan.connections
    )))
}

/// Several machines send to a target only if it is loopback, or named as allowed: a typo must not become an attack.
fn permit(allowed: &[String], host: &str, addresses: &[IpAddr]) -> Result<()> {
    let is_named = |text: &str| allowed.iter().any(|known| known.trim_matches(['[', ']']).eq_ignore_ascii_case(text));
    let is_permitted = |address: &IpAddr| address.is_loopback() || is_named(&address.to_string());
    if is_named(host.trim_matches(['[', ']'])) || addresses.iter().all(is_permitted) {
        return Ok(());
    }
    Err(wrong_usage(format!(
        "several clients would send load to {host}: if it is yours to load, say so with --allow-target {host}"
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

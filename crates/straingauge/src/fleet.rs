use crate::ask;
use crate::cli::{FleetOptions, LoadOptions, RayOptions};
use crate::defaults;
use crate::failure::{refuse_if, wrong_usage};
use crate::progress::Progress;
use crate::signals::Stop;
use anyhow::{Context, Result};
use load::MOST_CONNECTIONS;
use record::{LoadPlan, machine};
use remote::{Fleet, NoRoom, Nodes, OnLoss, RayPlan, RemoteError, WorkerSource};
use std::net::IpAddr;

pub fn is_asked_for(clients: &FleetOptions) -> bool {
    clients.ray.is_some() || !clients.client.is_empty()
}

/// Starts the workers that the options name; `None` if this process sends the load itself. `starts_server`:
/// straingauge starts the server on this machine.
pub fn connect(
    clients: &FleetOptions,
    load: &LoadOptions,
    starts_server: bool,
    host: &str,
    plan: &LoadPlan,
    stop: &Stop,
    progress: &mut Progress,
) -> Result<Option<Fleet>> {
    refuse_if(
        clients.ray.is_some() && !clients.client.is_empty(),
        "straingauge fleet starts its own clients: leave out --client or fleet",
    )?;
    if !is_asked_for(clients) {
        refuse_if(clients.on_worker_loss.is_some(), "on-worker-loss of [fleet] needs clients: add --client COMMAND")?;
        if !starts_server {
            permit(clients, host, plan, 1, stop)?;
        }
        return Ok(None);
    }
    refuse_if(load.cpus.is_some(), "--cpus applies to this machine and does not work with --client")?;
    // The number of nodes in a cluster is known only later; assume several.
    let wanted = most_clients(clients).unwrap_or(2);
    let least = match &clients.ray {
        None => Some(wanted),
        Some(ray) => ray.workers.map(|workers| workers.least),
    };
    if let Some(least) = least {
        remote::can_be_split(plan, least).map_err(as_usage)?;
    }
    can_hold(clients, plan.connections)?;
    match plan.addresses.iter().find(|address| !machine::has_address(address.ip())) {
        // A server that is started here belongs to the user.
        None if starts_server => {}
        Some(other) if starts_server => {
            return Err(wrong_usage(format!(
                "-- SERVER starts a server on this machine, but {} is not an address of this machine: use one that the \
                 clients reach",
                other.ip()
            )));
        }
        _ => permit(clients, host, plan, wanted, stop)?,
    }
    let threads = load.threads.map(|_| plan.threads);
    let nodes = clients.ray.as_ref().map(|ray| start_nodes(ray, stop, progress)).transpose()?;
    let sources = match &nodes {
        Some(nodes) => nodes.sources.clone(),
        None => clients.client.iter().cloned().map(WorkerSource::Command).collect(),
    };
    remote::can_be_split(plan, sources.len() as u64).map_err(as_usage)?;
    progress.show(&format!("starting {} clients", sources.len()));
    let on_loss = clients.on_worker_loss.unwrap_or(OnLoss::End);
    let mut fleet = Fleet::connect(&sources, nodes, on_loss, threads, stop.flag())?;
    fleet.reach_one_target(plan, starts_server).map_err(as_usage)?;
    if let Some(cold) = load.cold.filter(|cold| cold.0 > 0) {
        plan_cold(&mut fleet, plan, cold.0, stop)?;
    }
    Ok(Some(fleet))
}

fn most_clients(clients: &FleetOptions) -> Option<u64> {
    let Some(ray) = &clients.ray else { return Some(clients.client.len() as u64) };
    ray.workers.map(|workers| workers.most.unwrap_or(workers.least))
}

/// Refuses more connections than these clients can hold, if their number is known.
pub fn can_hold(clients: &FleetOptions, connections: u64) -> Result<()> {
    match most_clients(clients) {
        Some(count) if connections > count.saturating_mul(MOST_CONNECTIONS) => Err(wrong_usage(format!(
            "{connections} connections are too many for {count} clients with at most {MOST_CONNECTIONS} each: use more \
             clients"
        ))),
        _ => Ok(()),
    }
}

/// Distributes cold connections over the clients without opening any. If they do not fit, shows a table of the
/// clients' capacities.
pub fn plan_cold(fleet: &mut Fleet, plan: &LoadPlan, most: u64, stop: &Stop) -> Result<()> {
    match fleet.plan_cold(plan, most, stop.flag()) {
        Err(RemoteError::NoRoom(NoRoom { table, why })) => {
            // Shown even with --quiet, because the table is part of the error.
            table.iter().for_each(|line| eprintln!("{line}"));
            Err(wrong_usage(why))
        }
        planned => Ok(planned?),
    }
}

/// Checks whether the load may be sent to the plan's target. A user at a terminal is asked if a single client sends
/// the load.
fn permit(clients: &FleetOptions, host: &str, plan: &LoadPlan, machines: u64, stop: &Stop) -> Result<()> {
    let addresses: Vec<IpAddr> = plan.addresses.iter().map(|address| address.ip()).collect();
    match remote::permit(&clients.allow_target, host, &addresses, machines) {
        Err(why) if machines < 2 && ask::is_possible() => {
            let question = format!("{host} is on a public network. May you load it?");
            if ask::yes(&question, stop)? { Ok(()) } else { Err(as_usage(why)) }
        }
        answer => answer.map_err(as_usage),
    }
}

/// Errors before a worker starts are mistakes in the user's input.
fn as_usage(error: RemoteError) -> anyhow::Error {
    wrong_usage(error.to_string())
}

fn start_nodes(ray: &RayOptions, stop: &Stop, progress: &mut Progress) -> Result<Nodes> {
    let python = ray.python.as_deref().unwrap_or(defaults::PYTHON);
    Ok(Nodes::start(&ray_plan(ray)?, python, stop.flag(), &mut |what| progress.show(what))?)
}

fn ray_plan(ray: &RayOptions) -> Result<RayPlan> {
    let binary = match &ray.worker_binary {
        Some(path) => std::path::absolute(path).context("cannot make the path of --worker-binary absolute")?,
        None => std::env::current_exe().context("cannot find this program's file to send it to the nodes")?,
    };
    let mut arguments = vec!["load".to_string(), "--worker".to_string()];
    if let Some(interface) = &ray.source_interface {
        arguments.extend(["--source-interface".to_string(), interface.clone()]);
    }
    Ok(RayPlan {
        binary,
        address: ray.address.clone(),
        workers: ray.workers.map(|workers| workers.least),
        most_workers: ray.workers.and_then(|workers| workers.most),
        worker_cpus: ray.worker_cpus.unwrap_or(defaults::WORKER_CPUS as f64),
        resources: ray.worker_resource.iter().cloned().collect(),
        labels: ray.worker_label.iter().cloned().collect(),
        prefix: ray.worker_prefix.clone(),
        arguments,
        wait_s: ray.node_timeout.map_or(defaults::NODE_TIMEOUT, |time| time.0).as_secs_f64(),
    })
}

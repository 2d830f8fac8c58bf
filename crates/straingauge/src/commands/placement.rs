//! Places client and server: their CPUs, and which options need both on this machine.

use crate::cli::IfPermitted;
use crate::cpus;
use crate::failure::refuse_if;
use crate::fleet;
use crate::plan::{self, RunOptions};
use crate::url::Target;
use anyhow::Result;
use record::{Doubt, DoubtKind, LoadPlan, machine};
use std::net::{IpAddr, SocketAddr};

/// Refuses options that need two network namespaces of this machine if client or server is elsewhere.
pub fn refuse_out_of_reach(run: &RunOptions) -> Result<()> {
    let (is_apart, has_path) = (run.options.server.isolate == Some(IfPermitted::Always), run.options.path.is_set());
    refuse_if(
        has_path && run.options.fleet.server_with.is_some(),
        "a wide-area path connects two network namespaces of one machine; on the network interface of the server's \
             machine it would also delay other traffic: run straingauge on that machine, as in ssh SERVER straingauge \
             find --delay 20ms URL -- SERVER ...",
    )?;
    refuse_if(
        fleet::is_asked_for(&run.options.fleet) && (is_apart || has_path) && !run.command().is_empty(),
        "clients on other machines cannot reach a server in a network namespace of this machine (--isolate always, or \
             a wide-area path): leave them out, or start the server on a machine without clients (--server-with), \
             where --isolate always is met",
    )?;
    Ok(())
}

/// CPUs for a server on another machine; its watcher checks the list.
pub fn cpus_elsewhere(run: &RunOptions) -> Vec<usize> {
    let typed = run.options.server.server_cpus.as_deref();
    typed.and_then(|list| cpus::parse_list(list).ok()).unwrap_or_default()
}

/// An address of the right family, for checking the plan before the server's address is known.
pub fn placeholder(target: &Target) -> SocketAddr {
    let ip = match target.literal_ip() {
        Some(ip) if !ip.is_unspecified() => ip,
        _ => IpAddr::from([127, 0, 0, 1]),
    };
    SocketAddr::new(ip, target.port)
}

/// The CPUs of server and client, disjoint if straingauge starts the server.
pub fn cpus(run: &RunOptions) -> Result<(Vec<usize>, Vec<usize>)> {
    // The watcher checks CPUs of another machine.
    let here = run.options.server.server_cpus.as_deref().filter(|_| run.options.fleet.server_with.is_none());
    let server_typed = here.map(|list| plan::allowed(list, "--server-cpus")).transpose()?;
    let client_typed = run.options.load.cpus.as_deref().map(|list| plan::allowed(list, "--cpus")).transpose()?;
    if run.command().is_empty() {
        let is_apart = run.options.server.isolate == Some(IfPermitted::Always);
        refuse_if(
            server_typed.is_some() || (is_apart && run.options.fleet.server_with.is_none()),
            "--server-cpus and --isolate apply to a server that straingauge starts: add -- SERVER ...",
        )?;
        return Ok((client_typed.unwrap_or_default(), Vec::new()));
    }
    let allowed = machine::allowed_cpus();
    if fleet::is_asked_for(&run.options.fleet) {
        return Ok((Vec::new(), server_typed.unwrap_or(allowed)));
    }
    let others = |taken: &[usize]| -> Vec<usize> {
        let rest: Vec<usize> = allowed.iter().copied().filter(|cpu| !taken.contains(cpu)).collect();
        if rest.is_empty() { allowed.clone() } else { rest }
    };
    Ok(match (client_typed, server_typed) {
        (Some(client), Some(server)) => (client, server),
        (Some(client), None) => (client.clone(), others(&client)),
        (None, Some(server)) => (others(&server), server),
        (None, None) => cpus::split(&allowed),
    })
}

/// A doubt if client and server may share CPUs. `is_one_machine`: the server's watcher runs where a client does.
pub fn shared_cpus(plan: &LoadPlan, server_cpus: &[usize], is_one_machine: bool) -> Option<Doubt> {
    let is_local = is_one_machine || plan.addresses.iter().all(|address| address.ip().is_loopback());
    // This process does not pin clients on other machines.
    let (what, remedy) = if server_cpus.is_empty() || plan.cpus.is_empty() {
        if !is_local || !plan.cpus.is_empty() {
            return None;
        }
        (
            "client and server run on one machine and are not pinned to different CPUs".to_string(),
            match server_cpus {
                [] => {
                    "let straingauge start the server (-- SERVER ...), or pin both: taskset for the server, --cpus for \
                     the client"
                }
                _ => {
                    "pin them to different CPUs: --server-cpus for the server, taskset for the clients; or use other \
                     machines for the clients"
                }
            },
        )
    } else {
        let shared: Vec<usize> = plan.cpus.iter().copied().filter(|cpu| server_cpus.contains(cpu)).collect();
        if shared.is_empty() {
            return None;
        }
        (
            format!("client and server share CPU {}", record::machine::cpu_list(&shared)),
            "give them different CPUs with --cpus and --server-cpus, or use another machine for the client",
        )
    };
    Some(DoubtKind::SharedCpus.warning(what, remedy))
}

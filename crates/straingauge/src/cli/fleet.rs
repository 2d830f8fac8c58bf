//! Options of load from several machines.

use super::overlay;
use super::{FindArgs, LoadArgs};
use crate::quantity::Time;
use clap::{Args, Subcommand};
use record::units::parse_count;
use remote::OnLoss;
use serde::Deserialize;
use std::path::PathBuf;
use std::str::FromStr;

/// Options of the client machines.
#[derive(Debug, Default, Clone, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Other machines")]
pub struct FleetOptions {
    /// Send the load from this worker, e.g. 'ssh c1 straingauge load --worker'
    ///
    /// This machine then sends no load. Repeatable: each worker sends a part of the load, and the results are added.
    #[arg(long = "client", value_name = "COMMAND")]
    pub client: Vec<String>,
    // This key exists only in scenario files: when a worker is lost, stop the others, or continue without it.
    #[arg(skip)]
    pub on_worker_loss: Option<OnLoss>,
    /// Allow load on this public host
    ///
    /// With several clients, also needed for private hosts. Never needed for loopback, or for a server that
    /// straingauge starts on this machine (-- SERVER). Repeatable.
    #[arg(long = "allow-target", value_name = "HOST")]
    pub allow_target: Vec<String>,
    /// Watch the server with this command, e.g. 'ssh server straingauge watch --worker :80'
    #[arg(long, value_name = "COMMAND")]
    pub watch_with: Option<String>,
    /// Start, watch and stop SERVER on another machine with this command, e.g. 'ssh server'
    ///
    /// straingauge adds a shell command as its last argument.
    #[arg(long, value_name = "COMMAND", conflicts_with = "watch_with")]
    pub server_with: Option<String>,
    /// Ray workers of `straingauge fleet`, instead of those of --client.
    #[arg(skip)]
    #[serde(skip)]
    pub ray: Option<RayOptions>,
}
overlay!(FleetOptions; client, on_worker_loss, allow_target, watch_with, server_with, ray);

/// `straingauge fleet`.
#[derive(Debug, Args)]
#[command(
    after_help = "Needs Ray: pip install 'straingauge[fleet]' (python/), and a cluster: ray start --head, ray up, \
                  KubeRay."
)]
pub struct FleetArgs {
    #[command(flatten)]
    pub ray: RayOptions,
    /// The command to run.
    #[command(subcommand)]
    pub what: FleetCommand,
}

/// Commands of a fleet.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Run straingauge find with the load of every node
    Find(Box<FindArgs>),
    /// Run straingauge load with the load of every node
    Load(Box<LoadArgs>),
}

/// Where the workers of a fleet run, and how.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Ray cluster")]
pub struct RayOptions {
    /// Address of the Ray cluster, e.g. HOST:6379 [default: $RAY_ADDRESS]
    ///
    /// Without $RAY_ADDRESS: the cluster that this machine belongs to.
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,
    /// Number of workers, one per node, e.g. 3 or 3..20 [default: every node]
    ///
    /// With 3..20, find begins with 3, asks Ray for 20, and adds nodes that join between points. By default it adds
    /// all nodes that join.
    #[arg(long, value_name = "N")]
    pub workers: Option<FleetSize>,
    /// CPUs that Ray reserves for each worker [default: {worker_cpus}]
    #[arg(long, value_name = "N")]
    pub worker_cpus: Option<f64>,
    /// Custom resource that Ray reserves for each worker, e.g. load=1
    ///
    /// Only nodes with this resource get a worker. Repeatable.
    #[arg(long, value_name = "NAME=AMOUNT", value_parser = resource)]
    pub worker_resource: Vec<(String, f64)>,
    /// Use only nodes with this label, e.g. zone=b
    ///
    /// Repeatable: a node needs all labels.
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub worker_label: Vec<(String, String)>,
    /// Connect from every address of this interface, for more ports
    #[arg(long, value_name = "NAME")]
    pub source_interface: Option<String>,
    /// Command that runs the worker, e.g. 'numactl -N 0'
    ///
    /// It precedes the worker's own command. {number} is the worker's number, from 1.
    #[arg(long, value_name = "WORDS")]
    pub worker_prefix: Option<String>,
    /// straingauge program for the nodes [default: this one]
    ///
    /// Needed if the nodes are a different kind of machine.
    #[arg(long, value_name = "FILE")]
    pub worker_binary: Option<PathBuf>,
    /// Wait this long for nodes and their workers [default: {node_timeout}]
    #[arg(long, value_name = "TIME")]
    pub node_timeout: Option<Time>,
    /// Python with Ray and the package straingauge [default: {python}]
    #[arg(long, value_name = "FILE")]
    pub python: Option<String>,
}

/// The number of workers in a fleet, as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetSize {
    /// Workers at the start.
    pub least: u64,
    /// Maximum workers, if nodes that join later take part.
    pub most: Option<u64>,
}

impl FromStr for FleetSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| parse_count(text).map_err(|error| error.to_string());
        let workers = match text.split_once("..") {
            None => FleetSize { least: number(text)?, most: None },
            Some((least, most)) => FleetSize { least: number(least)?, most: Some(number(most)?) },
        };
        if workers.least == 0 {
            return Err("a fleet has at least 1 worker".into());
        }
        match workers.most.filter(|most| *most < workers.least) {
            Some(most) => Err(format!("the maximum {most} is below the minimum {}", workers.least)),
            None => Ok(workers),
        }
    }
}

/// Parses a custom resource of Ray: its name, and the amount that each worker needs.
pub fn resource(text: &str) -> Result<(String, f64), String> {
    let (name, amount) = text.split_once('=').unwrap_or_default();
    match name {
        "" => return Err("a resource is a name and an amount, e.g. load=1".into()),
        "CPU" => return Err("CPUs are not a custom resource: use --worker-cpus".into()),
        "GPU" | "memory" | "object_store_memory" | "bundle" => {
            return Err(format!("{name} is a resource of Ray's own, not a custom one"));
        }
        _ => {}
    }
    // Ray can count amounts in this range.
    let amount = amount.parse::<f64>().ok().filter(|amount| (1e-4..=1e14).contains(amount));
    Ok((name.to_string(), amount.ok_or("an amount is a number of at least 0.0001, e.g. load=1")?))
}

/// Parses a label of Ray's nodes: key and value, which is one value, not an expression such as `in(a,b)`.
pub fn label(text: &str) -> Result<(String, String), String> {
    // Ray's labels have the syntax of Kubernetes labels.
    let is_word = |word: &str, most: usize| {
        let is_whole = |end: Option<char>| end.is_some_and(|end| end.is_ascii_alphanumeric());
        let is_known = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        word.len() <= most
            && is_whole(word.chars().next())
            && is_whole(word.chars().next_back())
            && word.chars().all(is_known)
    };
    let (key, value) = text.split_once('=').ok_or("a label is a key and a value, e.g. zone=b")?;
    let (prefix, name) = key.rsplit_once('/').unwrap_or(("none", key));
    if !(is_word(prefix, 253) && is_word(name, 63) && is_word(value, 63)) {
        return Err("a label's key and value have letters and digits, with '-', '_' and '.' between them".into());
    }
    Ok((key.to_string(), value.to_string()))
}

//! Turns options into a plan: fills in defaults, checks numbers, reads files. Sends no load.

pub mod axis;
mod clients;
pub mod grpc;
pub mod protocol;
pub mod watching;

use crate::cli::{
    ArrivalWord, DriveArgs, FindOptions, IfPermitted, LoadOptions, Options, OutputOptions, PathOptions, PathWord,
};
use crate::cpus;
use crate::defaults;
use crate::failure::{refuse_if, refuse_typed, wrong_usage};
use crate::input::read_file;
use crate::quantity::{Count, Seconds, Share};
use crate::url::Target;
use crate::workload::{Resolved, WorkloadFiles};
use anyhow::Result;
use record::path::PathError;
use record::scenario::{ShiftPlan, SweepPlan};
use record::{Arrival, Criteria, LoadPlan, Pace, PathMechanism, PathPlan, TraceId, WhatIf};
use record::{PlainText, shell};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Limit for scenario files, bodies and URL lists, which are small.
const MAX_SCENARIO_BYTES: u64 = 1 << 20;
const MAX_BODY_BYTES: u64 = 256 << 20;
const MOST_REPEATS: u32 = 1000;
/// Minimum width for `--until-sure`: the knee's interval is never narrower than 4.5 %.
const SUREST: f64 = 0.05;
const LEAST_SURE: f64 = 0.5;

pub fn read_scenario(path: Option<&Path>) -> Result<Options> {
    let Some(path) = path else { return Ok(Options::default()) };
    let text = String::from_utf8(read_file(path, MAX_SCENARIO_BYTES, "--scenario")?)
        .map_err(|_| wrong_usage(format!("{} is not text: give a TOML file", path.display())))?;
    toml::from_str(&text).map_err(|error| {
        let before = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        let line = error.span().map_or(1, |span| before(span.start) + 1);
        wrong_usage(format!("{}:{line}: {}", path.display(), error.message().replace('\n', " ")))
    })
}

/// Overrides keys of a scenario with those of `--set`: `find.settle=5s`.
pub fn set(scenario: Options, keys: &[String]) -> Result<Options> {
    keys.iter().try_fold(scenario, |scenario, typed| {
        let wrong = |why: &str| wrong_usage(format!("--set '{}': {}", typed.escape_debug(), why.replace('\n', " ")));
        let split = |text: &str| text.split_once('.').map(|(section, key)| (section.to_string(), key.to_string()));
        let (place, value) = typed.split_once('=').ok_or_else(|| wrong("write it as SECTION.KEY=VALUE"))?;
        let (section, key) = split(place.trim()).ok_or_else(|| wrong("write it as SECTION.KEY=VALUE"))?;
        if ["predict", "simulate"].contains(&section.as_str()) {
            return Err(wrong("this section works only in files"));
        }
        let read = |value: &str| toml::from_str::<Options>(&format!("[{section}]\n{key} = {value}\n"));
        // A TOML value; anything else is text, which needs no quotes here.
        let set = read(value).or_else(|_| read(&toml::Value::from(value).to_string()));
        Ok(set.map_err(|error| wrong(error.message()))?.over(scenario))
    })
}

/// The options of `load`, `find` or `profile --axis`: the command line over the scenario file.
#[derive(Debug, Clone)]
pub struct RunOptions {
    pub target: Target,
    pub options: Options,
    pub output: OutputOptions,
}

impl RunOptions {
    /// The server to start on this machine; empty if it is running or on another machine.
    pub fn command(&self) -> &[String] {
        if self.options.fleet.server_with.is_some() { &[] } else { &self.options.server.command }
    }

    /// The command of the watcher on the server's machine, which may also start the server.
    pub fn watcher(&self) -> Result<Option<String>> {
        let fleet = &self.options.fleet;
        let Some(elsewhere) = &fleet.server_with else { return Ok(fleet.watch_with.clone()) };
        refuse_if(
            self.options.server.command.is_empty() || fleet.watch_with.is_some(),
            "--server-with starts and watches a server on another machine: add -- SERVER ..., and leave out \
                 --watch-with",
        )?;
        let (server, port) = (&self.options.server, format!(":{}", self.target.port));
        let timeout = server.server_timeout.map(|time| crate::defaults::typed(&time.0));
        let needs_group = (server.isolate == Some(IfPermitted::Always)).then_some("--needs-group");
        let cpus = server.server_cpus.as_deref();
        let typed = [("--server-cpus", cpus), ("--server-timeout", timeout.as_deref())];
        let typed = typed.into_iter().filter_map(|(option, value)| Some([option, value?])).flatten().chain(needs_group);
        let words = ["exec", "straingauge", "watch", "--worker", &port].into_iter().chain(typed).chain(["--"]);
        let words = shell::joined(words.chain(server.command.iter().map(String::as_str)));
        Ok(Some(format!("{elsewhere} {}", shell::quoted(&words))))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadKind {
    Single,
    /// Points of a sweep: pace and window change from point to point.
    Sweep,
}

impl LoadKind {
    pub fn is_sweep(self) -> bool {
        self == LoadKind::Sweep
    }

    fn default_warmup_ns(self) -> u64 {
        let warmup = if self.is_sweep() { defaults::POINT_DURATION / 5 } else { defaults::WARMUP };
        warmup.as_nanos() as u64
    }
}

/// The questions for `predict` in a scenario file; at least one.
pub fn what_ifs(path: &Path) -> Result<Vec<WhatIf>> {
    let kept = read_scenario(Some(path))?.predict.0;
    refuse_if(kept.is_empty(), format!("{} has no section [predict]; example: [predict] rate = '2x'", path.display()))?;
    Ok(kept)
}

/// Merges the command line with the scenario file. `example` is shown if neither has a URL.
pub fn run_options(args: DriveArgs, example: &str) -> Result<RunOptions> {
    let file = set(read_scenario(args.scenario.as_deref())?, &args.set)?;
    let options = args.options.over(file);
    let url = options.url.as_deref().ok_or_else(|| wrong_usage(format!("the URL is missing; example: {example}")))?;
    Ok(RunOptions { target: Target::parse(url)?, options, output: args.output })
}

pub fn path_plan(options: &PathOptions, seed: u64) -> Result<Option<PathPlan>> {
    if !options.is_set() {
        return Ok(None);
    }
    let delay_ns = options.delay.map_or(0, |time| time.nanos());
    let bandwidth_bits_per_sec = options.bandwidth.map_or(0, |bandwidth| bandwidth.0);
    refuse_if(options.bandwidth.is_some_and(|bandwidth| bandwidth.0 == 0), PathError::Bandwidth(0).to_string())?;
    let plan = PathPlan {
        delay_ns,
        loss_ratio: options.loss.map_or(0.0, |share| share.0),
        bandwidth_bits_per_sec,
        queue_bytes: PathPlan::default_queue_bytes(delay_ns, bandwidth_bits_per_sec),
        quickack: options.quickack,
        seed,
        // A path without a named mechanism chooses one when it is made.
        mechanism: match options.path_by {
            Some(PathWord::Netem) => PathMechanism::Netem,
            Some(PathWord::Tun) => PathMechanism::TunDelayLine,
            None => PathMechanism::Other,
        },
    };
    plan.check().map_err(|error| wrong_usage(error.to_string()))?;
    Ok(Some(plan))
}

/// Makes the engine's plan from the options, and opens the files that the engine reads during the run. `client_cpus`:
/// CPUs of its threads if none were typed.
pub fn load_plan(
    run: &RunOptions,
    kind: LoadKind,
    addresses: Vec<SocketAddr>,
    client_cpus: Vec<usize>,
) -> Result<(LoadPlan, WorkloadFiles)> {
    let (options, target) = (&run.options.load, &run.target);
    let protocol = protocol::protocol_plan(&run.options, target)?;
    let Resolved { targets, workload, pace, duration_ns, default_connections, default_warmup_ns, supplied } =
        crate::workload::resolve(&run.options.workload, options, target, kind.is_sweep())?;
    let asked = match options.rate {
        None => Pace::Closed,
        Some(rate) if rate.0 > 0.0 => Pace::Open { rate_per_sec: rate.0, arrival: arrival(options) },
        Some(_) => return Err(wrong_usage("--rate 0 would send nothing: give at least 0.001 requests per second")),
    };
    let pace = pace.unwrap_or(asked);
    // In a sweep, the option applies to the later open loop.
    refuse_if(
        pace == Pace::Closed && options.arrival.is_some() && !kind.is_sweep(),
        "--arrival applies to the open loop: give --rate too",
    )?;
    let default_connections = default_connections.unwrap_or(match pace {
        Pace::Closed => defaults::CONNECTIONS,
        Pace::Open { .. } => defaults::OPEN_LOOP_CONNECTIONS,
    });
    let connections = positive("--connections", options.connections, default_connections)?;
    let cpus = match &options.cpus {
        Some(list) => allowed(list, "--cpus")?,
        None => client_cpus,
    };
    let is_local = addresses.iter().all(|address| address.ip().is_loopback());
    let machine = record::machine::allowed_cpus().len();
    let default_threads = match cpus.len() {
        0 if is_local => (machine / 2).max(1),
        0 => machine,
        pinned => pinned,
    };
    let threads = positive("--threads", options.threads, default_threads as u64)?.min(connections).min(1024);
    let duration_ns = duration_ns.unwrap_or(Seconds::nanos_or(options.duration, defaults::DURATION));
    refuse_if(duration_ns < 10_000_000, "--duration must be at least 10ms: shorter windows measure nothing")?;
    // Default timeouts allow for the path. Opening a connection may take several round trips: TCP, TLS, the protocol.
    let round_trip_ns = path_plan(&run.options.path, 0)?.map_or(0, |path| path.full_round_trip_ns());
    let default = |time: Duration, round_trips: u64| time.as_nanos() as u64 + round_trips * round_trip_ns;
    let timeout_ns = options.timeout.map_or(default(defaults::TIMEOUT, 2), Seconds::nanos);
    let connect_timeout_ns = options.connect_timeout.map_or(default(defaults::CONNECT_TIMEOUT, 4), Seconds::nanos);
    let default_warmup_ns = default_warmup_ns.unwrap_or(kind.default_warmup_ns() + 2 * round_trip_ns);
    refuse_if(
        timeout_ns < 1_000_000 || connect_timeout_ns < 1_000_000,
        "--timeout, and connect-timeout of [load], must be at least 1ms",
    )?;
    let requests_per_connection = match options.requests_per_connection {
        // With 0, each request is a connection.
        Some(Count(0)) => 1,
        other => other.map_or(0, |count| count.0),
    };
    let body = match options.body.as_deref().map(|text| (text, text.strip_prefix('@'))) {
        None => Vec::new(),
        Some((_, Some(file))) => read_file(Path::new(file), MAX_BODY_BYTES, "--body @FILE")?,
        Some((text, None)) => text.as_bytes().to_vec(),
    };
    let default_method = if body.is_empty() { "GET" } else { "POST" };
    let method = options.method.clone().unwrap_or_else(|| default_method.into());
    refuse_if(
        method.is_empty()
            || !method.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)),
        format!("--method '{}' is not an HTTP method", method.escape_debug()),
    )?;
    let mut headers: Vec<(String, String)> = options.header.iter().map(|field| header(field)).collect::<Result<_>>()?;
    refuse_if(
        options.traceparent && headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(TraceId::FIELD)),
        "--traceparent and --header both write the field traceparent: leave one of them out",
    )?;
    let host = match headers.iter().position(|(name, _)| name.eq_ignore_ascii_case("host")) {
        Some(at) => headers.remove(at).1,
        None => target.host_field.clone(),
    };
    let is_http = protocol.is_http();
    let mut plan = LoadPlan {
        addresses,
        host: if is_http { host } else { String::new() },
        method: if is_http { method } else { String::new() },
        targets: if is_http { targets } else { Vec::new() },
        headers,
        traceparent: options.traceparent,
        body,
        pace,
        connections,
        requests_per_connection,
        threads: threads as usize,
        cpus,
        warmup_ns: options.warmup.map_or(default_warmup_ns, Seconds::nanos),
        duration_ns,
        timeout_ns,
        connect_timeout_ns,
        connect_rate_per_sec: options.connect_rate.map_or(0.0, |rate| rate.0),
        source_addresses: options.source_address.clone(),
        seed: options.seed.unwrap_or(defaults::SEED),
        precise: options.precise,
        clients: clients::client_plan(&run.options.clients, options, target)?,
        workload,
        protocol,
        share: record::LoadShare::WHOLE,
    };
    grpc::adapt(&mut plan, &run.options)?;
    Ok((plan, supplied))
}

fn arrival(options: &LoadOptions) -> Arrival {
    match options.arrival.unwrap_or_default() {
        ArrivalWord::Constant => Arrival::Constant,
        ArrivalWord::Poisson => Arrival::Poisson,
    }
}

/// Parses a CPU list and refuses CPUs that this process may not use.
pub fn allowed(list: &str, option: &str) -> Result<Vec<usize>> {
    let cpus = cpus::parse_list(list).map_err(|why| wrong_usage(format!("{option}: {why}")))?;
    let allowed = record::machine::allowed_cpus();
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(missing) => Err(wrong_usage(format!(
            "{option}: CPU {missing} is not among those this process may use ({})",
            record::machine::cpu_list(&allowed)
        ))),
        None => Ok(cpus),
    }
}

pub fn positive(option: &str, count: Option<Count>, default: u64) -> Result<u64> {
    match count {
        Some(Count(0)) => Err(wrong_usage(format!("{option} 0 would do nothing: give at least 1"))),
        Some(Count(count)) => Ok(count),
        None => Ok(default),
    }
}

fn header(field: &str) -> Result<(String, String)> {
    let shown = field.escape_debug().to_string();
    let (name, value) = field
        .split_once(':')
        .ok_or_else(|| wrong_usage(format!("--header '{shown}' has no colon: write 'Name: value'")))?;
    let (name, value) = (name.trim(), value.trim());
    refuse_if(
        http::HeaderName::from_bytes(name.as_bytes()).is_err(),
        format!("--header '{shown}': '{}' is not a field name", name.escape_debug()),
    )?;
    refuse_if(
        http::HeaderValue::from_bytes(value.as_bytes()).is_err(),
        format!("--header '{shown}': control characters cannot be sent in a field"),
    )?;
    let owned = ["connection", "content-length", "transfer-encoding"];
    refuse_if(
        owned.contains(&name.to_ascii_lowercase().as_str()),
        format!("--header '{shown}': straingauge sets {name} itself (see --requests-per-connection, --body)"),
    )?;
    Ok((name.to_string(), value.to_string()))
}

pub fn threshold_ratio(typed: Option<Share>) -> Result<f64> {
    less_than_all("--threshold", typed.unwrap_or(defaults::THRESHOLD).0)
}

fn less_than_all(option: &str, share: f64) -> Result<f64> {
    refuse_if(share >= 1.0, format!("{option} 100% can never be exceeded: give a smaller share, e.g. 5% or 0.05"))?;
    Ok(share)
}

/// The command that moves live traffic, and its shares; `None` if straingauge sends the load.
pub fn shift_plan(options: &FindOptions, drive: &RunOptions) -> Result<Option<ShiftPlan>> {
    let (command, shares) = match (&options.shift, &options.shares) {
        (None, None) => return Ok(None),
        (Some(command), Some(shares)) => (command.clone(), shares),
        _ => return Err(wrong_usage("--shift and --shares need each other: give both")),
    };
    if !command.contains("{share}") {
        return Err(wrong_usage("the command of --shift must contain {share}, which is replaced by the share to set"));
    }
    let wrong = || {
        wrong_usage(format!(
            "--shares '{}': give the usual share and the largest permitted one, e.g. 25..80",
            PlainText::new(shares, 60)
        ))
    };
    let (usual, most) = shares.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|share| (1e-3..=1e6).contains(share));
    let (usual, most) = number(usual).zip(number(most)).filter(|(usual, most)| usual < most).ok_or_else(wrong)?;
    let (fleet, server) = (&drive.options.fleet, &drive.options.server);
    let typed = [
        (options.axis.is_some(), "--axis"),
        (options.sweep.is_some(), "--sweep"),
        (options.unload, "--unload"),
        (options.until_sure.is_some(), "--until-sure"),
        (options.compare_with.is_some(), "--compare-with"),
        (options.beside.is_some(), "--beside"),
        (!server.command.is_empty(), "-- SERVER"),
        (fleet.watch_with.is_some(), "--watch-with"),
        (crate::fleet::is_asked_for(fleet), "--client"),
    ];
    refuse_typed(&typed, |option| {
        format!("--shift measures a running server here, under live traffic: leave {option} out")
    })?;
    Ok(Some(ShiftPlan { command, usual, most }))
}

pub fn sweep_plan(options: &FindOptions, load: &LoadOptions) -> Result<SweepPlan> {
    let axis = axis::axis_plan(options, load)?;
    refuse_if(
        axis.is_none() && (load.rate.is_some() || load.connections.is_some()),
        "find chooses connections and rate itself: limit them with --max-connections, or use load",
    )?;
    let defaults = Criteria::default();
    let share = |typed: Option<Share>, default: f64| typed.map_or(default, |share| share.0);
    let mut criteria = Criteria {
        elastic_gain_ratio: share(options.elastic_gain, defaults.elastic_gain_ratio),
        saturation_ratio: share(options.saturation, defaults.saturation_ratio),
        efficiency_loss_ratio: share(options.efficiency_loss, defaults.efficiency_loss_ratio),
        error_ratio: less_than_all("error-limit of [find]:", share(options.error_limit, defaults.error_ratio))?,
        goodput_ratio: share(options.goodput_limit, defaults.goodput_ratio),
        p99_limit_ns: options.p99_limit.map_or(defaults.p99_limit_ns, |time| time.nanos()),
        bracket_ratio: share(options.bracket, defaults.bracket_ratio),
        ..defaults
    };
    refuse_if(criteria.bracket_ratio < 0.001, "bracket of [find] must be at least 0.1%; less is noise")?;
    let connections_min = positive("min-connections of [find]:", options.min_connections, defaults::MIN_CONNECTIONS)?;
    let connections_max = positive("--max-connections", options.max_connections, defaults::MAX_CONNECTIONS)?;
    refuse_if(
        connections_min > connections_max,
        format!("min-connections {connections_min} of [find] is more than --max-connections {connections_max}"),
    )?;
    let until_sure_ratio = options.until_sure.map(|share| share.0);
    if let Some(width) = until_sure_ratio {
        refuse_beside_until_sure(options, axis.is_some())?;
        refuse_if(
            !(SUREST..=LEAST_SURE).contains(&width),
            format!(
                "--until-sure {} is out of range: give 5% to 50% of the yield point (its interval is never narrower, \
                 and a wider one needs no repeats)",
                record::units::exact_percent(width)
            ),
        )?;
        criteria.yield_interval_ratio = width;
        // The interval is at least as wide as the final bracket of the search.
        criteria.bracket_ratio = criteria.bracket_ratio.min(width / 2.0);
    }
    refuse_if(options.unload && axis.is_some(), "--unload applies to the closed loop: leave out --axis")?;
    let default_budget = match (until_sure_ratio, &options.beside) {
        (Some(_), _) => defaults::UNTIL_SURE_BUDGET,
        (None, Some(_)) => defaults::BESIDE_BUDGET,
        (None, None) => defaults::BUDGET,
    };
    let budget_ns = Seconds::nanos_or(options.budget, default_budget);
    refuse_if(budget_ns < 5_000_000_000, "--budget must be at least 5s")?;
    Ok(SweepPlan {
        connections_min,
        connections_max,
        repeats: match until_sure_ratio {
            Some(_) => MOST_REPEATS,
            None => u32::try_from(positive("--repeats", options.repeats, default_repeats(options, budget_ns))?)
                .unwrap_or(u32::MAX)
                .min(MOST_REPEATS),
        },
        point_duration_ns: Seconds::nanos_or(load.duration, defaults::POINT_DURATION).max(10_000_000),
        warmup_ns: load.warmup.map(|time| time.nanos()),
        budget_ns,
        open_connections: positive(
            "open-connections of [find]:",
            options.open_connections,
            defaults::OPEN_CONNECTIONS,
        )?,
        arrival: arrival(load),
        criteria,
        until_sure_ratio,
        unload: options.unload,
        axis,
    })
}

/// A comparison with a longer budget gets more rounds.
fn default_repeats(options: &FindOptions, budget_ns: u64) -> u64 {
    if options.compare_with.is_some() || options.beside.is_some() {
        (budget_ns / 10_000_000_000).clamp(defaults::ROUNDS, 2 * defaults::ROUNDS)
    } else {
        defaults::REPEATS
    }
}

/// Refuses options that leave nothing for `--until-sure`.
fn refuse_beside_until_sure(options: &FindOptions, has_axis: bool) -> Result<()> {
    let typed = [
        (has_axis, "--axis"),
        (options.compare_with.is_some(), "--compare-with"),
        (options.beside.is_some(), "--beside"),
        (options.repeats.is_some(), "--repeats"),
    ];
    refuse_typed(&typed, |option| {
        format!("--until-sure repeats the sweeps over connections and rate as often as needed: leave {option} out")
    })
}

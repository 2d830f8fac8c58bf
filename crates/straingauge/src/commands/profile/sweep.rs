//! `straingauge profile --axis`: Kim and Rixner's experiments (2005, sections 4 and 5): layers per packet against the
//! packet rate, the connections or the delay, of the microbenchmark or of a web server.
//!
//! Points are measured and kept as `find` does with an axis; only what is profiled and what is sent differ.

use super::frequency_hz;
use crate::cli::{
    ArrivalWord, AxisWord, LoadOptions, Method, Options, OutputOptions, PathOptions, ProfileArgs, ServerOptions,
    SweepArgs, SweepWord,
};
use crate::commands::find::{Purpose, SearchPlan, search};
use crate::defaults;
use crate::failure::wrong_usage;
use crate::plan::{RunOptions, axis as places};
use crate::quantity::{Count, Rate, Time};
use crate::url::Target;
use anyhow::Result;
use load::MOST_CONNECTIONS;
use load::microbenchmark::PORT;
use record::scenario::SweepPlan;
use record::{Arrival, Axis, AxisPlan, Criteria};
use std::process::ExitCode;
use std::time::Duration;

const SHORTEST_POINT: Duration = Duration::from_millis(200);
const SHORTEST_BUDGET: Duration = Duration::from_secs(1);
/// The highest rate: a sender with a dedicated CPU sends less.
const MOST_RATE: f64 = 1e7;

/// Runs the command.
pub(super) fn run(args: &ProfileArgs, axis: AxisWord) -> Result<ExitCode> {
    if !matches!(args.accounting, None | Some(Method::Sampled)) {
        return Err(wrong_usage("--axis measures by samples: leave --accounting out"));
    }
    let typed = &args.sweep;
    let is_server = !typed.command.is_empty();
    let url = match (&args.port, is_server) {
        (Some(url), true) => url.clone(),
        (None, false) => format!("http://127.0.0.1:{PORT}/"),
        (Some(_), false) => {
            return Err(wrong_usage(
                "--axis starts what it profiles: add -- SERVER ... after the URL, or leave the URL out for the microbenchmark",
            ));
        }
        (None, true) => {
            return Err(wrong_usage(
                "the server's URL is missing, as in: straingauge profile --axis connections http://127.0.0.1:8080/ -- SERVER ...",
            ));
        }
    };
    let values = Values::of(typed, axis, is_server)?;
    let frequency_hz = frequency_hz(args)?.unwrap_or(defaults::FREQUENCY as u32);
    let purpose = match is_server {
        true => Purpose::Profile { frequency_hz },
        false => Purpose::Microbenchmark { frequency_hz },
    };
    let sweep = values.plan(args, is_server)?;
    let are_connections_typed = typed.connections.is_some();
    let plan = SearchPlan { sweep, which: SweepWord::Both, purpose, second: None, are_connections_typed, live: None };
    let target = Target::parse(&url)?;
    let command = if is_server { typed.command.clone() } else { sender()? };
    let options = Options {
        name: Some(format!("profile-{}", values.axis.word())),
        url: Some(if is_server { url } else { "microbenchmark".into() }),
        load: values.load(args, is_server),
        path: values.path(is_server),
        server: ServerOptions { server_cpus: typed.server_cpus.clone(), command, ..Default::default() },
        ..Options::default()
    };
    let output =
        OutputOptions { out: typed.out.clone(), json: args.json, quiet: typed.quiet, ..OutputOptions::default() };
    search(RunOptions { target, options, output }, plan, &[])
}

/// The command line that runs this program as the sender.
fn sender() -> Result<Vec<String>> {
    let own = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_string));
    Ok(vec![own.unwrap_or_else(|| "/proc/self/exe".into()), "segment-sender".into(), PORT.to_string()])
}

/// The values that are varied, and those that are held.
#[derive(Debug)]
struct Values {
    axis: Axis,
    values: Vec<f64>,
    connections: u64,
    /// `None`: a closed loop.
    rate_per_sec: Option<f64>,
    /// `None`: the path is not delayed.
    delay: Option<Duration>,
}

impl Values {
    fn of(typed: &SweepArgs, axis: AxisWord, is_server: bool) -> Result<Values> {
        let axis = Axis::from(axis);
        if let Some(Count(wrong)) = typed.connections.filter(|count| !(1..=MOST_CONNECTIONS).contains(&count.0)) {
            return Err(wrong_usage(format!("--connections {wrong} is not between 1 and {MOST_CONNECTIONS}")));
        }
        places::refuse_the_other_rate(Some(axis), is_server, typed.rate.is_some(), typed.packet_rate.is_some())?;
        let held = match axis {
            Axis::Connections => ("--connections", typed.connections.is_some()),
            Axis::Rate => ("--rate", typed.rate.is_some()),
            Axis::PacketRate => ("--packet-rate", typed.packet_rate.is_some()),
            _ => ("--delay", typed.delay.is_some()),
        };
        places::refuse_what_is_varied(axis, &[held])?;
        let rate_per_sec = match is_server {
            true => typed.rate.map(|rate| rate.0),
            false => Some(typed.packet_rate.map_or(defaults::PROFILE_PACKET_RATE as f64, |rate| rate.0)),
        };
        let given = typed.axis_values.as_deref().map(|text| places::values(text, axis)).transpose()?;
        let most = match axis {
            Axis::Connections => MOST_CONNECTIONS as f64,
            Axis::Rate | Axis::PacketRate => MOST_RATE,
            _ => f64::INFINITY,
        };
        let largest = given.iter().flatten().copied().fold(0.0, f64::max);
        let rate_option = if is_server { "--rate" } else { "--packet-rate" };
        if rate_per_sec.is_some_and(|rate| rate <= 0.0) {
            return Err(wrong_usage(format!("{rate_option} 0 sends nothing")));
        }
        for (option, value, most) in
            [("--axis-values", largest, most), (rate_option, rate_per_sec.unwrap_or(0.0), MOST_RATE)]
        {
            if value > most {
                return Err(wrong_usage(format!("{option} {value:.0} is more than {most:.0}")));
            }
        }
        let web_held = defaults::PROFILE_WEB_HELD_CONNECTIONS;
        let numbers = |values: &[u64]| values.iter().map(|value| *value as f64).collect();
        let (connections, values) = match (axis, is_server) {
            (Axis::Connections, true) => (1, numbers(defaults::PROFILE_WEB_CONNECTIONS)),
            (Axis::Connections, false) => (1, numbers(defaults::PROFILE_CONNECTIONS)),
            // Shares of the capacity, which is measured during the run.
            (Axis::Rate, _) => (web_held, Vec::new()),
            (Axis::PacketRate, _) => (defaults::PROFILE_HELD_CONNECTIONS, numbers(defaults::PROFILE_PACKET_RATES)),
            (_, is_server) => (
                if is_server { web_held } else { defaults::PROFILE_DELAY_CONNECTIONS },
                defaults::PROFILE_DELAYS.iter().map(|delay| delay.as_nanos() as f64).collect(),
            ),
        };
        if is_server && axis == Axis::Connections && rate_per_sec.is_some() {
            return Err(wrong_usage(
                "--axis connections loads a server in a closed loop: leave --rate out, or vary it with --axis rate",
            ));
        }
        Ok(Values {
            axis,
            values: given.unwrap_or(values),
            connections: typed.connections.map_or(connections, |count| count.0),
            rate_per_sec,
            delay: typed.delay.map(|delay| delay.0).filter(|delay| !delay.is_zero()),
        })
    }

    fn plan(&self, args: &ProfileArgs, is_server: bool) -> Result<SweepPlan> {
        let point = args.duration.map_or(defaults::PROFILE_POINT, |time| time.0);
        if point < SHORTEST_POINT {
            return Err(wrong_usage("--duration must be at least 200ms"));
        }
        let budget = args.sweep.budget.map_or(defaults::PROFILE_BUDGET, |time| time.0);
        if budget < SHORTEST_BUDGET {
            return Err(wrong_usage("--budget must be at least 1s: less measures nothing"));
        }
        let repeats = args.sweep.repeats.map_or(defaults::REPEATS, |count| count.0);
        if !(1..=1000).contains(&repeats) {
            return Err(wrong_usage("--repeats must lie between 1 and 1000"));
        }
        // A server's capacity bounds the rates that are found during the run.
        let overload_ratio = if self.axis == Axis::Rate { 0.9 } else { 1.0 };
        Ok(SweepPlan {
            connections_min: 1,
            connections_max: self.most_connections(),
            repeats: repeats as u32,
            point_duration_ns: point.as_nanos() as u64,
            warmup_ns: None,
            budget_ns: budget.as_nanos() as u64,
            open_connections: self.connections,
            arrival: if is_server { Arrival::Poisson } else { Arrival::Constant },
            criteria: Criteria::default(),
            until_sure_ratio: None,
            unload: false,
            axis: Some(AxisPlan {
                slowed: Vec::new(),
                function: None,
                axis: self.axis,
                values: self.values.clone(),
                overload_ratio,
                conforming_ratio: 1.0,
            }),
        })
    }

    fn most_connections(&self) -> u64 {
        match self.axis {
            Axis::Connections => self.values.iter().fold(1.0f64, |most, value| most.max(*value)) as u64,
            _ => self.connections,
        }
    }

    fn load(&self, args: &ProfileArgs, is_server: bool) -> LoadOptions {
        let rate = self.rate_per_sec.filter(|_| !matches!(self.axis, Axis::Rate)).map(Rate);
        LoadOptions {
            connections: Some(Count(self.connections)),
            arrival: (rate.is_some() && !is_server).then_some(ArrivalWord::Constant),
            rate,
            duration: args.duration,
            cpus: args.sweep.cpus.clone(),
            ..LoadOptions::default()
        }
    }

    /// The microbenchmark's reader acknowledges every segment, as the paper's did.
    fn path(&self, is_server: bool) -> PathOptions {
        PathOptions { delay: self.delay.map(Time), quickack: !is_server, ..PathOptions::default() }
    }
}

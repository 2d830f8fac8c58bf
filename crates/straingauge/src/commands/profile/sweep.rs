//! `straingauge profile --axis`: Kim and Rixner's experiments (2005, sections 4 and 5): layers per packet against the
//! packet rate, the connections or the delay, of the microbenchmark or of a web server.
//!
//! Points are measured and kept as `find` does with an axis; only what is profiled and what is sent differ.

use super::frequency_hz;
use crate::cli::{
    ArrivalWord, LoadOptions, Method, OutputOptions, PathOptions, ProfileArgs, ServerOptions, SweepArgs, SweepAxis,
    SweepWord,
};
use crate::commands::find::{Hunt, Purpose, search};
use crate::failure::wrong_usage;
use crate::plan::RunOptions;
use crate::quantity::{Count, Rate, Time};
use anyhow::Result;
use load::microbenchmark::{PORT, RATE_PER_SEC};
use record::scenario::SweepPlan;
use record::{Arrival, Axis, AxisPlan, Criteria};
use std::process::ExitCode;
use std::time::Duration;

const FREQUENCY_HZ: u32 = 997;
const POINT: Duration = Duration::from_secs(4);
const SHORTEST_POINT: Duration = Duration::from_millis(200);
/// Five values are measured in less than three minutes.
const BUDGET: Duration = Duration::from_secs(175);
const SHORTEST_BUDGET: Duration = Duration::from_secs(1);
const REPEATS: u64 = 5;

/// As in the paper's Figure 5.
const CONNECTIONS: [u64; 5] = [4, 32, 128, 512, 2048];
/// What a web server's usual limits let through.
const WEB_CONNECTIONS: [u64; 5] = [4, 32, 128, 512, 1024];
/// As in its Figure 6.
const DELAY_CONNECTIONS: u64 = 2048;
const WEB_HELD_CONNECTIONS: u64 = 256;
const DELAYS_MS: [u64; 5] = [0, 5, 10, 20, 40];
/// 100, 200, 400, 600 and 800 Mbit/s of full segments, as in its Figure 4.
const RATES: [u64; 5] = [8333, 16_667, 33_333, 50_000, 66_667];
/// A sender that has a CPU to itself sends less.
const MOST_RATE: u64 = 10_000_000;
const MOST_VALUES: usize = 64;

/// Runs the command.
pub(super) fn run(args: &ProfileArgs, axis: SweepAxis) -> Result<ExitCode> {
    if !matches!(args.accounting, None | Some(Method::Sampled)) {
        return Err(wrong_usage("--axis measures by samples: leave --accounting out"));
    }
    let sweep = &args.sweep;
    let is_server = !sweep.command.is_empty();
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
    let values = Values::of(sweep, axis, is_server)?;
    let frequency_hz = frequency_hz(args)?.unwrap_or(FREQUENCY_HZ);
    let purpose = match is_server {
        true => Purpose::Profile { frequency_hz },
        false => Purpose::Microbenchmark { frequency_hz },
    };
    let hunt = Hunt { sweep: values.plan(args, axis, is_server)?, which: SweepWord::Both, purpose };
    let run = RunOptions::of(&url)?;
    let options = RunOptions {
        name: Some(format!("profile-{}", values.axis.word())),
        url: if is_server { url } else { "microbenchmark".into() },
        load: values.load(args, is_server),
        path: values.path(is_server),
        server: ServerOptions { server_cpus: sweep.server_cpus.clone(), ..Default::default() },
        output: OutputOptions {
            out: sweep.out.clone(),
            json: args.json,
            quiet: sweep.quiet,
            ..OutputOptions::default()
        },
        command: if is_server { sweep.command.clone() } else { sender()? },
        ..run
    };
    search(options, hunt, &[])
}

/// This program in its other role.
fn sender() -> Result<Vec<String>> {
    let own = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_string));
    Ok(vec![own.unwrap_or_else(|| "/proc/self/exe".into()), "segment-sender".into(), PORT.to_string()])
}

/// What is varied, and what is held.
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
    fn of(sweep: &SweepArgs, axis: SweepAxis, is_server: bool) -> Result<Values> {
        let counts = |option: &str, typed: &[Count], most: u64| -> Result<Vec<f64>> {
            if let Some(wrong) = typed.iter().find(|count| !(1..=most).contains(&count.0)) {
                return Err(wrong_usage(format!("{option} {} is not between 1 and {most}", wrong.0)));
            }
            Ok(typed.iter().map(|count| count.0 as f64).collect())
        };
        let connections = counts("--connections", &sweep.connections, 1_000_000)?;
        let rates = counts("--rate", &sweep.rate, MOST_RATE)?;
        let delays: Vec<f64> = sweep.delay.iter().map(|delay| delay.nanos() as f64).collect();
        if let Some(long) = delays.iter().find(|delay| **delay > record::path::MAX_DELAY_NS as f64) {
            let long = record::units::format_nanos(*long);
            return Err(wrong_usage(format!("--delay {long} is longer than the 10s that a path may delay")));
        }
        let lists = [
            ("--connections", &connections, axis == SweepAxis::Connections),
            ("--rate", &rates, axis == SweepAxis::PacketRate),
            ("--delay", &delays, axis == SweepAxis::Delay),
        ];
        for (option, list, is_varied) in lists {
            if list.len() > 1 && !is_varied {
                return Err(wrong_usage(format!("{option} takes a list only where --axis varies it")));
            }
            if list.len() > MOST_VALUES {
                return Err(wrong_usage(format!("{option} has more than {MOST_VALUES} values")));
            }
        }
        let or = |typed: Vec<f64>, default: &[u64], unit: f64| match typed.is_empty() {
            true => default.iter().map(|value| *value as f64 * unit).collect(),
            false => typed,
        };
        let held = |typed: &[f64], default: u64| typed.first().map_or(default, |count| *count as u64);
        let held_rate = rates.first().copied().or((!is_server).then_some(RATE_PER_SEC as f64));
        let held_delay =
            delays.first().map(|nanos| Duration::from_nanos(*nanos as u64)).filter(|delay| !delay.is_zero());
        let values = match axis {
            SweepAxis::Connections => Values {
                axis: Axis::Connections,
                values: or(connections, if is_server { &WEB_CONNECTIONS } else { &CONNECTIONS }, 1.0),
                connections: 1,
                rate_per_sec: held_rate,
                delay: held_delay,
            },
            SweepAxis::PacketRate => Values {
                axis: if is_server { Axis::Rate } else { Axis::PacketRate },
                connections: held(&connections, if is_server { WEB_HELD_CONNECTIONS } else { 1 }),
                rate_per_sec: held_rate,
                values: if is_server { rates } else { or(rates, &RATES, 1.0) },
                delay: held_delay,
            },
            SweepAxis::Delay => Values {
                axis: Axis::Delay,
                connections: held(&connections, if is_server { WEB_HELD_CONNECTIONS } else { DELAY_CONNECTIONS }),
                values: or(delays, &DELAYS_MS, 1e6),
                rate_per_sec: held_rate,
                delay: None,
            },
        };
        if is_server && axis == SweepAxis::Connections && values.rate_per_sec.is_some() {
            return Err(wrong_usage(
                "--axis connections loads a server in a closed loop: leave --rate out, or vary it with --axis packet-rate",
            ));
        }
        Ok(values)
    }

    fn plan(&self, args: &ProfileArgs, axis: SweepAxis, is_server: bool) -> Result<SweepPlan> {
        let point = args.duration.map_or(POINT, |time| time.0);
        if point < SHORTEST_POINT {
            return Err(wrong_usage("--duration must be at least 200ms"));
        }
        let budget = args.sweep.budget.map_or(BUDGET, |time| time.0);
        if budget < SHORTEST_BUDGET {
            return Err(wrong_usage("--budget must be at least 1s: less measures nothing"));
        }
        let repeats = args.sweep.repeats.map_or(REPEATS, |count| count.0);
        if !(1..=1000).contains(&repeats) {
            return Err(wrong_usage("--repeats must lie between 1 and 1000"));
        }
        // A server's capacity bounds the rates that are found during the run.
        let overload_ratio = if is_server && axis == SweepAxis::PacketRate { 0.9 } else { 1.0 };
        Ok(SweepPlan {
            connections_min: 1,
            connections_max: self.most_connections(),
            repeats: repeats as u32,
            point_duration_ns: point.as_nanos() as u64,
            budget_ns: budget.as_nanos() as u64,
            open_connections: self.connections,
            arrival: if is_server { Arrival::Poisson } else { Arrival::Constant },
            criteria: Criteria::default(),
            axis: Some(AxisPlan {
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

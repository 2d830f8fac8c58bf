//! `straingauge predict`.

use crate::quantity::{Count, Time};
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;

/// `straingauge predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// Run directories of one server, each with a closed-loop sweep (find)
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Closed loop with so many connections
    #[arg(long, value_name = "N", conflicts_with = "rate")]
    pub connections: Option<Count>,
    /// Open loop at this rate: requests per second, or 2x for twice the run's highest throughput
    #[arg(long, value_name = "RATE")]
    pub rate: Option<RateWord>,
    /// The server with so many CPUs
    #[arg(long, value_name = "N")]
    pub cores: Option<Count>,
    /// A path that is longer by this for each round trip
    #[arg(long, value_name = "TIME")]
    pub delay: Option<Time>,
    /// Cold connections beside the load (needs runs with different numbers of them)
    #[arg(long, value_name = "N")]
    pub cold: Option<Count>,
    /// With scalable select: nothing grows with cold connections (needs runs that show such growth)
    #[arg(long)]
    pub scaled_select: bool,
    /// Another mix: shares of the size classes, by label or number, as in '1=90%,2=9%,3=1%' (needs a run for each class, with different mixes)
    #[arg(long, value_name = "CLASS=SHARE,...")]
    pub mix: Option<MixWord>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// A rate as typed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateWord {
    /// Requests per second.
    PerSec(f64),
    /// So many times what the run reached.
    Times(f64),
}

impl FromStr for RateWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rate = match text.trim().strip_suffix('x') {
            Some(times) => times.trim().parse().ok().map(RateWord::Times),
            None => record::units::parse_rate(text).ok().map(RateWord::PerSec),
        };
        let fits =
            |rate: &RateWord| matches!(rate, RateWord::PerSec(v) | RateWord::Times(v) if v.is_finite() && *v > 0.0);
        rate.filter(fits).ok_or_else(|| "a rate is a positive number such as 10k, or a multiple such as 2x".to_string())
    }
}

/// A mix as typed: class and share.
#[derive(Debug, Clone, PartialEq)]
pub struct MixWord(pub Vec<(String, f64)>);

impl FromStr for MixWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let part = |part: &str| {
            let (class, share) = part.rsplit_once('=')?;
            let share = share.trim();
            let value = match share.strip_suffix('%') {
                Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
                None => share.parse().ok()?,
            };
            let class = class.trim();
            (!class.is_empty() && (0.0..=1.0).contains(&value)).then(|| (class.to_string(), value))
        };
        let parts: Option<Vec<(String, f64)>> = text.split(',').map(part).collect();
        let parts = parts.ok_or_else(|| "a mix is a list of classes with shares, such as 1=90%,2=10%".to_string())?;
        let sum: f64 = parts.iter().map(|(_, share)| share).sum();
        if (sum - 1.0).abs() > 1e-3 {
            return Err(format!("the shares make {:.1} %: they must make 100 %", sum * 100.0));
        }
        Ok(MixWord(parts))
    }
}

use crate::quantity::{Count, Time, read_as_typed};
use analyze::predict::what_if::check;
use clap::Args;
use record::WhatIf;
use serde::de::{Error, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;
use std::str::FromStr;

/// `straingauge predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// Run directories of one server, each with a closed-loop sweep (find)
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    #[command(flatten)]
    pub question: WhatIfOptions,
    /// Read options from a TOML file: the questions of section predict
    ///
    /// Without a file and a question, those kept with the run are answered.
    #[arg(long, value_name = "FILE", help_heading = "What if", conflicts_with = "WhatIfOptions")]
    pub scenario: Option<PathBuf>,
    /// Print JSON, not tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// A rate as typed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateWord {
    /// Rate in requests per second.
    PerSec(f64),
    /// Rate as a multiple of the run's highest rate.
    Times(f64),
}

read_as_typed!(RateWord);

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

/// Parses names with shares: `NAME=20%,OTHER=0.5`.
fn shares(text: &str) -> Option<Vec<(String, f64)>> {
    let part = |part: &str| {
        let (name, share) = part.rsplit_once('=')?;
        let share = share.trim();
        let value = match share.strip_suffix('%') {
            Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
            None => share.parse().ok()?,
        };
        let name = name.trim();
        (!name.is_empty() && (0.0..=1.0).contains(&value)).then(|| (name.to_string(), value))
    };
    text.split(',').map(part).collect()
}

/// Cheaper layers and functions, as typed: name and saved share.
#[derive(Debug, Clone, PartialEq)]
pub struct CheaperWord(pub Vec<(String, f64)>);

impl FromStr for CheaperWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words =
            "a list of layers or functions, each with the share of its cost that is saved, such as tcp=20%,user=50%";
        shares(text).map(CheaperWord).ok_or_else(|| words.to_string())
    }
}

read_as_typed!(CheaperWord);

/// A mix, as typed: class and share.
#[derive(Debug, Clone, PartialEq)]
pub struct MixWord(pub Vec<(String, f64)>);

impl FromStr for MixWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts =
            shares(text).ok_or_else(|| "a mix is a list of classes with shares, such as 1=90%,2=10%".to_string())?;
        let sum: f64 = parts.iter().map(|(_, share)| share).sum();
        if (sum - 1.0).abs() > 1e-3 {
            return Err(format!("the shares add up to {:.1} %, not 100 %", sum * 100.0));
        }
        Ok(MixWord(parts))
    }
}

read_as_typed!(MixWord);

/// A question: typed, or from a section of a scenario file, where it may have a name.
#[derive(Debug, Default, Clone, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "What if")]
pub struct WhatIfOptions {
    #[arg(skip)]
    pub name: String,
    /// Number of connections, in the closed loop
    #[arg(long, short = 'c', value_name = "N", conflicts_with = "rate")]
    pub connections: Option<Count>,
    /// Requests per second (open loop), or e.g. 2x: twice the measured maximum
    #[arg(long, short = 'r', value_name = "RATE")]
    pub rate: Option<RateWord>,
    /// Number of CPUs that the server uses
    #[arg(long, value_name = "N")]
    pub cores: Option<Count>,
    /// Add this time to the round trip
    #[arg(long, value_name = "TIME")]
    pub round_trip: Option<Time>,
    /// Idle connections held open
    ///
    /// Needs runs with different numbers of them.
    #[arg(long, value_name = "N")]
    pub cold: Option<Count>,
    /// Server under scalable select
    ///
    /// Predicts that no cost grows with idle connections. Needs runs that show such growth.
    #[arg(long)]
    pub scaled_select: bool,
    /// Share of its cost that a layer or function saves, e.g. tcp=20%
    ///
    /// Layers: user, system-call, tcp, ip, ethernet, driver, other.
    #[arg(long, value_name = "NAME=SHARE,...")]
    pub cheaper: Option<CheaperWord>,
    /// Another mix of size classes, e.g. '1=90%,2=9%,3=1%'
    ///
    /// Classes by label or number. Needs a run for each class, with different mixes.
    #[arg(long, value_name = "CLASS=SHARE,...")]
    pub class_shares: Option<MixWord>,
}

impl WhatIfOptions {
    /// The question in base units.
    pub fn what_if(self) -> WhatIf {
        WhatIf {
            name: self.name,
            connections: self.connections.map(|count| count.0),
            rate_per_sec: self.rate.and_then(|rate| if let RateWord::PerSec(rate) = rate { Some(rate) } else { None }),
            rate_times: self.rate.and_then(|rate| if let RateWord::Times(times) = rate { Some(times) } else { None }),
            cpus: self.cores.map(|count| count.0),
            delay_ns: self.round_trip.map(Time::nanos),
            cold: self.cold.map(|count| count.0),
            scaled_select: self.scaled_select,
            cheaper: self.cheaper.map(|cheaper| cheaper.0).unwrap_or_default(),
            mix: self.class_shares.map(|mix| mix.0).unwrap_or_default(),
        }
    }

    /// Checks a question of a scenario file; an invalid value is refused with its position.
    fn checked<E: Error>(self) -> Result<WhatIf, E> {
        let what_if = self.what_if();
        check(&what_if).map_err(E::custom)?;
        Ok(what_if)
    }
}

/// `[predict]` of a scenario file, or several `[[predict]]`.
#[derive(Debug, Default, Clone)]
pub struct WhatIfsToml(pub Vec<WhatIf>);

impl<'de> Deserialize<'de> for WhatIfsToml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        /// One question. A separate type lets errors name its lines.
        struct One(WhatIf);
        impl<'de> Deserialize<'de> for One {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                WhatIfOptions::deserialize(deserializer)?.checked().map(One)
            }
        }
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = WhatIfsToml;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a section [predict], or several [[predict]]")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let one = WhatIfOptions::deserialize(MapAccessDeserializer::new(map))?;
                Ok(WhatIfsToml(vec![one.checked()?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(One(what_if)) = list.next_element()? {
                    all.push(what_if);
                }
                Ok(WhatIfsToml(all))
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

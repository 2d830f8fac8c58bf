//! The options of a run, typed or from the sections of a scenario file.

use super::Overlay;
use super::clients::ClientOptions;
use super::drive::ServerOptions;
use super::find::FindOptions;
use super::fleet::FleetOptions;
use super::load::LoadOptions;
use super::path::PathOptions;
use super::predict::WhatIfsToml;
use super::protocol::ProtocolOptions;
use super::watching::WatchingOptions;
use super::workload::WorkloadOptions;
use crate::quantity::Speed;
use clap::Args;
use serde::Deserialize;

/// The options by section. Those skipped here are typed elsewhere, or exist only in scenario files.
#[derive(Debug, Default, Clone, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// Where to send requests: http://HOST:PORT/PATH
    ///
    /// Or https://; redis://USER:PASSWORD@HOST:PORT/DATABASE or rediss:// (TLS), where only the host is required;
    /// memcached://HOST:PORT; tcp://HOST:PORT.
    #[arg(help_heading = None)]
    pub url: Option<String>,
    // This key exists only in scenario files: the name of the run, part of its directory's name; by default the URL's
    // host and port.
    #[arg(skip)]
    pub name: Option<String>,
    #[command(flatten)]
    pub load: LoadOptions,
    #[command(flatten)]
    pub workload: WorkloadOptions,
    #[command(flatten)]
    pub protocol: ProtocolOptions,
    #[command(flatten)]
    pub clients: ClientOptions,
    #[command(flatten)]
    pub fleet: FleetOptions,
    #[command(flatten)]
    pub path: PathOptions,
    #[command(flatten)]
    pub server: ServerOptions,
    #[command(flatten)]
    pub watching: WatchingOptions,
    /// Options of the sweeps.
    #[arg(skip)]
    pub find: FindOptions,
    /// Questions for `predict`.
    #[arg(skip)]
    pub predict: WhatIfsToml,
}

impl Options {
    /// The typed options, completed by those of a scenario file.
    pub fn over(self, file: Options) -> Options {
        Options {
            url: self.url.or(file.url),
            name: file.name,
            load: self.load.over(file.load),
            workload: self.workload.over(file.workload),
            protocol: self.protocol.over(file.protocol),
            clients: self.clients.over(file.clients),
            fleet: self.fleet.over(file.fleet),
            path: self.path.over(file.path),
            server: self.server.over(file.server),
            watching: self.watching.over(file.watching),
            find: self.find.over(file.find),
            predict: file.predict,
        }
    }
}

/// Reads a scenario file, and panics if one of its numbers is out of its range. For the fuzz target.
pub fn check_ranges(text: &str) {
    let Ok(file) = toml::from_str::<Options>(text) else { return };
    let shares = [file.find.error_limit, file.find.saturation, file.workload.dynamic_share];
    for share in shares.into_iter().flatten() {
        assert!((0.0..=1.0).contains(&share.0), "{share:?}");
    }
    for rate in [file.load.rate, file.load.connect_rate].into_iter().flatten() {
        assert!(rate.0.is_finite() && rate.0 >= 0.0, "{rate:?}");
    }
    if let Some(Speed::Times(speed)) = file.workload.speed {
        assert!(speed.is_finite() && speed > 0.0, "{speed}");
    }
    let times = [file.load.duration, file.load.timeout].into_iter().flatten().map(|time| time.0);
    for time in times.chain(file.workload.session_gap.map(|time| time.0)) {
        // Nanoseconds are counted in 64 bits.
        assert!(time.as_nanos() < 1 << 62, "{time:?}");
    }
}

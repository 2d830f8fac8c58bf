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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{Count, Rate};

    #[test]
    fn a_typed_option_overrides_the_file() {
        let file: Options = toml::from_str(
            "url = 'http://127.0.0.1/'\n[load]\nconnections = 7\nrate = '1k'\n[server]\ncommand = ['nginx']\n",
        )
        .unwrap();
        let typed = LoadOptions { connections: Some(Count(9)), ..Default::default() };
        let merged = typed.over(file.load);
        assert_eq!(merged.connections, Some(Count(9)));
        assert_eq!(merged.rate, Some(Rate(1000.0)));
    }

    #[test]
    fn a_misspelt_key_is_refused() {
        let error = toml::from_str::<Options>("[load]\nconections = 7\n").unwrap_err().to_string();
        assert!(error.contains("conections"), "{error}");
    }
}

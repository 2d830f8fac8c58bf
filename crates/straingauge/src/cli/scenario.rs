//! The scenario file.

use super::clients::ClientOptions;
use super::drive::IsolateWord;
use super::find::FindOptions;
use super::fleet::FleetOptions;
use super::load::LoadOptions;
use super::path::PathOptions;
use super::predict::WhatIfsToml;
use super::simulate::SimulateToml;
use super::watching::WatchingOptions;
use super::workload::WorkloadOptions;
use crate::quantity::Time;
use serde::Deserialize;

/// The scenario file: the same options, by section.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ScenarioToml {
    /// Where to send requests.
    pub url: Option<String>,
    /// Name of the run.
    pub name: Option<String>,
    /// Options of the engine.
    pub load: LoadOptions,
    /// Options of the workload.
    pub workload: WorkloadOptions,
    /// The kind of clients.
    pub clients: ClientOptions,
    /// Client machines.
    pub fleet: FleetOptions,
    /// Options of the sweeps.
    pub find: FindOptions,
    /// The wide-area path between client and server.
    pub path: PathOptions,
    /// The server to start.
    pub server: ServerToml,
    /// How its requests are watched.
    pub watching: WatchingOptions,
    /// The machine that `simulate` models.
    pub simulate: SimulateToml,
    /// Questions for `predict`.
    pub predict: WhatIfsToml,
}

/// `[server]` of the scenario file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerToml {
    /// Program and arguments.
    pub command: Vec<String>,
    /// As `--isolate`.
    pub isolate: Option<IsolateWord>,
    /// As `--server-cpus`.
    pub server_cpus: Option<String>,
    /// As `--server-timeout`.
    pub server_timeout: Option<Time>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{Count, Rate};

    #[test]
    fn a_typed_option_wins_over_the_file() {
        let file: ScenarioToml = toml::from_str(
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
        let error = toml::from_str::<ScenarioToml>("[load]\nconections = 7\n").unwrap_err().to_string();
        assert!(error.contains("conections"), "{error}");
    }
}

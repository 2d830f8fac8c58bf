//! `straingauge watch --worker`: watches a server for a driver elsewhere (`--watch-with`), or starts it first
//! (`--server-with`).

use crate::cli::WatchArgs;
use crate::defaults;
use crate::server::{Server, ServerPlan};
use crate::signals::Stop;
use anyhow::Result;
use std::process::ExitCode;

/// Serves the driver until it leaves; a server that was started here ends then, also if this process is killed.
pub fn serve(args: &WatchArgs) -> Result<ExitCode> {
    let port = crate::url::port_word(&args.port)?;
    if args.server.is_empty() {
        return Ok(remote::serve_watch(port, args.pid, args.netns_of));
    }
    let allowed = |list: &String| crate::plan::allowed(list, "--server-cpus");
    let plan = ServerPlan {
        argv: &args.server,
        port,
        asked: None,
        server_cpus: args.server_cpus.as_ref().map(allowed).transpose()?.unwrap_or_else(record::machine::allowed_cpus),
        client_cpus: Vec::new(),
        is_isolated: false,
        path: None,
        single_segments: false,
        timeout: args.server_timeout.map_or(defaults::SERVER_TIMEOUT, |time| time.0),
        timeout_option: Some("--server-timeout"),
    };
    let server = Server::start(&plan, &Stop::on_signals()?)?;
    Ok(remote::serve_watch(port, server.pid(), server.netns_pid()))
}

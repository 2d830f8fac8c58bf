//! `straingauge scale`: runs an unmodified select or poll server with scalable select.

use crate::cli::ScaleArgs;
use crate::failure::{self, print, wrong_usage};
use crate::scale::{library, target};
use crate::server::{Server, ServerPlan};
use crate::signals::Stop;
use crate::url::Target as Url;
use anyhow::{Context, Result, anyhow, bail};
use record::Outside;
use std::ffi::OsString;
use std::fmt::Write;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

const STATS: &str = "SCALABLE_SELECT_STATS";

/// Runs the command; without --compare it becomes the server and returns only on failure.
pub fn run(args: ScaleArgs) -> Result<ExitCode> {
    let Some(name) = args.command.first() else {
        return Err(wrong_usage("scale needs a server: straingauge scale -- SERVER ..."));
    };
    let path = target::find_program(name)?;
    let found = match target::inspect(&path)? {
        Ok(found) => found,
        Err(hindrance) => bail!("scalable select cannot help: {hindrance}"),
    };
    for note in &found.notes {
        eprintln!("straingauge: note: {name}: {note}");
    }
    let library = library::find(args.library.as_deref())?;
    if let Some(typed) = &args.compare {
        return compare(&args, &Url::parse(typed)?, &library);
    }
    if args.check {
        let imports: Vec<&str> = found.imports.iter().map(String::as_str).collect();
        print(&format!(
            "{}: can be helped (imports {}) with {}\n",
            found.program.display(),
            if imports.is_empty() { "no such function itself".to_string() } else { imports.join(", ") },
            library.display()
        ))?;
        return Ok(ExitCode::from(failure::DONE));
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(&args.command[1..]).env("LD_PRELOAD", preload(&library));
    if args.stats {
        command.env(STATS, "stderr");
    }
    Err(anyhow!(command.exec()).context(format!("the server '{name}' cannot be started")))
}

/// The library before whatever the caller preloads already.
fn preload(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    value
}

/// What one load point said.
struct LoadPoint {
    throughput_per_sec: f64,
    cpu_us_per_request: Option<f64>,
}

/// Stock and scaled in turn, the same load on both.
fn compare(args: &ScaleArgs, url: &Url, library: &Path) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let mut seen: [Vec<LoadPoint>; 2] = [Vec::new(), Vec::new()];
    for round in 0..args.repeats.max(1) {
        // The order turns round: what drifts falls on both.
        for scaled in if round % 2 == 0 { [false, true] } else { [true, false] } {
            if stop.is_set() {
                return Ok(ExitCode::from(failure::INTERRUPTED));
            }
            seen[usize::from(scaled)].push(point(args, url, scaled.then_some(library), &stop)?);
        }
    }
    print(&table(&seen, args))?;
    Ok(ExitCode::from(failure::DONE))
}

fn point(args: &ScaleArgs, url: &Url, library: Option<&Path>, stop: &Stop) -> Result<LoadPoint> {
    let mut argv = args.command.clone();
    if let Some(library) = library {
        let mut assignment = OsString::from("LD_PRELOAD=");
        assignment.push(preload(library));
        let assignment = assignment.into_string().map_err(|_| anyhow!("LD_PRELOAD is not text"))?;
        argv.splice(0..0, ["/usr/bin/env".to_string(), assignment]);
    }
    let allowed = record::machine::allowed_cpus();
    let (client_cpus, server_cpus) = crate::cpus::split(&allowed);
    let server = Server::start(
        &ServerPlan {
            argv: &argv,
            port: url.port,
            asked: url.literal_ip().filter(|ip| !ip.is_unspecified()),
            server_cpus,
            client_cpus: client_cpus.clone(),
            is_isolated: false,
            path: None,
            single_segments: false,
            timeout: Duration::from_secs(10),
            timeout_option: None,
        },
        stop,
    )?;
    let _cold: Vec<TcpStream> = (0..args.cold)
        .map(|_| TcpStream::connect(server.address))
        .collect::<Result<_, _>>()
        .with_context(|| format!("cannot open {} cold connections (see ulimit -n)", args.cold))?;
    let output = Command::new(std::env::current_exe().context("cannot find this program's own file")?)
        .args(["load", &url.typed, "--json", "--quiet", "--warmup", "500ms"])
        .args(["--connections", &args.connections.to_string()])
        .args(["--duration", &format!("{}ms", args.duration_ms)])
        .args(if client_cpus.is_empty() {
            Vec::new()
        } else {
            vec!["--cpus".to_string(), crate::cpus::format_list(&client_cpus)]
        })
        .output()
        .context("the load cannot be started")?;
    if !output.status.success() {
        let said = Outside::of_bytes(&output.stderr, 1000);
        bail!("the load failed: {}", said.trim_start_matches("straingauge: "));
    }
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).context("the load's result is not JSON")?;
    let figure = |name: &str| value["point"]["figures"][name]["value"].as_f64();
    let throughput_per_sec =
        figure(record::names::THROUGHPUT).ok_or_else(|| anyhow!("the load reports no throughput"))?;
    Ok(LoadPoint { throughput_per_sec, cpu_us_per_request: figure(record::names::SERVER_CPU) })
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

fn table(seen: &[Vec<LoadPoint>; 2], args: &ScaleArgs) -> String {
    let throughput = [0, 1].map(|i: usize| median(seen[i].iter().map(|s| s.throughput_per_sec).collect()));
    let cpu = [0, 1].map(|i: usize| median(seen[i].iter().filter_map(|s| s.cpu_us_per_request).collect()));
    let mut out = format!(
        "{} hot and {} cold connections, {} ms, medians of {} runs each, in turn\n\n{:32}{:>12}{:>12}{:>9}\n",
        args.connections,
        args.cold,
        args.duration_ms,
        seen[0].len(),
        "",
        "stock",
        "scaled",
        "ratio"
    );
    for (label, [stock, scaled]) in [("server CPU, us per request", cpu), ("throughput, requests/s", throughput)] {
        let line = match (stock, scaled) {
            (Some(stock), Some(scaled)) => format!("{stock:>12.1}{scaled:>12.1}{:>9.2}", scaled / stock),
            _ => "  not measured: the server's processes could not be watched".to_string(),
        };
        let _ = writeln!(out, "{label:32}{line}");
    }
    out
}

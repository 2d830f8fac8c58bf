//! A server in the guest and the load on it. `straingauge load` runs there with a scenario file, in which typed
//! options override the scenario's, and with the files that it names.

use super::failure::wrong_usage;
use super::options::SimulateArgs;
use super::scenario::{ScenarioFile, Section};
use crate::SimulateError;
use crate::experiment::{GuestLoad, LoadCommand, ServerPlan};
use crate::guest::{Image, SERVER_ADDRESS};
use crate::simulation::PointPlan;
use anyhow::{Context, Result};
use http::Uri;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use toml::{Table, Value};

/// Where the load engine and its files are in the guest.
const PROGRAM: &str = "/straingauge/straingauge";
const SCENARIO: &str = "/straingauge/load.toml";
/// Time by which the load outlasts the count.
const LONGER_MS: u64 = 200;
const PORT: u16 = 8080;
const WARMUP: Duration = Duration::from_millis(300);
const WINDOW: Duration = Duration::from_millis(500);
/// Settings of the client's machine, which is a different machine in the guest.
const OF_THE_CLIENTS_MACHINE: [&str; 4] = ["threads", "cpus", "precise", "source-address"];

/// A server, its load, and the scenario's settings for the points.
pub struct Served {
    pub plan: ServerPlan,
    /// The scenario's value; a typed one overrides it.
    pub connections: Option<u64>,
    pub rate: Option<f64>,
    pub delay: Option<Duration>,
}

/// `straingauge load` in the guest.
#[derive(Debug, Clone)]
struct Engine {
    program: PathBuf,
    /// Its scenario, without connections, rate and times.
    scenario: String,
    /// The URL, with the server's address in the guest.
    url: String,
    opening: Opening,
    warmup_ms: u64,
    window_ms: u64,
}

/// When a load opens its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// It opens all of them before its first request.
    First,
    /// The same in a closed loop; with a rate, when a request is due.
    FirstInClosedLoop,
    /// When a request is due.
    WhenDue,
}

impl GuestLoad for Engine {
    fn put(&self, image: &mut Image) -> Result<(), SimulateError> {
        image.take_program(&self.program, Some(PROGRAM))?;
        image.put(SCENARIO, self.scenario.clone().into_bytes(), false)
    }

    fn command(&self, point: &PointPlan) -> LoadCommand {
        let connections = point.connections.to_string();
        let [warmup, duration] = [self.warmup_ms, self.window_ms + LONGER_MS].map(|ms| format!("{ms}ms"));
        let mut words = vec![PROGRAM, "load", &self.url, "--scenario", SCENARIO, "--json", "--threads", "1"];
        words.extend(["--connections", &connections, "--warmup", &warmup, "--duration", &duration]);
        let rate = point.rate_per_sec.to_string();
        if point.rate_per_sec > 0 {
            words.extend(["--rate", &rate]);
        }
        let opens_first = match self.opening {
            Opening::First => true,
            Opening::FirstInClosedLoop => point.rate_per_sec == 0,
            Opening::WhenDue => false,
        };
        // It checks before any load that the server answers, with a handshake if the server uses TLS.
        let checks = if self.url.starts_with("https") { 2 } else { 1 };
        let opened = checks + if opens_first { point.connections } else { 1 };
        LoadCommand { words: words.into_iter().map(String::from).collect(), opened }
    }
}

/// The server on the command line or in the scenario, if there is one.
pub fn resolve(args: &SimulateArgs, mut file: ScenarioFile) -> Result<Option<Served>> {
    let (mut load, mut workload, clients) = (file.take("load")?, file.take("workload")?, file.take("clients")?);
    load.lay_over(&args.load)?;
    workload.lay_over(&args.workload)?;

    let in_file = file.take("server")?.take_words("command");
    let mut command = if args.server.is_empty() { in_file } else { args.server.clone() };
    if command.is_empty() {
        if file.url().is_some() || !workload.keys.is_empty() || !clients.keys.is_empty() || !load.keys.is_empty() {
            return Err(wrong_usage("a load needs a server: add -- SERVER ..., or [server] command to the scenario"));
        }
        return Ok(None);
    }
    if args.packets.is_some() || file.machine.warmup_packets.is_some() {
        return Err(wrong_usage("--packets applies only to the microbenchmark; use --duration for a server"));
    }
    let mut path = file.take("path")?;
    let delay = path.take_time("delay")?;
    path.keys.remove("quickack");
    if !path.keys.is_empty() {
        return Err(wrong_usage("the guest's path only has a delay: remove loss, bandwidth and path-by"));
    }
    let program = record::shell::find_program(&command[0]).and_then(|file| std::path::absolute(file).ok());
    let program = program.as_deref().and_then(Path::to_str);
    command[0] = program
        .with_context(|| format!("the server '{}' was not found on this machine", command[0].escape_debug()))?
        .to_string();

    // Each point has its own value.
    let (connections, rate) = (load.take_count("connections")?, load.take_rate("rate")?);
    let (duration, warmup) = (load.take_time("duration")?, load.take_time("warmup")?);
    OF_THE_CLIENTS_MACHINE.iter().for_each(|key| drop(load.keys.remove(*key)));

    let asked = Asked::of(file.url())?;
    if let Some(host) = &asked.host
        && let Value::Array(fields) = load.keys.entry("header").or_insert(Value::Array(Vec::new()))
        && !fields.iter().any(|field| field.as_str().is_some_and(|it| it.to_ascii_lowercase().starts_with("host:")))
    {
        fields.push(Value::String(format!("Host: {host}")));
    }
    let path = args.path.as_ref().unwrap_or(&asked.path);
    if !path.starts_with('/') || path.chars().any(|letter| letter.is_control() || letter == ' ') {
        return Err(wrong_usage("--path must begin with / and contain no space"));
    }
    let port = args.port.unwrap_or(asked.port);
    let url = format!("{}://{SERVER_ADDRESS}:{port}{path}", asked.scheme);

    let window_ms = args.duration.or(duration).unwrap_or(WINDOW).as_millis() as u64;
    if window_ms == 0 {
        return Err(wrong_usage("--duration must be at least 1ms"));
    }
    let warmup_ms = args.warmup.or(warmup).unwrap_or(WARMUP).as_millis() as u64;
    let mut files = args.file.clone();
    // The server most likely needs the files in its arguments.
    files.extend(command[1..].iter().filter(|word| word.starts_with('/') && Path::new(word).exists()).map(Into::into));
    let opening = opening(&load, &workload);
    let mut in_guest = Table::new();
    for mut section in [load, workload, clients] {
        files.extend(section.files()?);
        in_guest.insert(section.name, Value::Table(section.keys));
    }
    let engine = Engine {
        program: load_program()?,
        scenario: toml::to_string(&in_guest).context("the load cannot be written for the guest")?,
        url,
        opening,
        warmup_ms,
        window_ms,
    };
    let load: Arc<dyn GuestLoad> = Arc::new(engine);
    let plan = ServerPlan { command, files, folders: args.folder.clone(), port, load, warmup_ms, window_ms };
    Ok(Some(Served { plan, connections, rate, delay }))
}

/// Path of `straingauge`, which loads the server: next to this program, or in PATH.
fn load_program() -> Result<PathBuf> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("straingauge"));
    let program = beside.filter(|file| file.is_file()).or_else(|| record::shell::find_program("straingauge"));
    program.context("the program straingauge, which loads the server, is neither next to this one nor in PATH")
}

/// The parts of a scenario's URL that concern the server.
struct Asked {
    scheme: &'static str,
    /// Value of the Host field; the guest's own without a URL.
    host: Option<String>,
    port: u16,
    path: String,
}

impl Asked {
    fn of(url: Option<&str>) -> Result<Asked> {
        let Some(url) = url else { return Ok(Asked { scheme: "http", host: None, port: PORT, path: "/".into() }) };
        let full = match url {
            _ if url.contains("://") => url.to_string(),
            _ if url.starts_with(':') => format!("http://127.0.0.1{url}"),
            _ => format!("http://{url}"),
        };
        let uri: Uri = full.parse().map_err(|why| wrong_usage(format!("the scenario's url is not a URL ({why})")))?;
        let (scheme, usual_port) = match uri.scheme_str() {
            Some("http") => ("http", 80),
            Some("https") => ("https", 443),
            other => {
                return Err(wrong_usage(format!(
                    "a simulated server is loaded over HTTP, not {}: write the scenario's URL with http",
                    other.unwrap_or("that").escape_debug()
                )));
            }
        };
        let authority = uri.authority().context("the scenario's url names no host")?;
        let path = uri.path_and_query().map_or("/".into(), |path| path.as_str().to_string());
        let host = Some(authority.as_str().into());
        Ok(Asked { scheme, host, port: authority.port_u16().unwrap_or(usual_port), path })
    }
}

fn opening(load: &Section, workload: &Section) -> Opening {
    let has = |section: &Section, key: &str| section.keys.contains_key(key);
    let is_replay = has(workload, "trace") && !has(workload, "mix");
    match (is_replay || has(workload, "rate-series"), has(load, "requests-per-connection")) {
        (true, _) => Opening::WhenDue,
        (false, true) => Opening::FirstInClosedLoop,
        (false, false) => Opening::First,
    }
}

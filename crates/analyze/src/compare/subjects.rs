//! Checks that two runs measured the same thing, from the records of server and requests in their directories.

use record::text::plain;
use record::{ClientPlan, RunDir, RunKind, RunRecord, names};

const QUOTED: usize = 70;

/// The server's command of a run, to distinguish it from that of the other run.
pub fn server_words(run: &RunDir) -> String {
    let argv = run.record.scenario.server().map(|server| match server.argv.as_slice() {
        [program, scale, ..] if scale == "scale" && program.ends_with("/straingauge") => {
            format!("straingauge {}", server.argv[1..].join(" "))
        }
        words => words.join(" "),
    });
    plain(argv.as_deref().unwrap_or("the server"), 160)
}

/// Doubts if two runs measured different servers or sent different requests. Unknown facts count as equal.
pub(super) fn doubts(a: &RunRecord, b: &RunRecord) -> Vec<String> {
    let mut doubts = Vec::new();
    let servers = servers(a, b);
    if !servers.is_empty() {
        doubts.push(format!(
            "the two runs measured different servers: {}; a ratio then compares two servers instead of two states \
             of one",
            servers.join("; ")
        ));
    }
    let loads = loads(a, b);
    if !loads.is_empty() {
        doubts.push(format!(
            "the two runs sent different requests: {}; send the same requests to both to compare their servers",
            loads.join("; ")
        ));
    }
    doubts
}

pub(super) fn machines(a: &RunDir, b: &RunDir) -> Option<String> {
    let known = |text: &str| (!text.is_empty()).then(|| text.to_string());
    let count = |cpus: f64| (cpus > 0.0).then(|| cpus.to_string());
    let of_points = |run: &RunDir, name| run.points.iter().filter_map(|point| point.value(name)).fold(0.0, f64::max);
    let allowed = |run: &RunDir| {
        let given = run.record.scenario.server().map_or(0, |server| server.cpus.len()) as f64;
        count(of_points(run, names::SERVER_CPUS)).or(count(given))
    };
    let limit = |run: &RunDir| {
        let limit = count(of_points(run, names::SERVER_QUOTA)).map(|cpus| format!("{cpus} CPUs"));
        let is_watched = of_points(run, names::SERVER_CPUS) > 0.0;
        limit.or(is_watched.then(|| "none".to_string()))
    };
    let found: Vec<String> = [
        difference("kernel", a, b, |run| known(&run.record.machine.kernel)),
        difference("CPU", a, b, |run| known(&run.record.machine.cpu_model)),
        difference("CPUs", a, b, |run| count(run.record.machine.cpus as f64)),
        difference("governor", a, b, |run| run.record.machine.governor.clone()),
        difference("the server's CPUs", a, b, allowed),
        difference("the server's CPU time limit", a, b, limit),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!found.is_empty()).then(|| {
        let found = found.join("; ");
        format!("the runs come from different machines, kernels or CPUs: {found}; these may explain the difference")
    })
}

fn servers(a: &RunRecord, b: &RunRecord) -> Vec<String> {
    let fact = |name: &'static str| move |run: &RunRecord| run.server_facts.get(name).cloned();
    let command = |run: &RunRecord| {
        let typed = run.scenario.server().map(|server| server.argv.join(" "));
        typed.or_else(|| fact("command")(run))
    };
    // The first difference is enough: another program also has another command line.
    let identity = difference("program", a, b, fact("program"))
        .or_else(|| difference("executable", a, b, fact("executable")))
        .or_else(|| difference("version", a, b, fact("version")))
        .or_else(|| difference("command line", a, b, command));
    identity.into_iter().chain(select(a, b)).collect()
}

/// Whether only one of the servers was under scalable select.
fn select(a: &RunRecord, b: &RunRecord) -> Option<String> {
    difference("scalable select", a, b, |run| {
        let is_watched = run.server_facts.contains_key("program");
        let preloaded = || run.server_facts.get("scalable_select").cloned();
        is_watched.then(|| preloaded().unwrap_or_else(|| "not preloaded".into()))
    })
}

fn loads(a: &RunRecord, b: &RunRecord) -> Vec<String> {
    let protocol = |run: &RunRecord| Some(run.scenario.url().split_once("://")?.0.to_ascii_lowercase());
    let headers = |run: &RunRecord| {
        let headers = &run.scenario.load()?.headers;
        let all: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        Some(if all.is_empty() { "none".into() } else { all.join(", ") })
    };
    let per_connection = |run: &RunRecord| match run.scenario.load()?.requests_per_connection {
        0 => Some("no limit".to_string()),
        limit => Some(limit.to_string()),
    };
    let path =
        |run: &RunRecord| Some(run.scenario.path().map_or("not emulated".to_string(), |path| path.description()));
    let mut found: Vec<String> = [
        difference("protocol", a, b, protocol),
        difference("request", a, b, request),
        difference("headers", a, b, headers),
        difference("requests per connection", a, b, per_connection),
        difference("path", a, b, path),
    ]
    .into_iter()
    .flatten()
    .collect();
    let (Some(of_a), Some(of_b)) = (a.scenario.load(), b.scenario.load()) else { return found };
    if of_a.workload != of_b.workload {
        let names = difference("workload", a, b, |run| {
            let name = &run.scenario.load()?.workload.name;
            Some(if name.is_empty() { "none".into() } else { name.clone() })
        });
        found.push(names.unwrap_or_else(|| "another mix, log or rate series".into()));
    }
    if clients(&of_a.clients) != clients(&of_b.clients) {
        found.push("another kind of clients (pace, TLS, who closes first)".into());
    }
    found
}

/// Whether two runs measured the same scenario: command, requests, clients, path, program and comparable loads. The
/// program's version and options, machine and date may differ, because a series of runs shows their effect.
pub fn is_same_scenario(a: &RunRecord, b: &RunRecord) -> bool {
    let is_same_load = match (&a.scenario.kind, &b.scenario.kind) {
        (RunKind::Load(a), RunKind::Load(b)) => (a.load.connections, a.load.pace) == (b.load.connections, b.load.pace),
        (RunKind::Find(_), RunKind::Find(_)) | (RunKind::Profile(_), RunKind::Profile(_)) => {
            let axis = |run: &RunRecord| run.scenario.sweep().and_then(|sweep| Some(sweep.axis.as_ref()?.axis));
            axis(a) == axis(b)
        }
        (RunKind::Watch(a), RunKind::Watch(b)) => (a.port, a.mode) == (b.port, b.mode),
        (RunKind::Tool(a), RunKind::Tool(b)) => a == b,
        _ => false,
    };
    let (of_a, of_b) = (program(a), program(b));
    // For a server on another machine, only the address is known.
    let is_same_server = of_a == of_b && (of_a.is_some() || host(a) == host(b));
    is_same_load && is_same_server && select(a, b).is_none() && loads(a, b).is_empty()
}

fn host(run: &RunRecord) -> Option<String> {
    let url = run.scenario.url();
    let authority = url.split_once("://")?.1.split('/').next()?;
    Some(authority.rsplit_once(':').map_or(authority, |(host, _)| host).to_ascii_lowercase())
}

/// The server's program, if known.
pub fn program(run: &RunRecord) -> Option<String> {
    let started = || {
        let path = run.scenario.server()?.argv.first()?;
        Some(path.rsplit('/').next().unwrap_or(path).to_string())
    };
    let of_tool = || match &run.scenario.kind {
        RunKind::Tool(tool) => tool.argv.first().cloned(),
        _ => None,
    };
    run.server_facts.get("program").cloned().or_else(started).or_else(of_tool)
}

/// Describes the requests: method and path, the workload's name, or the watched port.
pub fn request_words(run: &RunRecord) -> String {
    let workload = run.scenario.load().map(|load| load.workload.name.clone()).filter(|name| !name.is_empty());
    plain(&workload.or_else(|| request(run)).unwrap_or_else(|| run.scenario.url().into_owned()), 80)
}

fn request(run: &RunRecord) -> Option<String> {
    let plan = run.scenario.load()?;
    if let Some(words) = plan.protocol.request_words() {
        return Some(words);
    }
    let count = plan.workload.targets.max(plan.targets.len() as u64);
    let paths: Vec<&str> = plan.targets.iter().map(|target| target.path.as_str()).collect();
    let requests = match paths.as_slice() {
        [] => return None,
        [one] if count == 1 => format!("{} {one}", plan.method),
        all => format!("{} of {count} targets: {}", plan.method, all.join(" ")),
    };
    Some(match plan.protocol.version_words() {
        Some(version) => format!("{requests} ({version})"),
        None => requests,
    })
}

/// The kind of clients, without the server's name and its certificates.
fn clients(plan: &ClientPlan) -> ClientPlan {
    let mut plan = plan.clone();
    if let Some(tls) = &mut plan.tls {
        (tls.server_name, tls.ca_file) = (String::new(), None);
    }
    plan
}

/// Describes a fact that both runs have and that differs.
fn difference<Run>(name: &str, a: &Run, b: &Run, of: impl Fn(&Run) -> Option<String>) -> Option<String> {
    let (a, b) = (of(a)?, of(b)?);
    if a == b {
        return None;
    }
    let [a, b] = from_first_difference(&a, &b);
    Some(format!("{name} {a} (A) against {b} (B)"))
}

/// Two texts; long ones are shown from the first word that differs.
fn from_first_difference(a: &str, b: &str) -> [String; 2] {
    let same = a.split(' ').zip(b.split(' ')).take_while(|(a, b)| a == b).count();
    let skipped = same.saturating_sub(1);
    let longest = a.chars().count().max(b.chars().count());
    [a, b].map(|text| {
        if longest <= QUOTED || skipped == 0 {
            return plain(text, QUOTED);
        }
        let rest: Vec<&str> = text.split(' ').skip(skipped).collect();
        format!("... {}", plain(&rest.join(" "), QUOTED))
    })
}

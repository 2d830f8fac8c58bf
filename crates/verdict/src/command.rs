//! The server's command, for remedies.

use record::RunDir;
use record::machine::INHERITED_DESCRIPTORS;
use record::shell;
use record::text::plain;
use record::units::grouped;

const ENOUGH_DESCRIPTORS: &str = "65536";

/// The command after `--`, quoted for a shell; without one, the watched process's command; otherwise `SERVER ...`.
pub fn of_server(run: &RunDir) -> String {
    match (run.record.scenario.server(), run.record.server_facts.get("command")) {
        (Some(server), _) => plain(&shell::joined(server.argv.iter().map(String::as_str)), 300),
        (None, Some(command)) => plain(command, 300),
        (None, None) => "SERVER ...".into(),
    }
}

/// Options of `find` that say how it searches and what it shows, not what is sent; whether they have a value.
pub const OPTIONS_OF_SEARCH: [(&str, bool); 24] = [
    ("--arrival", true),
    ("--axis", true),
    ("--axis-values", true),
    ("--beside", true),
    ("--budget", true),
    ("--compare-with", true),
    ("--fail-if", true),
    ("--full", false),
    ("--json", false),
    ("--live", true),
    ("--max-connections", true),
    ("--p99-limit", true),
    ("--places", true),
    ("--profile", true),
    ("--prove", false),
    ("--quiet", false),
    ("-q", false),
    ("--repeats", true),
    ("--shares", true),
    ("--shift", true),
    ("--sweep", true),
    ("--threshold", true),
    ("--unload", false),
    ("--until-sure", true),
];

/// The URL and the options of a run of `find` that say what is sent, as they were typed; without some options, which
/// have a value. The URL alone if they were in a file.
pub fn requests(run: &RunDir, without: &[&str]) -> String {
    let line = shell::split(&run.record.scenario.repeat_command);
    let typed: Vec<String> = line.iter().skip(2).take_while(|word| *word != "--").cloned().collect();
    let url = quoted(&run.record.scenario.url());
    if line.get(1).is_none_or(|command| command != "find") || typed.iter().any(|word| word.starts_with("--scenario")) {
        return url;
    }
    let kept = shell::without(&typed, |name| {
        let of_search = OPTIONS_OF_SEARCH.iter().find(|(option, _)| *option == name).map(|(_, has_value)| *has_value);
        of_search.or(without.contains(&name).then_some(true))
    });
    if kept.is_empty() { url } else { plain(&shell::joined(kept.iter().map(String::as_str)), 2000) }
}

/// A straingauge command on the run's requests, with further options. It restarts the server if the run had started
/// it.
pub fn again(run: &RunDir, command: &str, options: &str) -> String {
    let of_options = options.split(' ').filter(|word| word.starts_with("--"));
    let names: Vec<&str> = of_options.chain(["--connections", "-c", "--rate"]).collect();
    let server = match run.record.scenario.server() {
        Some(_) => format!(" -- {}", of_server(run)),
        None => String::new(),
    };
    format!("straingauge {command} {} {options}{server}", requests(run, &names))
}

/// The server's process, or `PID`.
pub fn server_pid(run: &RunDir) -> String {
    let fact = |name: &str| run.record.server_facts.get(name);
    let pid = fact("pid").filter(|pid| pid.chars().all(|c| c.is_ascii_digit()));
    // A server that the run started has ended with it. With several processes, the first often only starts the others.
    let is_it = run.record.scenario.server().is_none() && fact("processes").is_none_or(|count| count == "1");
    pid.filter(|_| is_it).cloned().unwrap_or_else(|| "PID".into())
}

/// The served port, or `PORT`.
pub fn served_port(run: &RunDir) -> String {
    let address = run.record.scenario.load().and_then(|load| load.addresses.first());
    address.map_or("PORT".into(), |address| address.port().to_string())
}

/// The remedy that raises the server's descriptor limit, at the place that sets it.
pub fn more_descriptors(run: &RunDir) -> (String, Vec<String>) {
    let limit = |text: Option<&String>| text.and_then(|text| text.parse::<u64>().ok());
    let own = limit(run.record.server_facts.get("descriptor_limit"));
    let Some(server) = run.record.scenario.server() else {
        let words = format!(
            "To try: start the server with a higher limit (`ulimit -n {ENOUGH_DESCRIPTORS}` in the shell that starts \
             it, `LimitNOFILE={ENOUGH_DESCRIPTORS}` in its unit of systemd), unless its configuration sets one."
        );
        return (words, Vec::new());
    };
    if let Some((at, set)) = server.argv.iter().enumerate().find_map(|(at, word)| Some((at, set_limit(word)?))) {
        let mut argv = server.argv.clone();
        argv[at].replace_range(set.clone(), ENOUGH_DESCRIPTORS);
        let command = plain(&shell::joined(argv.iter().map(String::as_str)), 300);
        let value = plain(&server.argv[at][set], 20);
        return (format!("The server's command itself sets the limit of {value}. To try: `{command}`."), vec![command]);
    }
    let inherited = limit(run.record.server_facts.get(INHERITED_DESCRIPTORS));
    if let (Some(own), Some(inherited)) = (own, inherited)
        && own < inherited
    {
        let words = format!(
            "The server was started with a limit of {} and lowered it to {}: raise it in its configuration (e.g. nginx \
             `worker_rlimit_nofile`).",
            grouped(inherited as f64),
            grouped(own as f64)
        );
        return (words, Vec::new());
    }
    let command = format!("sh -c 'ulimit -n {ENOUGH_DESCRIPTORS}; exec \"$@\"' sh {}", of_server(run));
    let words = format!(
        "To try: `{command}` (`LimitNOFILE={ENOUGH_DESCRIPTORS}` in a unit of systemd; some servers have a separate \
         limit)."
    );
    (words, vec![command])
}

/// The range of a descriptor limit in a word of a command: `ulimit -n 64` of a shell, `--nofile=64` of prlimit,
/// `LimitNOFILE=64` of systemd-run.
pub fn set_limit(word: &str) -> Option<std::ops::Range<usize>> {
    let digits = |from: usize| {
        let length = word[from..].bytes().take_while(u8::is_ascii_digit).count();
        (length > 0).then_some(from..from + length)
    };
    for name in ["--nofile=", "LimitNOFILE="] {
        if let Some(at) = word.find(name) {
            return digits(at + name.len());
        }
    }
    for (at, name) in word.match_indices("ulimit") {
        let mut from = at + name.len();
        let mut is_of_descriptors = false;
        loop {
            from += word[from..].bytes().take_while(|byte| *byte == b' ').count();
            let flag = word[from..].split(' ').next().filter(|word| word.starts_with('-'));
            let Some(flag) = flag else { break };
            is_of_descriptors |= flag.contains('n');
            from += flag.len();
        }
        if let Some(found) = digits(from).filter(|_| is_of_descriptors) {
            return Some(found);
        }
    }
    None
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    plain(&shell::quoted(word), 300)
}

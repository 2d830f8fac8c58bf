//! Whether two runs measured the same thing: compares what their directories record about the server and the requests.

use record::text::plain;
use record::{ClientPlan, RunDir};

/// Longest part of a text that is quoted.
const QUOTED: usize = 70;

/// The server's command of a run, to distinguish it from the other's.
pub fn server_words(run: &RunDir) -> String {
    let argv = run.record.scenario.server().map(|server| match server.argv.as_slice() {
        [program, scale, ..] if scale == "scale" && program.ends_with("/straingauge") => {
            format!("straingauge {}", server.argv[1..].join(" "))
        }
        words => words.join(" "),
    });
    plain(argv.as_deref().unwrap_or("the server"), 160)
}

/// Doubts about a comparison of runs that measured different servers or sent different requests. Missing facts about a
/// server (one that was not watched, an unknown version) are no difference.
pub(super) fn doubts(a: &RunDir, b: &RunDir) -> Vec<String> {
    let mut doubts = Vec::new();
    let servers = servers(a, b);
    if !servers.is_empty() {
        doubts.push(format!(
            "the two runs measured different servers: {}; a ratio is then of two servers, not of two states of one",
            servers.join("; ")
        ));
    }
    let loads = loads(a, b);
    if !loads.is_empty() {
        doubts.push(format!(
            "the two runs sent different requests: {}; send both the same to compare what serves them",
            loads.join("; ")
        ));
    }
    doubts
}

fn servers(a: &RunDir, b: &RunDir) -> Vec<String> {
    let fact = |name: &'static str| move |run: &RunDir| run.record.server_facts.get(name).cloned();
    let command = |run: &RunDir| {
        let typed = run.record.scenario.server().map(|server| server.argv.join(" "));
        typed.or_else(|| fact("command")(run))
    };
    // Another program has another command line, too: the first difference is enough.
    let identity = difference("program", a, b, fact("program"))
        .or_else(|| difference("executable", a, b, fact("executable")))
        .or_else(|| difference("version", a, b, fact("version")))
        .or_else(|| difference("command line", a, b, command));
    let select = |run: &RunDir| {
        let is_watched = run.record.server_facts.contains_key("program");
        is_watched.then(|| fact("scalable_select")(run).unwrap_or_else(|| "not preloaded".into()))
    };
    identity.into_iter().chain(difference("scalable select", a, b, select)).collect()
}

fn loads(a: &RunDir, b: &RunDir) -> Vec<String> {
    let protocol = |run: &RunDir| Some(run.record.scenario.url().split_once("://")?.0.to_ascii_lowercase());
    let headers = |run: &RunDir| {
        let headers = &run.record.scenario.load()?.headers;
        let all: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        Some(if all.is_empty() { "none".into() } else { all.join(", ") })
    };
    let per_connection = |run: &RunDir| match run.record.scenario.load()?.requests_per_connection {
        0 => Some("no limit".to_string()),
        limit => Some(limit.to_string()),
    };
    let path = |run: &RunDir| Some(run.record.scenario.path().map_or("not emulated".to_string(), |path| path.words()));
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
    let (Some(of_a), Some(of_b)) = (a.record.scenario.load(), b.record.scenario.load()) else { return found };
    if of_a.workload != of_b.workload {
        let names = difference("workload", a, b, |run| {
            let name = &run.record.scenario.load()?.workload.name;
            Some(if name.is_empty() { "none".into() } else { name.clone() })
        });
        found.push(names.unwrap_or_else(|| "another mix, log or rate series".into()));
    }
    if clients(&of_a.clients) != clients(&of_b.clients) {
        found.push("another kind of clients (pace, TLS, who closes first)".into());
    }
    found
}

/// The requests: method and targets.
fn request(run: &RunDir) -> Option<String> {
    let plan = run.record.scenario.load()?;
    let count = plan.workload.targets.max(plan.targets.len() as u64);
    let paths: Vec<&str> = plan.targets.iter().map(|target| target.path.as_str()).collect();
    match paths.as_slice() {
        [] => None,
        [one] if count == 1 => Some(format!("{} {one}", plan.method)),
        all => Some(format!("{} of {count} targets: {}", plan.method, all.join(" "))),
    }
}

/// The kind of clients, apart from the server's name and its certificates.
fn clients(plan: &ClientPlan) -> ClientPlan {
    let mut plan = plan.clone();
    if let Some(tls) = &mut plan.tls {
        (tls.server_name, tls.ca_file) = (String::new(), None);
    }
    plan
}

/// A fact that both runs have and that differs, in words.
fn difference(name: &str, a: &RunDir, b: &RunDir, of: impl Fn(&RunDir) -> Option<String>) -> Option<String> {
    let (a, b) = (of(a)?, of(b)?);
    if a == b {
        return None;
    }
    let [a, b] = apart(&a, &b);
    Some(format!("{name} {a} (A) against {b} (B)"))
}

/// Two texts; long ones from the word at which they begin to differ.
fn apart(a: &str, b: &str) -> [String; 2] {
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

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn long_command_lines_are_quoted_from_where_they_part() {
        let same = "server --with-a-long-option=1 --and-another-one=2 --and-a-third-one=3 -c";
        let said = apart(&format!("{same} /a/x.conf"), &format!("{same} /b/x.conf"));
        assert_eq!(said, ["... -c /a/x.conf", "... -c /b/x.conf"]);
        assert_eq!(apart("nginx", "apache2"), ["nginx", "apache2"]);
        assert!(apart(&"x".repeat(500), "y")[0].chars().count() < 80, "a path without end");
    }
}

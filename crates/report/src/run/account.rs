//! The account of a sweep as text: a request's time by place, the threads' time at the highest load, and the checked
//! stages.

use super::load_cell;
use crate::text::table::Table;
use crate::text::{number, wrap};
use analyze::account::{AccountLevel, GroupLevel, RequestPlace, levels};
use analyze::zones::{SweepFindings, load_words, percent};
use record::account::Account;
use record::units::format_nanos;
use record::{RunDir, Sweep};
use verdict::{CheckedStage, NEARLY_FULL, Verdict};

/// Maximum loads in the table of places, and the minimum share of a response time for a place.
const MOST_LOADS: usize = 6;
const LEAST_SHARE: f64 = 0.005;
const MOST_GROUPS: usize = 6;
const MOST_WAITS: usize = 5;
const LEAST_THREADS: f64 = 0.005;

/// Both tables of a sweep; empty if no point has an account.
pub(super) fn text(run: &RunDir, sweep: &SweepFindings) -> String {
    let levels = levels(run, sweep);
    let Some(last) = levels.last() else { return String::new() };
    let shown: Vec<&AccountLevel> = some(&levels, MOST_LOADS);
    let mut out = String::new();
    let places = places(&levels);
    if !places.is_empty() {
        out += &wrap(&format!("a request's time by place, us of the response time ({})", unit(sweep.sweep)), "", "");
        let loads = shown.iter().map(|level| load_cell(level.load, sweep.sweep));
        let mut table = Table::new(std::iter::once("place".to_string()).chain(loads), 1);
        for name in places {
            let at = |level: &&AccountLevel| place(level, &name).map_or("-".into(), |place| number(place.us));
            table.row(std::iter::once(name.clone()).chain(shown.iter().map(at)).collect());
        }
        let sum = |level: &&AccountLevel| {
            let requests = level.requests.as_ref();
            requests.map_or("-".into(), |of| number(of.places.iter().map(|place| place.us).sum()))
        };
        let mean =
            |level: &&AccountLevel| level.requests.as_ref().map_or("-".into(), |requests| number(requests.response_us));
        table.row(std::iter::once("sum".into()).chain(shown.iter().map(sum)).collect());
        table.row(std::iter::once("mean response time".into()).chain(shown.iter().map(mean)).collect());
        out += &(table.lines() + "\n");
    }
    let at = format!(
        "threads at {}, mean number in each state over {} (n = {} points",
        load_words(last.load, sweep.sweep),
        format_nanos(last.seconds * 1e9),
        last.points
    );
    out + &threads(last, &at)
}

pub(crate) fn of_profile(account: &Account) -> String {
    let Some(level) = analyze::account::of_one(account) else { return String::new() };
    threads(&level, &format!("threads, mean number in each state over {} (", format_nanos(level.seconds * 1e9)))
}

/// The first level, the last, and some between, `most` in all.
fn some(levels: &[AccountLevel], most: usize) -> Vec<&AccountLevel> {
    let last = levels.len() - 1;
    let wanted = levels.len().min(most);
    let mut places: Vec<usize> = (0..wanted).map(|at| at * last / (wanted - 1).max(1)).collect();
    places.dedup();
    places.into_iter().map(|at| &levels[at]).collect()
}

fn unit(sweep: Sweep) -> &'static str {
    if sweep == Sweep::Rate { "columns: requests offered per second" } else { "columns: connections" }
}

fn place<'a>(level: &'a AccountLevel, name: &str) -> Option<&'a RequestPlace> {
    level.requests.as_ref()?.places.iter().find(|place| place.name == name)
}

/// The places with a share of a response time at any load, from the client inwards.
pub(crate) fn places(levels: &[AccountLevel]) -> Vec<String> {
    let mut names: Vec<(analyze::account::PlaceKind, String)> = Vec::new();
    for requests in levels.iter().filter_map(|level| level.requests.as_ref()) {
        for place in &requests.places {
            let is_known = names.iter().any(|(_, name)| *name == place.name);
            if !is_known && place.us >= LEAST_SHARE * requests.response_us {
                names.push((place.kind, place.name.clone()));
            }
        }
    }
    names.sort_by_key(|(kind, _)| *kind);
    names.into_iter().map(|(_, name)| name).collect()
}

/// Rows of threads at a load: state, mean number of threads, mean and longest wait, stack.
fn thread_rows(level: &AccountLevel) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |name: String, threads: f64, each: String, longest: String, stack: &str| {
        if threads >= LEAST_THREADS {
            rows.push(vec![name, format!("{threads:.2}"), each, longest, stack.to_string()]);
        }
    };
    for group in level.groups.iter().take(MOST_GROUPS) {
        row(group.name.clone(), group.threads, String::new(), String::new(), "");
        for (name, threads) in states(group) {
            row(format!("  {name}"), threads, String::new(), String::new(), "");
        }
        for wait in group.waits.iter().take(MOST_WAITS) {
            let idle = if wait.kind.is_idle() { "idle" } else { "blocked" };
            let place = if wait.place.is_empty() { wait.kind.word().to_string() } else { wait.place.clone() };
            let function = if wait.function.is_empty() { String::new() } else { format!(" ({})", wait.function) };
            let each = format_nanos(wait.each_ns());
            let longest = format_nanos(wait.longest_ms * 1e6);
            row(format!("  {idle}: {place}{function}"), wait.threads, each, longest, &wait.stack);
        }
    }
    for parked in level.parked.iter().take(MOST_WAITS) {
        row(format!("in the program: {}", parked.name()), parked.count, String::new(), String::new(), &parked.stack);
    }
    for backend in level.backends.iter().chain(&level.own_backends) {
        let each = format_nanos(backend.call_us * 1e3);
        let name = format!("at {}, of {:.0} connections", backend.address, backend.connections);
        row(name, backend.busy, each, String::new(), "");
    }
    rows
}

pub(crate) fn page_table(run: &RunDir, sweep: &SweepFindings) -> Option<Table> {
    let level = levels(run, sweep).pop()?;
    let headings = ["threads", "mean number", "each wait", "longest", "stack with the most time, innermost first"];
    let columns = headings.map(|heading| (heading, ""));
    let note = format!(
        "At {}, over {} in {}.",
        load_words(level.load, sweep.sweep),
        format_nanos(level.seconds * 1e9),
        record::units::count(level.points as usize, "point")
    );
    Some(Table::titled("What the server's threads did", columns, thread_rows(&level), note))
}

fn threads(level: &AccountLevel, title: &str) -> String {
    let mut table = Table::new(["threads", "mean", "each wait", "longest"], 1);
    for mut row in thread_rows(level) {
        row.truncate(4);
        table.row(row);
    }
    let gap = if title.ends_with('(') { "" } else { "; " };
    let title = format!(
        "{title}{gap}the rows differ from the threads' lifetimes by {}; the account took {:.3} CPUs)",
        percent(level.open_ratio.abs()),
        level.cost_cpus
    );
    wrap(&title, "", "") + &table.lines()
}

fn states(group: &GroupLevel) -> [(&'static str, f64); 5] {
    [
        ("running", group.running),
        ("ready: own threads have the CPU", group.ready_own),
        ("ready: other work has the CPU", group.ready_others),
        ("ready: the CPU is idle or stopped", group.ready_stopped),
        ("ready: before another CPU", group.ready_moved),
    ]
}

/// Sentences about the stages that are full, nearly so, and not; empty if none was checked.
pub(crate) fn checked(verdict: &Verdict) -> String {
    let of = |title: &str, belongs: &dyn Fn(&CheckedStage) -> bool| {
        let words = |checked: &CheckedStage| format!("{} {}", checked.stage, percent(checked.used_ratio));
        let stages: Vec<String> = verdict.checked.iter().filter(|checked| belongs(checked)).map(words).collect();
        (!stages.is_empty()).then(|| format!("{title}: {}.", stages.join(", ")))
    };
    let has_room = |checked: &CheckedStage| checked.used_ratio < NEARLY_FULL;
    let said = [
        of("Full", &|checked| checked.is_full),
        of("Nearly full", &|checked| !checked.is_full && !has_room(checked)),
        of("Ruled out, because they had room", &|checked| !checked.is_full && has_room(checked)),
    ];
    said.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

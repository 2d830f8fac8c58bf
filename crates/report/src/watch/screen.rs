//! A running watch: a line for each reading, the screen of a terminal, and all tables at the end.

use super::{Screen, headroom, text};
use crate::doubt;
use crate::run::account;
use crate::text::wrap;
use analyze::watch::tables::{self, FigureTable};
use record::PlainText;
use record::units::{count, format_bytes, format_nanos, format_si, percent};
use record::watch::{ConnectionTotals, Counter, CpuTotals, Mode, Reading};

const NOT_MEASURED: &str = "not measured";

const ROWS_ON_SCREEN: usize = 5;

/// A reading as a line.
pub fn line(frame: &Screen<'_>) -> String {
    let (now, rates) = (frame.now, frame.rates);
    let mut out = format!("{:8.1} s", now.elapsed_ns as f64 / 1e9);
    if let Some(all) = &rates.all {
        out += &format!(
            "  {} requests/s  in {}/s  out {}/s  cpu {} us/request",
            format_si(all.requests_per_sec),
            format_bytes(all.bytes_in_per_sec),
            format_bytes(all.bytes_out_per_sec),
            number(all.cpu_us_per_request),
        );
    }
    if let Some(open) = &now.open {
        out += &format!("  waiting {}  sending {}", open.waiting, open.sending);
    }
    if let Some(accepted) = rates.accepted_per_sec {
        out += &format!("  accepted {}/s", format_si(accepted));
    }
    out += &format!("  {}", states(now));
    if let Some(cpus) = rates.server_cpus {
        out += &format!("  server {cpus:.2} CPUs");
    }
    out.push('\n');
    out
}

/// Size of a terminal.
#[derive(Debug, Clone, Copy)]
pub struct TerminalSize {
    /// Characters in a row.
    pub columns: usize,
    /// Number of rows.
    pub rows: usize,
}

/// Text that draws a screen from the upper left corner and clears the rest. The last line has no newline, which would
/// scroll.
pub fn drawn(text: &str, TerminalSize { columns, rows }: TerminalSize) -> String {
    let lines: Vec<String> = text.lines().take(rows).map(|line| cut(line, columns) + "\x1b[K").collect();
    format!("\x1b[H{}\x1b[J", lines.join("\n"))
}

fn cut(line: &str, columns: usize) -> String {
    let plain = PlainText::new(line, usize::MAX);
    if plain.chars().count() <= columns {
        return plain.into();
    }
    let mut shown: String = plain.chars().take(columns.saturating_sub(1)).collect();
    shown.push('>');
    shown
}

/// The contents of the screen, most important first, of any length. Rates are means since `earlier`.
pub fn live(frame: &Screen<'_>, earlier: &Reading) -> String {
    let mut out = summary(frame, "(q ends)  ");
    out.extend(frame.doubts.iter().map(doubt::line));
    for mut table in tables::on_screen(earlier, frame.now, &frame.watch.classes) {
        if table.title != tables::MACHINE {
            table.rows.truncate(ROWS_ON_SCREEN);
        }
        out.push_str(&text::titled(&FigureTable { note: String::new(), ..table }).text(true));
    }
    out
}

/// All figures as tables, for the time since the watch began.
pub fn tables(frame: &Screen<'_>) -> String {
    let mut out = summary(frame, "");
    for sentence in headroom::sentences(frame.headroom) {
        out.push_str(&wrap(&sentence, "  - ", "    "));
    }
    out += &(cpu(frame) + &traffic(frame.now));
    for table in &tables::of_watch(frame.first, frame.now, &frame.watch.classes).tables {
        out.push('\n');
        out.push_str(&text::titled(table).text(true));
    }
    let has_no_functions = |pack: &record::watch::PackTotals| pack.by_functions.iter().all(|class| class.requests == 0);
    if frame.now.pack.as_ref().is_some_and(has_no_functions) {
        out.push_str(
            "\nPhases by the server's own functions\n  no request has passed all boundaries of the pack \
            yet\n",
        );
    }
    out + &control_group(frame.now) + &doubt::text(frame.doubts)
}

/// The last interval in a few lines; `keys` explains the keys.
fn summary(frame: &Screen<'_>, keys: &str) -> String {
    let mut out = head(frame, keys) + &requests(frame) + &server(frame);
    out += &format!("headroom  {}\n", headroom::line(frame.headroom));
    out.extend(frame.now.account.as_ref().map(account::of_profile));
    out + &connections(frame) + &cost(frame)
}

fn head(frame: &Screen<'_>, keys: &str) -> String {
    let (now, watch) = (frame.now, frame.watch);
    let seconds = frame.rates.duration_ns as f64 / 1e9;
    format!(
        ":{}  {:.0} s  {keys}rates of the last {seconds:.1} s  {}\n",
        watch.port,
        now.elapsed_ns as f64 / 1e9,
        mode_words(watch.mode, now),
    )
}

fn mode_words(mode: Mode, now: &Reading) -> String {
    let words = match mode {
        _ if now.classes.is_empty() && mode != Mode::Zero => "connections only",
        Mode::Zero => "connections only (zero)",
        _ if now.counted_ns.is_some() => {
            let share = now.counted_time_ns() as f64 / now.elapsed_ns.max(1) as f64;
            return format!("requests counted in windows ({} of the time)", percent(share));
        }
        Mode::Counts => "every request counted",
        Mode::Budgeted => "every request counted, phases in windows",
        Mode::Exact => "phases of every request",
    };
    words.into()
}

fn requests(frame: &Screen<'_>) -> String {
    let Some(all) = &frame.rates.all else {
        return format!("requests  {NOT_MEASURED}: they are not counted\n");
    };
    let each = frame.now.traffic.filter(|traffic| traffic.pipelined + traffic.http2 > 0);
    let each = each.and_then(|traffic| traffic.requests_per_read());
    let together =
        each.map(|each| format!(" (about {}/s: {each:.1} in a read)", format_si(each * all.requests_per_sec)));
    let mut out = format!(
        "requests  {}/s{}  in {}/s  out {}/s  CPU {} us each\n",
        format_si(all.requests_per_sec),
        together.unwrap_or_default(),
        format_bytes(all.bytes_in_per_sec),
        format_bytes(all.bytes_out_per_sec),
        number(all.cpu_us_per_request),
    );
    out += &format!(
        "  elapsed us  mean {}  p50 <= {}  p99 <= {}",
        number(all.elapsed_us_per_request),
        number(all.elapsed_p50_at_most_us),
        number(all.elapsed_p99_at_most_us),
    );
    if let Some(open) = &frame.now.open {
        out += &format!("  waiting {}  sending {}", open.waiting, open.sending);
        if let Some(longest) = open.longest.first() {
            out += &format!("  oldest {}", format_nanos(longest.age_ns as f64));
        }
    }
    let lost = frame.now.count(Counter::DisplacedOpen).filter(|lost| *lost > 0);
    out + &lost.map_or(String::new(), |lost| format!("  lost {lost}")) + "\n" + &errors(frame)
}

/// The share of error statuses since the start; nothing if no status was read.
fn errors(frame: &Screen<'_>) -> String {
    let since_start = |counter| {
        let [now, first] = [frame.now, frame.first].map(|reading| reading.count(counter).unwrap_or(0));
        now.saturating_sub(first)
    };
    let read = since_start(Counter::StatusLines);
    if read == 0 {
        return String::new();
    }
    let share = |counter| percent(since_start(counter) as f64 / read as f64);
    let (server, client) = (share(Counter::ServerErrors), share(Counter::ClientErrors));
    format!("  status 5xx or 429 {server}, other 4xx {client} (n = {}, since the start)\n", format_si(read as f64))
}

fn server(frame: &Screen<'_>) -> String {
    let (Some(cpu), Some(cpus)) = (&frame.now.cpu, frame.rates.server_cpus) else {
        return format!("server  {NOT_MEASURED}: its processes are not visible\n");
    };
    let of_requests =
        frame.rates.request_cpus.map_or(String::new(), |requests| format!(", of them {requests:.2} for requests"));
    format!("server  {cpus:.2} CPUs{of_requests}  {}\n", size(cpu))
}

/// Formats the size of the server: `2 processes, 8 threads, 64.0 MiB`.
fn size(cpu: &CpuTotals) -> String {
    let resident = format_bytes(cpu.resident_bytes as f64);
    format!("{}, {}, {resident}", count(cpu.processes, "process"), count(cpu.threads, "thread"))
}

fn states(reading: &Reading) -> String {
    if reading.connections.states.is_empty() {
        return "no sockets".into();
    }
    let parts: Vec<String> = reading.connections.states.iter().map(|(name, count)| format!("{name} {count}")).collect();
    parts.join("  ")
}

fn number(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value >= 1000.0 => format_si(value),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.1}"),
    }
}

/// Formats the accept queue: `3 of 511`.
pub fn accept_queue(seen: &ConnectionTotals) -> String {
    match (seen.accept_queue, seen.accept_queue_limit) {
        (Some(queue), Some(limit)) => format!("{queue} of {limit}"),
        (Some(queue), None) => format!("{queue} of unknown limit"),
        (None, _) => format!("{NOT_MEASURED}: no listening socket"),
    }
}

fn connections(frame: &Screen<'_>) -> String {
    let (seen, rates) = (&frame.now.connections, frame.rates);
    let rate = |rate: Option<f64>| rate.map_or(NOT_MEASURED.to_string(), |rate| format!("{}/s", format_si(rate)));
    let known = |value: Option<u64>| value.map_or(NOT_MEASURED.to_string(), |value| value.to_string());
    format!(
        "connections  {}\n  accepted {}  closed {}  accept queue {}  dropped {} (in the namespace: overflows {}, \
         drops {})  SYN backlog {}\n",
        states(frame.now),
        rate(rates.accepted_per_sec),
        rate(rates.closed_per_sec),
        accept_queue(seen),
        known(seen.port_drops),
        known(seen.listen_overflows),
        known(seen.listen_drops),
        seen.syn_backlog,
    )
}

fn cost(frame: &Screen<'_>) -> String {
    let (now, watch) = (frame.now, frame.watch);
    let own = format!("own {:.2} % of a CPU (timed)", frame.rates.own_cpus * 100.0);
    let Some(cost) = &now.cost.added else {
        return format!("cost of watching  none added; {own}\n");
    };
    let added = match cost.added_ratio {
        Some(ratio) => {
            let limit = match watch.mode {
                Mode::Budgeted => format!("limit {:.3} %", watch.overhead_limit_ratio * 100.0),
                mode => format!("--detail {} has no limit", mode.word()),
            };
            format!("{:.2} % of the server's CPU time ({limit})", ratio * 100.0)
        }
        None => format!("{NOT_MEASURED}: the server's CPU time is not visible"),
    };
    format!(
        "cost of watching  added {added}, {:.0} ns per read, {:.0} ns per event of other programs (n = {}), by \
         calibration (modelled); {own}; {} windows, {:.1} s\n",
        cost.receive_event_ns,
        cost.away_event_ns,
        format_si(cost.away_events as f64),
        cost.windows,
        cost.window_ns as f64 / 1e9,
    )
}

fn cpu(frame: &Screen<'_>) -> String {
    let Some(cpu) = frame.now.cpu.filter(|cpu| cpu.group_ns > 0) else { return String::new() };
    let Some(charged) = cpu.charged else { return String::new() };
    let share = |ns: i64| format!("{:.1} %", ns as f64 / cpu.group_ns as f64 * 100.0);
    format!(
        "server's CPU time  {} since the start: requests {}, accepting {}, between connections {}, elsewhere {}\n",
        format_nanos(cpu.group_ns as f64),
        share(charged.requests_ns),
        share(charged.connect_ns),
        share(charged.between_ns),
        share(charged.elsewhere_ns),
    )
}

fn traffic(now: &Reading) -> String {
    let Some(traffic) = now.traffic.filter(|traffic| traffic.looked_into > 0) else { return String::new() };
    let kinds = [
        ("HTTP/1", traffic.http1),
        ("Redis", traffic.redis),
        ("memcached", traffic.memcached),
        ("pipelined", traffic.pipelined),
        ("uploads", traffic.uploads),
        ("of them expecting leave", traffic.expecting),
        ("WebSockets opened", traffic.websockets),
        ("HTTP/2", traffic.http2),
        ("TLS", traffic.tls),
        ("other", traffic.other),
        ("hidden", traffic.hidden),
    ];
    let seen: Vec<String> =
        kinds.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}")).collect();
    format!("protocols  {} (of {} inspected reads)\n", seen.join(", "), traffic.looked_into)
}

fn control_group(now: &Reading) -> String {
    let Some(group) = &now.control_group else { return String::new() };
    let us = |value: Option<u64>| value.map_or(NOT_MEASURED.to_string(), |us| format!("{:.1} s", us as f64 / 1e6));
    let bytes = |value: Option<u64>| value.map_or(NOT_MEASURED.to_string(), |value| format_bytes(value as f64));
    format!(
        "\ncontrol group  CPU {} (user {}, system {})  memory {}  disk read {}, written {}  tasks {}\n",
        us(group.cpu_us),
        us(group.user_us),
        us(group.system_us),
        bytes(group.memory_bytes),
        bytes(group.read_bytes),
        bytes(group.written_bytes),
        group.tasks.map_or(NOT_MEASURED.to_string(), |tasks| tasks.to_string()),
    )
}

//! A watch as a line for each reading, and as tables at its end.

use super::{Screen, machine, processes};
use crate::doubt;
use crate::text::estimate;
use crate::text::table::Table;
use crate::text::wrap;
use record::text::plain;
use record::units::{count, format_bytes, format_nanos, format_si, percent};
use record::watch::counters::Row;
use record::watch::{ConnectionTotals, Counter, CpuTotals, Mean, Mode, PhaseTotals, Reading};
use std::fmt::Write;

pub(super) const NOT_MEASURED: &str = "not measured";

/// One reading.
pub fn line(frame: &Screen<'_>) -> String {
    let (now, rates) = (frame.now, frame.rates);
    let states = states(now);
    let mut out = format!("{:8.1} s", now.elapsed_ns as f64 / 1e9);
    if let Some(all) = &rates.all {
        let _ = write!(
            out,
            "  {} requests/s  in {}/s  out {}/s  cpu {} us/request",
            format_si(all.requests_per_sec),
            format_bytes(all.bytes_in_per_sec),
            format_bytes(all.bytes_out_per_sec),
            number(all.cpu_us_per_request),
        );
    }
    if let Some(open) = &now.open {
        let _ = write!(out, "  waiting {}  sending {}", open.waiting, open.sending);
    }
    if let Some(accepted) = rates.accepted_per_sec {
        let _ = write!(out, "  accepted {}/s", format_si(accepted));
    }
    let _ = write!(out, "  {states}");
    if let Some(cpus) = rates.server_cpus {
        let _ = write!(out, "  server {cpus:.2} CPUs");
    }
    out.push('\n');
    out
}

/// `2 processes, 8 threads, 64.0 MiB`.
pub(super) fn size(cpu: &CpuTotals) -> String {
    let resident = format_bytes(cpu.resident_bytes as f64);
    format!("{}, {}, {resident}", count(cpu.processes, "process"), count(cpu.threads, "thread"))
}

pub(super) fn states(reading: &Reading) -> String {
    if reading.connections.states.is_empty() {
        return "no sockets".into();
    }
    let parts: Vec<String> = reading.connections.states.iter().map(|(name, count)| format!("{name} {count}")).collect();
    parts.join("  ")
}

pub(super) fn number(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value >= 1000.0 => format_si(value),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.1}"),
    }
}

/// All figures as tables; `span` says over what time rates are means.
pub fn tables(frame: &Screen<'_>, span: &str) -> String {
    let mut out = String::new();
    head(&mut out, frame);
    connections(&mut out, frame);
    if !frame.now.classes.is_empty() {
        requests(&mut out, frame, span);
        phases(&mut out, frame);
        pack(&mut out, frame);
        demands(&mut out, frame);
        cpu(&mut out, frame);
        open(&mut out, frame);
        traffic(&mut out, frame.now);
    }
    headroom(&mut out, frame);
    if let Some(account) = &frame.now.account {
        let _ = write!(out, "\n{}", crate::run::account::of_profile(account));
    }
    processes::screen(&mut out, frame.now, processes::ROWS);
    machine::screen(&mut out, &frame.first.system, frame.now);
    out + &doubt::text(frame.doubts)
}

fn head(out: &mut String, frame: &Screen<'_>) {
    let (now, rates, watch) = (frame.now, frame.rates, frame.watch);
    let server = match &now.cpu {
        Some(cpu) => size(cpu),
        None => format!("processes {NOT_MEASURED}: not seen"),
    };
    let how = mode_words(watch.mode, now);
    let _ = writeln!(out, ":{}  {:.1} s  {how}  {server}", watch.port, now.elapsed_ns as f64 / 1e9);
    let own = format!("own {:.2} % of a CPU (timed)", rates.own_cpus * 100.0);
    let Some(cost) = &now.cost.added else {
        let _ = writeln!(out, "cost of watching  nothing is added; {own}");
        return;
    };
    let added = match cost.added_ratio {
        Some(ratio) => {
            let limit = match watch.mode {
                Mode::Budgeted => format!("limit {:.3} %", watch.overhead_limit_ratio * 100.0),
                mode => format!("--detail {} has no limit", mode.word()),
            };
            format!("{:.2} % of the server's CPU time ({limit})", ratio * 100.0)
        }
        None => format!("{NOT_MEASURED}: the server's CPU time is not seen"),
    };
    let _ = writeln!(
        out,
        "cost of watching  added {added}, {:.0} ns a read, {:.0} ns each of {} events of others, by calibration \
         (modelled); {own}; {} windows, {:.1} s",
        cost.receive_event_ns,
        cost.away_event_ns,
        format_si(cost.away_events as f64),
        cost.windows,
        cost.window_ns as f64 / 1e9,
    );
}

/// What a mode counts and times.
pub(super) fn mode_words(mode: Mode, now: &Reading) -> String {
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

fn known(value: Option<u64>) -> String {
    value.map_or(NOT_MEASURED.to_string(), |value| value.to_string())
}

fn counters(frame: &Screen<'_>, row: Row) -> Vec<String> {
    let words = |counter: Counter| {
        let (_, words) = counter.declaration().on_screen.filter(|(place, _)| *place == row)?;
        let rate = match counter {
            Counter::Accepted => frame.rates.accepted_per_sec,
            Counter::Closed => frame.rates.closed_per_sec,
            _ => None,
        };
        let rate = rate.map_or(String::new(), |rate| format!(" ({}/s)", format_si(rate)));
        Some(words.replace("{}", &(known(frame.now.count(counter)) + &rate)))
    };
    Counter::ALL.into_iter().filter_map(words).collect()
}

/// `3 of 511`.
pub fn accept_queue(seen: &ConnectionTotals) -> String {
    match (seen.accept_queue, seen.accept_queue_limit) {
        (Some(queue), Some(limit)) => format!("{queue} of {limit}"),
        (Some(queue), None) => format!("{queue}, of how many is not known"),
        (None, _) => format!("{NOT_MEASURED}: no listening socket"),
    }
}

fn connections(out: &mut String, frame: &Screen<'_>) {
    let (now, seen) = (frame.now, &frame.now.connections);
    let queue = accept_queue(seen);
    let _ = writeln!(out, "\nconnections  {}", states(now));
    let _ = writeln!(
        out,
        "  {}  accept queue {queue}  SYN backlog {}  dropped here {} (in the namespace: overflows {}, drops {})",
        counters(frame, Row::Connections).join("  "),
        seen.syn_backlog,
        known(seen.port_drops),
        known(seen.listen_overflows),
        known(seen.listen_drops),
    );
    let scans = match &seen.reconciliation {
        Some(scans) => format!(
            "scans {}: {} sockets, off by {} (at most {}), {} CPU",
            scans.scans,
            scans.last_scan,
            scans.last_difference,
            scans.largest_difference,
            format_nanos(scans.last_cost_ns as f64),
        ),
        None => "states by scan at each reading".into(),
    };
    let _ = writeln!(out, "  {}  {scans}", counters(frame, Row::Segments).join("  "));
}

pub(super) fn requests(out: &mut String, frame: &Screen<'_>, span: &str) {
    let (now, rates) = (frame.now, frame.rates);
    let Some(of_all) = &rates.all else { return };
    let mut table = Table::new(
        &["class", "requests/s", "in B/s", "out B/s", "cpu us", "elapsed us", "p50 <= us", "p99 <= us", "total"],
        1,
    );
    let names = frame.watch.classes.iter().map(|class| class.name.as_str());
    let rows = names.zip(&rates.classes).zip(now.classes.iter().map(|class| class.requests));
    let all = (("all", of_all), now.all().requests);
    for ((name, class), total) in rows.chain(std::iter::once(all)) {
        table.row(vec![
            plain(name, 40),
            format_si(class.requests_per_sec),
            format_si(class.bytes_in_per_sec),
            format_si(class.bytes_out_per_sec),
            number(class.cpu_us_per_request),
            number(class.elapsed_us_per_request),
            number(class.elapsed_p50_at_most_us),
            number(class.elapsed_p99_at_most_us),
            total.to_string(),
        ]);
    }
    let how = if now.counted_ns.is_some() { "counted in windows; rates are of that time" } else { "counted" };
    let _ = write!(out, "\nrequests {span} ({how})\n{}", table.lines());
}

const PHASE_COLUMNS: &[&str] = &["parse", "process", "log", "parse cpu", "process cpu", "log cpu"];

fn phase_cells(phases: &PhaseTotals) -> impl Iterator<Item = String> {
    phases.elapsed_ns.iter().chain(&phases.cpu_ns).map(|mean| in_us(*mean))
}

fn in_us(mean: Option<Mean>) -> String {
    match mean {
        None => "-".into(),
        Some(found) => estimate(found.mean / 1e3, found.half_width.map(|half| half / 1e3), 1),
    }
}

pub(super) fn phases(out: &mut String, frame: &Screen<'_>) {
    let phases = &frame.now.phases;
    if phases.iter().all(|class| class.requests == 0) {
        return;
    }
    let few = phases.iter().map(|class| class.windows).max().unwrap_or(0) < record::watch::FEWEST_WINDOWS;
    let note = match frame.watch.mode {
        Mode::Exact => "every request",
        _ if few => "from windows; fewer than five: no error estimate",
        _ => "from windows; +- half of the 95 % interval",
    };
    let mut table =
        Table::new(&[&["class"], PHASE_COLUMNS, &["sends", "disk reads", "requests", "windows"]].concat(), 1);
    for (class, phases) in frame.watch.classes.iter().zip(phases).filter(|(_, phases)| phases.requests > 0) {
        let mut row = vec![plain(&class.name, 40)];
        row.extend(phase_cells(phases));
        row.extend([phases.sends, phases.disk_reads].map(|count| number(count.map(|count| count.mean))));
        row.extend([phases.requests, phases.windows].map(|count| count.to_string()));
        table.row(row);
    }
    let _ = write!(out, "\nphases, us/request ({note})\n{}", table.lines());
    if let Some(connects) = frame.now.connections.connects.as_ref().filter(|connects| connects.connects > 0) {
        let mean_us = connects.connect_elapsed_ns as f64 / connects.connects as f64 / 1e3;
        let cpu = (connects.connects_with_cpu > 0)
            .then(|| connects.connect_cpu_ns as f64 / connects.connects_with_cpu as f64 / 1e3);
        let _ = writeln!(
            out,
            "  connect: {} us from establishment to the first read, cpu {} us, of {} connections (the client's delay \
             included)",
            number(Some(mean_us)),
            number(cpu),
            connects.connects,
        );
    }
}

/// Phases by the server's functions, beside those by reads and sends of the same requests.
fn pack(out: &mut String, frame: &Screen<'_>) {
    let Some(pack) = &frame.now.pack else { return };
    let _ = writeln!(
        out,
        "\nphases by functions of {}, us/request ({} windows, {:.1} s in all, one each {:.0} s at best; the probes add \
         {:.1} us to a request in them)",
        pack.server,
        pack.windows,
        pack.window_ns as f64 / 1e9,
        pack.period_ns as f64 / 1e9,
        pack.request_ns / 1e3,
    );
    if pack.by_functions.iter().all(|class| class.requests == 0) {
        let _ = writeln!(out, "  no request passed all its boundaries yet");
        return;
    }
    let mut table = Table::new(&[&["class", "by"], PHASE_COLUMNS, &["requests"]].concat(), 2);
    let names = frame.watch.classes.iter();
    for (class, (functions, events)) in names.zip(pack.by_functions.iter().zip(&pack.by_events)) {
        for (by, phases) in [("functions", functions), ("reads, sends", events)] {
            if phases.requests > 0 {
                let mut row = vec![plain(&class.name, 40), by.into()];
                row.extend(phase_cells(phases));
                row.push(phases.requests.to_string());
                table.row(row);
            }
        }
    }
    out.push_str(&table.lines());
}

fn demands(out: &mut String, frame: &Screen<'_>) {
    let demands = frame.demands;
    if demands.iter().all(|demand| demand.requests == 0) {
        return;
    }
    let mut table = Table::new(&["class", "cpu us", "user us", "system us", "disk bytes", "network bytes"], 1);
    for (class, demand) in frame.watch.classes.iter().zip(demands).filter(|(_, demand)| demand.requests > 0) {
        table.row(vec![
            plain(&class.name, 40),
            demand.cpu_us.map_or("-".into(), |cpu| estimate(cpu.mean, cpu.half_width, 2)),
            number(demand.cpu_user_us),
            number(demand.cpu_system_us),
            number(demand.disk_bytes.map(|bytes| bytes.mean)),
            number(demand.network_bytes),
        ]);
    }
    let _ = write!(out, "\nservice demands per request since the start\n{}", table.lines());
    if let Some(check) = frame.utilisation {
        let _ = writeln!(
            out,
            "  utilisation law: throughput x demand = {:.3} CPUs, scheduler {:.3} CPUs, {:.1} % of no request",
            check.predicted_cpus,
            check.measured_cpus,
            check.unexplained_ratio * 100.0,
        );
    }
}

fn cpu(out: &mut String, frame: &Screen<'_>) {
    let Some(cpu) = frame.now.cpu.filter(|cpu| cpu.group_ns > 0) else { return };
    let share = |ns: i64| format!("{:.1} %", ns as f64 / cpu.group_ns as f64 * 100.0);
    let _ = write!(out, "\nserver's CPU time  {} since the start", format_nanos(cpu.group_ns as f64));
    if let Some(cpus) = frame.rates.server_cpus {
        let _ = write!(out, ", {cpus:.2} CPUs now");
    }
    if let Some(charged) = &cpu.charged {
        let _ = write!(
            out,
            ": requests {}, accepting {}, between connections {}, elsewhere {}",
            share(charged.requests_ns),
            share(charged.connect_ns),
            share(charged.between_ns),
            share(charged.elsewhere_ns),
        );
    }
    out.push('\n');
}

fn open(out: &mut String, frame: &Screen<'_>) {
    let Some(open) = &frame.now.open else { return };
    let _ = write!(out, "in progress  {} waiting, {} sending", open.waiting, open.sending);
    for request in open.longest.iter().take(3) {
        let _ = write!(
            out,
            "; {}{}",
            format_nanos(request.age_ns as f64),
            if request.is_sending {
                format!(" ({} sent)", format_bytes(request.bytes_out as f64))
            } else {
                String::new()
            },
        );
    }
    let _ = writeln!(out, "\nlost  {}", counters(frame, Row::Lost).join(", "));
}

fn headroom(out: &mut String, frame: &Screen<'_>) {
    let _ = writeln!(out, "\nheadroom  {}", super::headroom::line(frame.headroom));
    for sentence in super::headroom::sentences(frame.headroom) {
        out.push_str(&wrap(&sentence, "  - ", "    "));
    }
}

fn traffic(out: &mut String, now: &Reading) {
    let Some(traffic) = now.traffic.filter(|traffic| traffic.looked_into > 0) else { return };
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
    let _ = writeln!(out, "spoken  {} (of {} reads looked into)", seen.join(", "), traffic.looked_into);
}

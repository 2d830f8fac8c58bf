//! The slowest requests of a load.

use crate::text::table::Table;
use crate::text::wrap;
use analyze::zones::{Findings, SweepFindings, Zone, counted_at, load_words};
use record::text::plain;
use record::units::{format_bytes, format_nanos};
use record::{Point, RunDir, SLOWEST, SlowRequest, Sweep};

const COLUMNS: [&str; 13] = [
    "point",
    "at",
    "response",
    "waiting",
    "connect",
    "first byte",
    "last byte",
    "conn",
    "port",
    "bytes",
    "status",
    "trace id",
    "client",
];

/// The slowest requests of points at the same load; `None` if none was kept.
pub(super) fn of_points(points: &[&Point], load: &str) -> Option<Table> {
    let mut slowest: Vec<(&SlowRequest, u32)> =
        points.iter().flat_map(|point| point.slowest.iter().map(|request| (request, point.index))).collect();
    slowest.sort_by(|one, other| other.cmp(one));
    slowest.truncate(SLOWEST);
    let rows: Vec<[String; 13]> = slowest.iter().map(|(request, point)| row(request, *point)).collect();
    let is_shown = |column: &usize| match column {
        0 => points.len() > 1,
        _ => rows.iter().any(|row| !row[*column].is_empty()),
    };
    let shown: Vec<usize> = (0..COLUMNS.len()).filter(is_shown).collect();
    let cells = |row: &[String; 13]| shown.iter().map(|column| row[*column].clone()).collect();
    let note = format!(
        "Slowest requests {load}: due time (closed loop: time of sending) since the window began; response time and \
         its phases: wait before sending, connecting, to the first byte, to the last byte."
    );
    let columns = shown.iter().map(|column| (COLUMNS[*column], ""));
    (!rows.is_empty()).then(|| Table::titled("", columns, rows.iter().map(cells).collect(), note))
}

/// The slowest requests at the highest load that the server held, or at the lowest load if it held none; of a single
/// load, its own.
pub(crate) fn of_run(run: &RunDir, findings: &Findings) -> Option<Table> {
    let held = |sweep: &SweepFindings| {
        let highest = sweep.levels.iter().rfind(|level| matches!(level.zone, Zone::Elastic | Zone::Plastic));
        Some((sweep.sweep, highest.or(sweep.levels.first())?.load))
    };
    match findings.rate.iter().chain(&findings.connections).find_map(held) {
        Some((sweep, load)) => {
            let points: Vec<&Point> =
                run.points.iter().filter(|point| point.sweep == sweep && point.load() == load).collect();
            of_points(&counted_at(&points), &format!("at {}", load_words(load, sweep)))
        }
        None => {
            let single = run.points.iter().find(|point| point.sweep == Sweep::Single)?;
            of_points(&[single], "of the window")
        }
    }
}

/// The table for a terminal, after an empty line.
pub(super) fn text(table: Option<Table>) -> String {
    table.map_or(String::new(), |table| format!("\n{}{}", wrap(&table.note, "  ", "  "), table.aligned(0).lines()))
}

fn row(request: &SlowRequest, point: u32) -> [String; 13] {
    let time = |nanos: u64| if nanos == 0 { String::new() } else { format_nanos(nanos as f64) };
    let ended = request.failure.as_ref().map(|why| plain(why, 30));
    [
        format!("{point:03}"),
        format!("{:.3} s", request.at_ns as f64 / 1e9),
        time(request.response_ns),
        time(request.wait_ns),
        time(request.connect_ns),
        time(request.first_byte_ns),
        time(request.last_byte_ns),
        request.connection.to_string(),
        request.local_port.map_or(String::new(), |port| port.to_string()),
        format_bytes(f64::from(request.received_bytes)),
        request.status.map(|status| status.to_string()).or(ended).unwrap_or_default(),
        request.trace_id.map_or(String::new(), |id| id.to_string()),
        request.client.as_deref().map_or(String::new(), |client| plain(client, 40)),
    ]
}

//! Recordings of a watch, also damaged and very long ones: CPU time against request rate, work by process, stalls.

use analyze::watch::lines::{self, Window};
use analyze::watch::recording::KeptReading;
use analyze::watch::tables::{FigureTable, tables};
use analyze::watch::{Recording, stalls};
use proptest::prelude::*;
use rand::RngExt;
use record::watch::system::CpuModes;
use record::watch::{CpuTotals, PHASES, ProcessCounts, ProcessTotals, Reading};
use statistics::random;

const HEAD: &str = concat!(
    r#"{"kind":"watch","schema":1,"port":80,"mode":"counts","#,
    r#""classes":[{"name":"html","from_bytes":0,"below_bytes":null}]}"#
);

fn reading(elapsed_ns: u64, requests: &[u64]) -> String {
    let classes: Vec<_> = requests.iter().map(|requests| serde_json::json!({ "requests": requests })).collect();
    serde_json::json!({ "kind": "reading", "totals": { "elapsed_ns": elapsed_ns, "classes": classes } }).to_string()
        + "\n"
}

fn read(text: &str) -> Result<Recording, String> {
    Recording::read(text.as_bytes(), "f").map_err(|error| error.to_string())
}

#[test]
fn truncated_and_invalid_lines_are_counted_with_their_numbers() {
    let text = format!("{HEAD}\n{}nonsense\n{}{{\"kind\":\"rea", reading(5, &[7]), reading(5, &[]));
    let recording = read(&text).unwrap();
    assert_eq!((recording.readings, recording.unreadable_lines, recording.port), (1, 3, 80));
    assert!(recording.first_unreadable.unwrap().starts_with("line 3: "));
    assert_eq!(recording.samples[1].requests, 7);
}

#[test]
fn a_file_that_is_not_a_recording_is_refused() {
    assert!(read("").unwrap_err().contains("empty"));
    assert!(read("{\"kind\":\"reading\",\"totals\":{}}\n").unwrap_err().contains("settings"));
    assert!(read("\u{1b}[31m\n").is_err());
}

#[test]
fn an_endless_line_needs_bounded_memory_and_is_skipped() {
    let long = "x".repeat((4 << 20) + 100);
    let text = format!("{HEAD}\n{long}\n{}", reading(5, &[]));
    let recording = read(&text).unwrap();
    assert_eq!((recording.readings, recording.unreadable_lines), (1, 1));
}

#[test]
fn recordings_of_weeks_are_thinned_and_their_counts_stay_exact() {
    let readings: String = (0..250_002).map(|number| reading(number, &[number])).collect();
    let recording = read(&format!("{HEAD}\n{readings}")).unwrap();
    // The last reading is never thinned out.
    let (last, spaced) = recording.samples.split_last().unwrap();
    assert!(spaced.len() <= 200_000 && recording.readings == 250_002);
    assert!(spaced.windows(2).all(|pair| pair[1].requests - pair[0].requests == 2), "evenly spaced");
    assert_eq!((spaced[0].requests, last.requests), (0, 250_001));
    assert_eq!(recording.last.classes[0].requests, 250_001);
}

proptest! {
    /// The parts of a report add up to the counts since the watch began, however the rate varies.
    #[test]
    fn the_parts_of_a_report_add_up_to_the_recordings_totals(
        readings in prop::collection::vec((1u64..3_000_000_000, 0u64..500, 0u64..50), 1..60),
        is_from_the_beginning in any::<bool>(),
    ) {
        let (mut text, mut elapsed_ns, mut counts) = (format!("{HEAD}\n"), 0, [0u64; 2]);
        if is_from_the_beginning {
            text += &reading(0, &counts);
        }
        for (ns, small, large) in readings {
            elapsed_ns += ns;
            counts = [counts[0] + small, counts[1] + large];
            text += &reading(elapsed_ns, &counts);
        }
        let recording = read(&text).unwrap();
        let all = counts[0] + counts[1];
        let seconds = elapsed_ns as f64 / 1e9;
        let found = analyze::watch::find(&recording);
        let is_all = |sum: f64| (sum - all as f64).abs() < 1e-6 * all as f64 + 1e-6;
        prop_assert!((found.seconds - seconds).abs() < 1e-9);
        prop_assert!(is_all(found.requests_per_sec.unwrap() * seconds));
        let table = &found.tables.tables[0];
        prop_assert!(is_all(table.rows.iter().filter_map(|(_, cells)| cells[0].value).sum()));
        prop_assert!(is_all(table.rows.iter().filter_map(|(_, cells)| cells[2].value).sum::<f64>() * seconds));
        if let Ok(stalls) = &found.stalls {
            let ends = stalls.rates.iter().skip(1).map(|(at, _)| *at).chain([seconds]);
            prop_assert!(is_all(stalls.rates.iter().zip(ends).map(|((at, rate), end)| rate * (end - at)).sum()));
            let silent = stalls.rates.iter().filter(|(_, rate)| *rate == 0.0).count();
            let said = stalls.stalls.len() as f64 + stalls.silent_before_s + stalls.silent_after_s;
            prop_assert!(silent == 0 || said > 0.0, "an interval without a request is mentioned");
        }
        if let Ok(lines) = &found.lines {
            let ends = lines.windows.iter().skip(1).map(|window| window.at_s).chain([seconds]);
            let requests = |(window, end): (&Window, f64)| window.rate_per_sec * (end - window.at_s);
            let sum = lines.windows.iter().zip(ends).map(requests).sum();
            prop_assert!(is_all(sum), "{sum} {all}");
        }
    }
}

fn with_rates(rates: &[f64], cpus: f64, user_us: f64, kernel_us: f64) -> Recording {
    let mut recording = Recording { has_requests: true, cpus: cpus as u64, ..Recording::default() };
    let (mut requests, mut modes) = (0.0, CpuModes::default());
    let sample = |second: usize, requests: f64, modes: CpuModes| KeptReading {
        seconds: second as f64 * 2.0,
        requests: requests as u64,
        machine: Some((second as f64 * 2.0, modes)),
        ..KeptReading::default()
    };
    recording.samples.push(sample(0, 0.0, modes));
    for (index, rate) in rates.iter().enumerate() {
        requests += rate * 2.0;
        modes.user_ms += (rate * 2.0 * user_us / 1e3) as u64;
        modes.system_ms += (rate * 2.0 * kernel_us / 1e3) as u64;
        modes.idle_ms += (cpus * 2e3 - rate * 2.0 * (user_us + kernel_us) / 1e3) as u64;
        recording.samples.push(sample(index + 1, requests, modes));
    }
    recording
}

#[test]
fn rates_use_only_the_counted_time() {
    let at = |seconds: f64, requests, counted_s| KeptReading {
        seconds,
        requests,
        counted_s,
        server_cpu_s: Some(seconds),
        server_user_s: Some(seconds),
        ..KeptReading::default()
    };
    let rate = |end| lines::between(&at(0.0, 0, None), &end).map(|window| window.rate_per_sec);
    assert_eq!(rate(at(2.0, 100, None)), Some(50.0));
    assert_eq!(rate(at(2.0, 100, Some(0.5))), Some(200.0));
    assert_eq!(rate(at(2.0, 0, Some(0.0))), None);
}

#[test]
fn slopes_and_capacity_are_recovered() {
    let rates: Vec<f64> = (1..=20).map(|step| step as f64 * 500.0).collect();
    let lines = lines::find(&with_rates(&rates, 2.0, 20.0, 60.0)).unwrap();
    assert!((lines.user.slope.value * 1e6 - 20.0).abs() < 0.2, "{:?}", lines.user);
    assert!((lines.kernel.slope.value * 1e6 - 60.0).abs() < 0.2);
    let capacity = lines.idle.unwrap().x_intercept.unwrap().value;
    assert!((capacity - 25_000.0).abs() < 100.0, "{capacity}");
}

#[test]
fn a_steady_rate_or_too_few_readings_give_a_reason() {
    let steady = lines::find(&with_rates(&[1000.0; 20], 2.0, 20.0, 60.0)).unwrap_err();
    assert!(steady.contains("hardly changed"), "{steady}");
    assert!(lines::find(&with_rates(&[1000.0, 2000.0], 2.0, 20.0, 60.0)).unwrap_err().contains("record for longer"));
    assert!(lines::find(&Recording::default()).unwrap_err().contains("not counted"));
}

#[test]
fn the_servers_own_counters_replace_missing_machine_counters() {
    let mut recording = with_rates(&[], 2.0, 0.0, 0.0);
    recording.samples = (0..20u64)
        .map(|second| {
            let requests = second * second * 100;
            let cpu = requests as f64 * 50e-6;
            let seconds = second as f64 * 2.0;
            KeptReading {
                seconds,
                requests,
                server_cpu_s: Some(cpu),
                server_user_s: Some(cpu / 5.0),
                ..KeptReading::default()
            }
        })
        .collect();
    let lines = lines::find(&recording).unwrap();
    assert!(lines.idle.is_none() && lines.cpus == 0);
    assert!((lines.user.slope.value * 1e6 - 10.0).abs() < 0.1 && (lines.kernel.slope.value * 1e6 - 40.0).abs() < 0.1);
}

fn process(pid: u32, name: &str, cpu_ns: Option<u64>, requests: u64, timed: u64) -> ProcessTotals {
    let mean = (timed > 0).then_some(2500.0);
    ProcessTotals {
        pid,
        name: name.into(),
        processes: u64::from(pid != 0),
        cpu_ns,
        counted: Some(ProcessCounts {
            requests,
            bytes_in: requests * 100,
            bytes_out: requests * 1000,
            timed,
            elapsed_ns: [mean; PHASES],
            phase_cpu_ns: [mean; PHASES],
        }),
    }
}

fn totals(processes: Vec<ProcessTotals>) -> Reading {
    let group_ns = processes.iter().filter_map(|row| row.cpu_ns).sum();
    Reading { processes, cpu: Some(CpuTotals { group_ns, ..CpuTotals::default() }), ..Reading::default() }
}

fn table(last: &Reading) -> Option<FigureTable> {
    let last = Reading { elapsed_ns: 1_000_000_000, ..last.clone() };
    let found = tables(&Recording { last, ..Recording::default() });
    found.tables.into_iter().find(|table| table.title == "By process")
}

#[test]
fn a_single_process_gets_no_table() {
    assert!(table(&totals(vec![process(7, "nginx", Some(5), 1, 0), process(0, "", Some(5), 0, 0)])).is_none());
    assert!(table(&Reading::default()).is_none());
}

#[test]
fn each_process_has_its_work_with_units_and_counts() {
    let rows = vec![
        process(7, "nginx", Some(3_000_000_000), 30, 4),
        process(8, "nginx", Some(1_000_000_000), 10, 0),
        process(9, "", None, 5, 0),
        process(0, "", Some(0), 0, 0),
    ];
    let table = table(&totals(rows)).unwrap();
    let labels: Vec<&str> = table.rows.iter().map(|(label, _)| label.as_str()).collect();
    assert_eq!(labels, ["7 nginx", "8 nginx", "9 (ended)", "ended, or unknown"]);
    for (row, column, value) in [
        (0, ("CPU", "s"), Some(3.0)),
        (0, ("share", "%"), Some(75.0)),
        // What is not known is no zero.
        (2, ("CPU", "s"), None),
        (1, ("requests", "n"), Some(10.0)),
        (1, ("out", "B/request"), Some(1000.0)),
        (3, ("in", "B/request"), None),
        (0, ("log", "us CPU"), Some(2.5)),
        (0, ("timed", "n"), Some(4.0)),
        // Nothing was timed.
        (1, ("parse", "us elapsed"), None),
    ] {
        let at = table.columns.iter().position(|known| *known == column).expect("a column");
        assert_eq!(table.rows[row].1[at].value, value, "{column:?} of row {row}");
    }
    assert!(table.rows.iter().all(|(_, cells)| cells.len() == table.columns.len()));
}

#[test]
fn uncounted_quantities_get_no_columns() {
    let bare = |pid| ProcessTotals { counted: None, ..process(pid, "worker", Some(1), 0, 0) };
    let table = table(&totals(vec![bare(1), bare(2)])).unwrap();
    assert_eq!(table.columns, [("CPU", "s"), ("share", "%")]);
    assert!(!table.note.contains("counted"), "{}", table.note);
}

/// Readings every second; `is_silent` depends on the second.
fn with_silence(seconds: usize, per_sec: u64, is_silent: impl Fn(usize) -> bool) -> Recording {
    let mut requests = 0;
    let mut samples = vec![KeptReading::default()];
    for second in 0..seconds {
        requests += if is_silent(second) { 0 } else { per_sec };
        samples.push(KeptReading { seconds: second as f64 + 1.0, requests, ..KeptReading::default() });
    }
    Recording { samples, has_requests: true, ..Recording::default() }
}

#[test]
fn uncounted_time_is_not_a_stall() {
    let last = record::watch::Reading { counted_ns: Some(1), ..Default::default() };
    let recording = Recording { has_requests: true, last, ..Recording::default() };
    assert!(stalls::find(&recording).unwrap_err().contains("--detail counts"));
}

#[test]
fn a_period_of_thirty_seconds_is_found() {
    let found = stalls::find(&with_silence(300, 200, |second| second % 30 >= 25)).unwrap();
    assert_eq!(found.stalls.len(), 9, "the last one has no end");
    let period = found.period.unwrap();
    assert!((period.period_s.value - 30.0).abs() < 0.05, "{period:?}");
    assert!(period.concentration > 0.99 && period.p_value < 0.01);
}

#[test]
fn jitter_and_a_missing_stall_do_not_hide_the_period() {
    let mut random = random(5);
    let begins: Vec<usize> = (0..20).filter(|n| *n != 7).map(|n| 20 + n * 30 + random.random_range(0..3)).collect();
    let found =
        stalls::find(&with_silence(700, 200, |second| begins.iter().any(|b| (*b..b + 3).contains(&second)))).unwrap();
    assert!((found.period.unwrap().period_s.value - 30.0).abs() < 0.3, "{:?}", found.period);
}

#[test]
fn stalls_at_random_times_have_no_period() {
    let mut random = random(6);
    let mut with_period = 0;
    for set in 0..200 {
        let begins: Vec<usize> = (0..4 + set % 12).map(|_| random.random_range(5..590)).collect();
        let silent = |second: usize| begins.iter().any(|b| (*b..b + 2).contains(&second));
        with_period += usize::from(stalls::find(&with_silence(600, 200, silent)).unwrap().period.is_some());
    }
    assert!(with_period <= 6, "{with_period} of 200 by chance, where 2 is allowed on average");
}

#[test]
fn a_quiet_server_is_not_called_stalled() {
    let few = stalls::find(&with_silence(300, 2, |second| second % 3 == 0)).unwrap_err();
    assert!(few.contains("chance"), "{few}");
    let none = stalls::find(&with_silence(300, 200, |_| false)).unwrap();
    assert!(none.stalls.is_empty() && none.period.is_none());
    assert!(stalls::find(&with_silence(300, 200, |_| true)).unwrap_err().contains("no request"));
}

#[test]
fn silence_before_and_after_the_load_is_not_a_stall() {
    let found = stalls::find(&with_silence(300, 200, |second| !(50..250).contains(&second))).unwrap();
    assert!(found.stalls.is_empty(), "{:?}", found.stalls);
    assert_eq!((found.silent_before_s, found.silent_after_s), (50.0, 50.0));
    assert_eq!(found.rates.len(), 300, "the chart goes from end to end");
    let said = stalls::sentences(&found).join(" ");
    assert!(said.contains("the first 50.0 s and the last 50.0 s"), "{said}");
}

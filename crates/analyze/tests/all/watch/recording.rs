//! Recordings of a watch, also damaged and very long ones.

use analyze::watch::Recording;
use analyze::watch::lines::Window;
use proptest::prelude::*;

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

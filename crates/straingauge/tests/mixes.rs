//! Size mixes, dynamic shares and rate series on a real server: it sees what was requested.

use crate::document_server::DocumentServer;
use crate::rig::{Said, member, run, skipped, straingauge};
use serde_json::Value;

macro_rules! needs_documents {
    () => {
        if let Some(why) = DocumentServer::missing() {
            return skipped(&why);
        }
    };
}

fn load(server: &DocumentServer, options: &[&str]) -> Said {
    let url = if options.contains(&"--http2") { server.http_2_url() } else { server.url() };
    let mut command = straingauge(["load", &url, "--warmup", "0s", "--json", "--quiet"]);
    if !options.contains(&"--duration") {
        command.args(["--duration", "700ms"]);
    }
    run(command.args(options)).exits_with(0)
}

fn rows<'a>(json: &'a Value, grouping: &str) -> Vec<&'a Value> {
    let classes = member(json, "classes").as_array().expect("a list of classes");
    classes.iter().filter(|class| class["grouping"] == grouping).collect()
}

fn number(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or_else(|| panic!("no '{name}' in {row:#}"))
}

#[test]
fn a_webstone_mix_follows_table_1_and_is_reported_by_size_class() {
    needs_documents!();
    follows_table_1(&[]);
}

/// Responses of all sizes arrive interleaved on few connections.
#[test]
fn a_webstone_mix_over_http_2_follows_table_1() {
    needs_documents!();
    follows_table_1(&["--http2", "--in-flight", "12", "--connections", "4"]);
}

fn follows_table_1(options: &[&str]) {
    let server = DocumentServer::start(&["--mix", "webstone"]);
    let mix = ["--mix", "webstone", "--seed", "7", "--rate", "4k", "--threads", "2"];
    let json = load(&server, &[&mix, options].concat()).json();
    let outcomes = member(&json, "outcomes");
    assert_eq!(number(outcomes, "non_2xx"), 0, "every document of the mix was made: {outcomes:#}");
    let answers = server.end_and_read_log();
    let items = ["html", "image", "sound", "video"];
    let mut seen = [0f64; 4];
    for answer in &answers {
        let target = String::from_utf8_lossy(&answer.target).into_owned();
        let item = items.iter().position(|item| target.starts_with(&format!("/webstone/{item}/")));
        seen[item.unwrap_or_else(|| panic!("{target} is not of the mix"))] += 1.0;
    }
    // Access probabilities of Webmonitor's Table 1.
    let n: f64 = seen.iter().sum();
    let chi_square: f64 =
        seen.iter().zip([0.192, 0.754, 0.05, 0.004]).map(|(seen, p)| (seen - n * p).powi(2) / (n * p)).sum();
    // The 99.999th percentile of chi-square with 3 degrees of freedom.
    assert!(n > 500.0 && chi_square < 25.9, "{seen:?}: chi-square {chi_square}");

    let classes = rows(&json, "size");
    let labels: Vec<&str> = classes.iter().filter_map(|row| row["label"].as_str()).collect();
    assert_eq!(labels, ["to 64.0 KiB", "64.0 KiB to 1.00 MiB", "over 1.00 MiB"]);
    let asked: Vec<f64> = classes.iter().filter_map(|row| row["asked_ratio"].as_f64()).collect();
    for (asked, tabled) in asked.iter().zip([0.946, 0.05, 0.004]) {
        assert!((asked - tabled).abs() < 1e-9, "{asked} {tabled}");
    }
    let sent: u64 = classes.iter().map(|row| number(row, "requests")).sum();
    assert_eq!(sent, number(outcomes, "sent"));
    for row in &classes {
        assert_eq!(number(row, "requests"), number(row, "ok") + number(row, "failed") + number(row, "unfinished"));
        assert!(row["response_p50_us"]["n"].as_u64() == Some(number(row, "ok")) || number(row, "ok") == 0, "{row:#}");
    }
    // The server's own count, if no request was in flight at the end.
    if number(outcomes, "unfinished") == 0 {
        assert_eq!(number(classes[0], "ok") as f64, seen[0] + seen[1]);
        assert_eq!(number(classes[1], "ok") as f64, seen[2]);
        let bytes: u64 = classes.iter().map(|row| number(row, "body_bytes")).sum();
        assert_eq!(bytes, answers.iter().map(|answer| answer.body_bytes).sum::<u64>());
    }
}

#[test]
fn a_mix_fitted_to_a_log_finds_its_files_and_classes_are_selectable() {
    needs_documents!();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let log = dir.path().join("access.log");
    let lines: String = (0..400u32)
        .map(|n| {
            let bytes = 200 + (n * n) % 90_000;
            format!("10.0.0.1 - - [17/May/2015:10:00:00 +0000] \"GET /d{} HTTP/1.1\" 200 {bytes}\n", n % 200)
        })
        .collect();
    std::fs::write(&log, lines).expect("a temporary file");
    let path = log.to_str().expect("temporary paths are text");
    let server = DocumentServer::start(&["--mix", "fitted", "--trace", path]);
    let classes = ["--set", "workload.classes=1KiB,10KiB,30KiB"];
    let json = load(&server, &["--mix", "fitted", "--trace", path, classes[0], classes[1], "-c", "2"]).json();
    assert_eq!(number(member(&json, "outcomes"), "non_2xx"), 0, "{json:#}");
    assert_eq!(rows(&json, "size").len(), 4);
}

#[test]
fn a_dynamic_share_is_reported_by_kind_and_weights_are_kept() {
    needs_documents!();
    let server = DocumentServer::start(&["--mix", "webstone"]);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a temporary file");
        path.to_str().expect("temporary paths are text").to_string()
    };
    let statics = file("static.txt", "/webstone/html/01.html 3\n/webstone/html/02.html\n");
    let dynamics = file("dynamic.txt", "# made for each request\n/webstone/image/01.gif?a=1\n");
    let options = [
        "--urls",
        &statics,
        "--set",
        &format!("workload.dynamic-urls={dynamics}"),
        "--set",
        "workload.dynamic-share=30%",
        "--rate",
        "3k",
        "--seed",
        "3",
    ];
    let json = load(&server, &options).json();
    let kinds = rows(&json, "kind");
    assert_eq!(kinds.iter().filter_map(|row| row["label"].as_str()).collect::<Vec<_>>(), ["static", "dynamic"]);
    assert_eq!(kinds[1]["asked_ratio"].as_f64(), Some(0.3));
    let answers = server.end_and_read_log();
    let n = answers.len() as f64;
    let share = |start: &[u8]| answers.iter().filter(|answer| answer.target.starts_with(start)).count() as f64 / n;
    for (start, p) in
        [(&b"/webstone/image"[..], 0.3f64), (b"/webstone/html/01", 0.7 * 0.75), (b"/webstone/html/02", 0.7 * 0.25)]
    {
        let error = (p * (1.0 - p) / n).sqrt();
        assert!((share(start) - p).abs() < 5.0 * error, "{}: {} instead of {p}", start.escape_ascii(), share(start));
    }
}

#[test]
fn a_rate_series_is_offered_with_its_mean_rate_and_shape() {
    needs_documents!();
    let server = DocumentServer::start(&["--mix", "webstone"]);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let series = dir.path().join("surge.csv");
    std::fs::write(&series, "time,count\n1998-06-10 10:00:00,90\n1998-06-10 10:01:00,0\n1998-06-10 10:02:00,10\n")
        .expect("a temporary file");
    let path = series.to_str().expect("temporary paths are text");
    let out = dir.path().join("run");
    let out = out.to_str().expect("temporary paths are text");
    let options = ["--rate-series", path, "--rate", "1k", "--duration", "1200ms", "--out", out, "--any-status"];
    let json = load(&server, &options).json();
    let sent = number(member(&json, "outcomes"), "sent") as f64;
    // 1,200 expected with a standard deviation of 35; the tolerance is six of them.
    assert!((sent - 1200.0).abs() < 210.0, "{sent}");
    // No request is intended for the middle third, so none is late there, however slow the machine is.
    let rows =
        std::fs::read_to_string(std::path::Path::new(out).join("points/000/series.csv")).expect("the series is kept");
    let completed: Vec<u64> = rows.lines().skip(1).filter_map(|row| row.split(',').nth(1)?.parse().ok()).collect();
    assert!(
        completed.len() == 12 && completed.iter().take(8).sum::<u64>() * 5 > completed.iter().sum::<u64>() * 4,
        "{rows}"
    );
    let pace = member(&json, "pace");
    assert_eq!((pace["arrival"].as_str(), pace["rate_per_sec"].as_f64()), (Some("series"), Some(1000.0)));
    // The series' own rate: 100 requests in three minutes, played in 0.9 s.
    let json = load(&server, &["--rate-series", path, "--speed", "200", "--duration", "10s", "--any-status"]).json();
    let sent = number(member(&json, "outcomes"), "sent") as f64;
    assert!((sent - 100.0).abs() < 60.0, "{sent}");
}

#[test]
fn a_scenario_file_equals_its_command_line() {
    needs_documents!();
    let server = DocumentServer::start(&["--mix", "webstone"]);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let scenario = dir.path().join("scenario.toml");
    let text = format!(
        "url = '{}'\n[load]\nrate = 1000\nduration = '300ms'\nwarmup = '0s'\n[workload]\nmix = 'webstone'\nclasses = \
         '16KiB'\n",
        server.url()
    );
    std::fs::write(&scenario, text).expect("a temporary file");
    let path = scenario.to_str().expect("temporary paths are text");
    let said = run(&mut straingauge(["load", "--scenario", path, "--quiet"])).exits_with(0);
    assert!(said.out.contains("size class") && said.out.contains("to 16.0 KiB"), "{}", said.out);
}

//! `--export`: other programs open the profiles, and their sums by layer equal straingauge's output.

use crate::report_page::{browser, look};
use crate::rig::{
    Running, free_port, is_root, needs_server, node_package, open_dir, points, program, repository, run, skip_unless,
    skipped, straingauge,
};
use crate::server::{Kind, Server, serve_words};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Samples and nanoseconds per layer.
type Sums = BTreeMap<String, [u64; 2]>;

/// A sample of a pprof file.
#[derive(Debug, PartialEq)]
struct Sample {
    values: [u64; 2],
    labels: BTreeMap<String, String>,
}

fn sums_of<'s>(samples: impl IntoIterator<Item = &'s Sample>, key: &str) -> Sums {
    let mut sums = Sums::new();
    for sample in samples {
        let sum = sums.entry(sample.labels[key].clone()).or_default();
        *sum = [sum[0] + sample.values[0], sum[1] + sample.values[1]];
    }
    sums
}

/// The samples of a file, read by npm's pprof-format; `None` without the package.
fn by_pprof_format(file: &Path) -> Option<Vec<Sample>> {
    const SCRIPT: &str = r#"
        const { Profile } = require(process.argv[1]);
        const bytes = require("zlib").gunzipSync(require("fs").readFileSync(process.argv[2]));
        const profile = Profile.decode(bytes);
        const text = (place) => profile.stringTable.strings[Number(place)];
        const labels = (all) => all.map(({ key, str }) => [text(key), text(str)]).filter(([, value]) => value);
        const samples = profile.sample.map((sample) => [
          sample.value.map(Number),
          Object.fromEntries(labels(sample.label)),
        ]);
        console.log(JSON.stringify(samples));"#;
    let package = node_package("pprof-format")?;
    let said = run(Command::new(program("node")?).args(["-e", SCRIPT]).arg(package).arg(file)).exits_with(0);
    let samples: Vec<([u64; 2], BTreeMap<String, String>)> = serde_json::from_str(&said.out).expect("samples");
    Some(samples.into_iter().map(|(values, labels)| Sample { values, labels }).collect())
}

/// Whether speedscope's importer accepts the file; `None` without the package or a browser.
fn by_speedscope(file: &Path) -> Option<()> {
    let package = node_package("speedscope")?;
    browser()?;
    let dir = open_dir();
    let script = dir.path().join("file.js");
    let encoded = Command::new("base64").arg("-w0").arg(file).output().expect("base64 is part of coreutils").stdout;
    let encoded = String::from_utf8(encoded).expect("base64");
    let name = file.file_name().expect("a file").to_string_lossy();
    std::fs::write(&script, format!("speedscope.loadFileFromBase64({name:?}, {encoded:?})")).expect("our own folder");
    let page = format!("{}/dist/release/index.html#localProfilePath={}", package.display(), script.display());
    let options = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"].map(String::from);
    let seen = look(Path::new(&page), &options);
    let console = seen.console().join("\n");
    assert!(console.contains("speedscope json") && console.contains("import:"), "{console}");
    assert!(!console.to_lowercase().contains("error") && !console.contains("recognized"), "{console}");
    Some(())
}

/// Reports once which readers are missing.
fn say_what_is_missing(seen: &[(&str, bool)]) {
    let missing: Vec<&str> = seen.iter().filter(|(_, is_seen)| !is_seen).map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        skipped(&format!("in part: not opened by {} (setup/install test, .ci/packages)", missing.join(", ")));
    }
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).expect("it was written")).expect("JSON")
}

/// Nanoseconds per layer in the profiles of a speedscope file that have layers as frames.
fn in_speedscope(file: &Path) -> BTreeMap<String, u64> {
    let file = read(file);
    let mut sums = BTreeMap::new();
    let number = |value: &Value| value.as_u64().expect("a number");
    for profile in file["profiles"].as_array().expect("profiles") {
        if !profile["name"].as_str().expect("a name").ends_with(", by layer") {
            continue;
        }
        let weights = profile["weights"].as_array().expect("weights");
        for (sample, weight) in profile["samples"].as_array().expect("samples").iter().zip(weights) {
            let layer = file["shared"]["frames"][number(&sample[1]) as usize]["name"].as_str().expect("a name");
            *sums.entry(layer.to_string()).or_default() += number(weight);
        }
    }
    sums
}

/// Samples per category of a Firefox profile.
fn in_firefox(file: &Path) -> BTreeMap<String, u64> {
    let file = read(file);
    let mut sums = BTreeMap::new();
    for thread in file["threads"].as_array().expect("threads") {
        let place =
            |table: &str, column: &str, row: u64| thread[table][column][row as usize].as_u64().expect("a place");
        for row in 0..thread["samples"]["length"].as_u64().expect("a number") {
            let frame = place("stackTable", "frame", place("samples", "stack", row));
            let category = place("frameTable", "category", frame);
            let name = file["meta"]["categories"][category as usize]["name"].as_str().expect("a name");
            *sums.entry(name.to_string()).or_default() += place("samples", "weight", row);
        }
    }
    sums
}

/// Samples per frame at this place of folded stacks.
fn in_folded(file: &Path, place: usize) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in std::fs::read_to_string(file).expect("it was written").lines() {
        let (stack, count) = line.rsplit_once(' ').expect("a count");
        let frame = stack.split(';').nth(place).expect("a frame").to_string();
        *sums.entry(frame).or_default() += count.parse::<u64>().expect("a number");
    }
    sums
}

/// A file of each format, and the option values that write them.
struct Files {
    folder: PathBuf,
}

impl Files {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn add_to(&self, command: &mut Command) {
        for (format, name) in [
            ("pprof", "p.pb.gz"),
            ("firefox", "f.json"),
            ("speedscope", "s.speedscope.json"),
            ("folded", "x.folded"),
            ("folded-layers", "l.folded"),
        ] {
            command.arg("--export").arg(format!("{format}={}", self.at(name).display()));
        }
    }

    /// Opens every file and compares its sums. `layer_at`: position of the layer in folded stacks.
    #[track_caller]
    fn hold(&self, wanted: &Sums, layer_at: usize) {
        let of = |column: usize| -> BTreeMap<String, u64> {
            let sums = wanted.iter().map(|(layer, sums)| (layer.clone(), sums[column]));
            sums.filter(|(_, sum)| *sum > 0).collect()
        };
        let pprof = by_pprof_format(&self.at("p.pb.gz"));
        if let Some(samples) = &pprof {
            assert_eq!(&sums_of(samples, "layer"), wanted, "pprof");
        }
        let opened = by_speedscope(&self.at("s.speedscope.json"));
        assert_eq!(in_speedscope(&self.at("s.speedscope.json")), of(1), "speedscope");
        assert_eq!(in_firefox(&self.at("f.json")), of(0), "Firefox");
        assert_eq!(in_folded(&self.at("l.folded"), layer_at), of(0), "folded-layers");
        let folded = in_folded(&self.at("x.folded"), 0);
        assert_eq!(folded.values().sum::<u64>(), of(0).values().sum::<u64>(), "folded");
        say_what_is_missing(&[("pprof-format", pprof.is_some()), ("speedscope", opened.is_some())]);
    }
}

/// A kept run of `find` with synthetic stacks, whose names have every difficult character.
fn kept_run(folder: &Path) {
    let example = repository().join("python/examples/find-nginx");
    std::fs::copy(example.join("run.json"), folder.join("run.json")).expect("it is kept");
    for index in 0..3u64 {
        let name = format!("points/{index:03}");
        std::fs::create_dir_all(folder.join(&name)).expect("our own folder");
        let point = format!("{name}/point.json");
        std::fs::copy(example.join(&point), folder.join(&point)).expect("it is kept");
        let functions: Vec<Value> = ["tcp_ack", "Lfoo;::bar\n 1", "ngx_\u{1b}[31mred \"x\"", "do_syscall_64"]
            .iter()
            .enumerate()
            .map(|(place, name)| json!({"function": name, "is_kernel": place % 3 == 0}))
            .collect();
        let stack = |functions: &[u32], layer: Option<&str>, samples: u64| {
            let mut stack = json!({"functions": functions, "process": 0, "ran": "server", "mode": "kernel",
                "samples": samples, "cpu_ns": samples * 1_003_001 + index});
            if let Some(layer) = layer {
                stack["layer"] = layer.into();
            }
            stack
        };
        let stacks = json!({"started_unix_ms": 1_700_000_000_000u64 + index * 5000, "duration_ns": 2_000_000_000u64,
            "clock": "cpu-clock", "period_ns": 5_025_125, "processes": [{"pid": 4711, "name": "nginx: w;x"}],
            "functions": functions, "stacks": [
                stack(&[0, 3, 2], Some("tcp"), 10 + index), stack(&[1, 2], Some("user"), 7), stack(&[], None, 1)]});
        std::fs::write(folder.join(name).join("stacks.json"), stacks.to_string()).expect("our own folder");
    }
}

#[test]
fn a_kept_run_opens_in_other_programs() {
    let dir = open_dir();
    let path = dir.path().join("run");
    std::fs::create_dir(&path).expect("our own folder");
    kept_run(&path);
    let files = Files { folder: dir.path().to_path_buf() };
    let mut command = straingauge(["report"]);
    command.arg(&path);
    files.add_to(&mut command);
    let said = run(&mut command).exits_with(0);
    assert_eq!(said.out, "", "nothing else is printed");
    assert!(!path.join("report.html").exists(), "nothing else is written");
    let cpu = |samples: u64, added: u64| samples * 1_003_001 + added;
    let wanted: Sums = [("TCP", [33, cpu(33, 3)]), ("User", [21, cpu(21, 3)]), ("unattributed", [3, cpu(3, 3)])]
        .map(|(layer, sums)| (layer.to_string(), sums))
        .into();
    files.hold(&wanted, 2);
    for point in points(&path) {
        let load = format!("{} connection", point["connections"]);
        let folded = std::fs::read_to_string(files.at("x.folded")).expect("it was written");
        assert!(folded.contains(&load), "{load} in {folded}");
    }
    let Some(samples) = by_pprof_format(&files.at("p.pb.gz")) else {
        return skipped("node or npm's pprof-format is not installed (make test installs them)");
    };
    assert_eq!(sums_of(&samples, "point")["002"], [20, cpu(20, 6)]);
    let known = ["elastic", "plastic", "failure", "unknown"];
    assert!(samples.iter().all(|sample| known.contains(&sample.labels["zone"].as_str())));
}

#[test]
fn a_profile_of_nginx_opens_in_other_programs() {
    skip_unless!(is_root(), "needs root, to sample stacks with BPF");
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let dir = open_dir();
    let files = Files { folder: dir.path().to_path_buf() };
    let url = server.url("1k.bin");
    let load = Running::start(&mut straingauge(["load", &url, "-d", "20s", "-c", "8", "-q"]));
    let permitted = run(&mut straingauge(["profile", &server.port.to_string(), "--duration", "1s"]));
    if permitted.code != Some(0) {
        return skipped(permitted.err.lines().last().unwrap_or_default());
    }
    let mut command = straingauge(["profile", &server.port.to_string(), "--duration", "2s", "--json"]);
    files.add_to(&mut command);
    let said = run(&mut command).exits_with(0);
    drop(load);
    let table = said.json();
    let words = [
        ("user", "User"),
        ("system-call", "System Call"),
        ("tcp", "TCP"),
        ("ip", "IP"),
        ("ethernet", "Ethernet"),
        ("driver", "Driver"),
        ("other", "Other"),
    ];
    let rows = table["layers"].as_array().expect("layers").iter().filter(|row| row["part"].is_null());
    let wanted: Sums = rows
        .filter(|row| row["samples"].as_u64() > Some(0))
        .map(|row| {
            let layer = words.iter().find(|(word, _)| row["layer"] == *word).map_or("unattributed", |(_, word)| *word);
            let cpu_ns = row["cpu_ns"].as_f64().expect("a time").round() as u64;
            (layer.to_string(), [row["samples"].as_u64().expect("a number"), cpu_ns])
        })
        .collect();
    files.hold(&wanted, 1);
    let firefox = read(&files.at("f.json"));
    let threads = firefox["threads"].as_array().expect("threads");
    assert!(threads.iter().any(|thread| thread["name"] == "nginx"), "{threads:?}");
}

#[test]
fn every_point_of_find_keeps_the_stacks_of_its_layers() {
    skip_unless!(is_root(), "needs root, to sample stacks with BPF");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let out = dir.path().join("run");
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let mut command = straingauge(["find", &url, "--profile", "always", "--sweep", "connections", "--budget", "14s"]);
    command
        .args(["--duration", "2s", "--warmup", "50ms", "--max-connections", "2", "--repeats", "1", "-q", "--out"])
        .arg(&out);
    command.arg("--").args(serve_words(Kind::Nginx, port, &dir.path().join("state"), "0.0.0.0"));
    let said = run(&mut command);
    if said.err.contains("--profile always is not possible") {
        return skipped(said.err.trim());
    }
    let said = said.exits_with(0);
    let file = dir.path().join("p.pb.gz");
    let exported = run(straingauge(["report"]).arg(&out).arg("--export").arg(format!("pprof={}", file.display())));
    let sampled: Vec<Value> = points(&out)
        .into_iter()
        .filter(|point| point["figures"]["layer.tcp_us_per_request"]["value"].is_number())
        .collect();
    if sampled.is_empty() {
        return skipped("the server got next to no CPU beside other work, so no point was sampled");
    }
    exported.exits_with(0);
    let Some(samples) = by_pprof_format(&file) else {
        return skipped("node or npm's pprof-format is not installed (make test installs them)");
    };
    let words = [
        ("User", "user"),
        ("System Call", "system_call"),
        ("TCP", "tcp"),
        ("IP", "ip"),
        ("Ethernet", "ethernet"),
        ("Driver", "driver"),
        ("Other", "other"),
        ("unattributed", "unattributed"),
    ];
    for point in sampled {
        let name = format!("{:03}", point["index"].as_u64().expect("a number"));
        let of_point: Vec<&Sample> = samples.iter().filter(|sample| sample.labels["point"] == name).collect();
        let sums = sums_of(of_point, "layer");
        let requests = point["figures"]["client.throughput_per_sec"]["n"].as_f64().expect("counted");
        for (layer, word) in words {
            let figure = &point["figures"][format!("layer.{word}_us_per_request")];
            let exported = sums.get(layer).copied().unwrap_or_default();
            assert_eq!(Some(exported[0]), figure["n"].as_u64(), "samples of {layer} in point {name}: {}", said.out);
            let wanted = figure["value"].as_f64().expect("a time") * requests * 1e3;
            assert!((exported[1] as f64 - wanted).abs() < 1.0, "{layer}: {} ns, wanted {wanted}", exported[1]);
        }
        let zones: Vec<&String> = samples.iter().filter_map(|sample| sample.labels.get("zone")).collect();
        assert_eq!(zones.len(), samples.len(), "every sample has a zone");
    }
}

#[test]
fn an_impossible_export_is_refused_in_one_sentence() {
    let dir = open_dir();
    let path = dir.path().join("run");
    std::fs::create_dir(&path).expect("our own folder");
    kept_run(&path);
    let file = dir.path().join("out");
    let export = |value: String| {
        let mut command = straingauge(["report"]);
        command.arg(&path).arg("--export").arg(value);
        run(&mut command)
    };
    export("perfetto=x".into()).exits_with(2).complains_of(&["perfetto", "pprof, firefox, speedscope, folded"]);
    export("pprof".into()).exits_with(2).complains_of(&["--export", "file is missing"]);
    export(format!("pprof={}", dir.path().display())).exits_with(2).complains_of(&["is a folder"]);
    export(format!("pprof={}/none/out", dir.path().display()))
        .exits_with(1)
        .complains_of(&["cannot write", "none/out"]);
    let twice = format!("folded={}", file.display());
    run(straingauge(["report", "--export", &twice, "--export", &twice]).arg(&path))
        .exits_with(2)
        .complains_of(&["twice"]);
    run(straingauge(["report", "--json", "--export", &twice]).arg(&path)).exits_with(2).complains_of(&["--json"]);
    // The refusal comes before the ten seconds of a profile.
    let port = free_port().to_string();
    run(&mut straingauge(["profile", &port, "--export", "pprof=/none/out"])).exits_with(1).complains_of(&["/none/out"]);
    assert!(!file.exists());
    let old = "as it was";
    std::fs::write(&file, old).expect("our own folder");
    for index in 0..3 {
        std::fs::remove_file(path.join(format!("points/{index:03}/stacks.json"))).expect("it is there");
    }
    export(twice).exits_with(1).complains_of(&["not measured: "]);
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), old, "a refused export changes nothing");
    let left = std::fs::read_dir(dir.path()).expect("our own folder").count();
    assert_eq!(left, 2, "nothing else is left behind");
}

#[test]
fn an_export_can_be_written_to_standard_output() {
    let dir = open_dir();
    let path = dir.path().join("run");
    std::fs::create_dir(&path).expect("our own folder");
    kept_run(&path);
    let printed = run(straingauge(["report", "--export", "folded=-"]).arg(&path)).exits_with(0).out;
    assert_eq!(printed.lines().count(), 9, "three stacks at three loads: {printed}");
    // Appends to a file that has a line already, also through a link, which root could replace by mistake.
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    std::os::unix::fs::symlink("/proc/self/fd/1", &link).expect("our own folder");
    let line = "echo first >\"$3\"; \"$1\" report \"$2\" --export \"folded=$4\" >>\"$3\"; echo last >>\"$3\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", line, "sh", env!("CARGO_BIN_EXE_straingauge")]).arg(&path).arg(&file).arg(&link);
    run(&mut shell).exits_with(0);
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), format!("first\n{printed}last\n"));
    assert!(std::fs::symlink_metadata(&link).expect("it is there").is_symlink(), "the link was replaced");
}

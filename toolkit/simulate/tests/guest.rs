//! Tests with real guests and a stock kernel. A test that cannot be simulated here is skipped with the reason.

mod rig;

use rig::{Running, Said, guests, missing, not_installed, open_dir, program, put_program, run, simulate};
use serde_json::Value;
use simulate::SimulateError;
use simulate::cache::{Geometry, Replacement, Setup};
use simulate::experiment::{self, Experiment, GuestLoad, LoadCommand, ServerPlan, Workload};
use simulate::guest::{Image, Kernel};
use simulate::machine::{Limits, Qemu, Saved};
use simulate::simulation::{Point, PointPlan, Sample, Simulation};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Whether long tests run at their full length (`make test-long`).
fn long_run() -> bool {
    std::env::var_os("STRAINGAUGE_LONG").is_some_and(|value| value == "1")
}

/// `straingauge`, which loads servers in the guest.
fn load_program() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_straingauge-simulate")).with_file_name("straingauge")
}

/// Why no server can be loaded in a guest here.
fn nothing_to_load() -> Option<String> {
    let is_built = load_program().is_file();
    let load = || (!is_built).then(|| "straingauge is not built (cargo build --bin straingauge)".to_string());
    missing().or_else(|| not_installed("nginx")).or_else(load)
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {path} in {value:#}"))
}

/// Number of counted packets, which is larger in long runs.
fn packets() -> u32 {
    if long_run() { 5000 } else { 300 }
}

/// The microbenchmark with these numbers of connections.
fn bench(connections: &str, more: &[&str]) -> Said {
    let packets = packets().to_string();
    let options = ["--packets", &packets, "--delay", "1ms", "--l2", "128KiB,4MiB", "--axis", "connections"];
    run(&mut simulate(&[&options[..], &["--axis-values", connections], more].concat()))
}

#[test]
fn counts_of_a_microbenchmark_are_exact_and_equal_after_another_boot() {
    skip_if!(missing());
    let folder = open_dir();
    let place = folder.path().join("run").display().to_string();
    let everything = ["--repack", "tcp_sock", "--cost", "1,12,350", "--out", &place];
    let said = bench("4,128", &everything).exits_with(0);
    assert!(said.out.contains("cycles (modelled)") && said.err.contains(&place), "{}\n{}", said.out, said.err);
    bench("4,128", &everything).exits_with(1).complains_of(&["already holds a run"]);
    let simulation = assert_the_directory_has_a_report(&place);
    assert_the_knee_moves_with_the_size_of_the_l2(&simulation);
    assert_every_miss_has_its_object_and_packing_saves_lines(&simulation["points"][1]["samples"][0]);
    if !long_run() {
        // The test of nginx checks equal counts of one boot.
        return;
    }
    let again = bench("4", &["--json"]).exits_with(0).json();
    for counts in ["sent", "received", "window_ns", "all", "rows", "stack", "client_instructions"] {
        let of = |simulation: &Value| simulation["points"][0]["samples"][0][counts].clone();
        assert!(!of(&again).is_null(), "{counts}: {again:#}");
        assert_eq!(of(&simulation), of(&again), "another boot, the same counts: {counts}");
    }
}

/// Checks the output of `report` for a run directory; returns the simulation that the directory keeps.
fn assert_the_directory_has_a_report(place: &str) -> Value {
    let report = run(&mut simulate(&["report", place])).exits_with(0);
    assert!(report.out.starts_with("Simulated, nothing measured") && report.out.contains("tcp_sock"), "{}", report.out);
    let page = std::fs::read_to_string(Path::new(place).join("report.html")).expect("the page");
    assert!(page.contains("All figures here are simulated") && page.contains("<svg"));
    let json = run(&mut simulate(&["report", place, "--json"])).exits_with(0).json();
    assert_eq!((&json["kind"], &json["simulation"]["origin"]), (&"simulation".into(), &"simulated".into()));
    std::fs::write(Path::new(place).join("simulation.json"), "{\"origin\": \"timed\"}").expect("a broken file");
    run(&mut simulate(&["report", place])).exits_with(1).complains_of(&["simulation.json is not a simulation"]);
    json["simulation"].clone()
}

fn assert_the_knee_moves_with_the_size_of_the_l2(report: &Value) {
    // The segments, and perhaps one packet of the neighbour protocol.
    let sent = number(report, "/points/0/samples/0/sent");
    let packets = f64::from(packets());
    assert!((packets..packets + 10.0).contains(&sent), "{sent}");
    let per_packet = |point: usize, what: &str| {
        let sample = format!("/points/{point}/samples/0");
        number(report, &format!("{sample}/stack/{what}")) / number(report, &format!("{sample}/sent"))
    };
    let (few, many) = (per_packet(0, "instructions"), per_packet(1, "instructions"));
    assert!((many / few - 1.0).abs() < 0.1, "instructions hardly depend on the connections: {few} and {many}");
    let misses = |point: usize, level: usize| per_packet(point, &format!("l2/{level}/data_misses"));
    assert!(
        misses(1, 0) > 1.2 * misses(0, 0),
        "128 connections do not fit into 128 KiB: {} {}",
        misses(1, 0),
        misses(0, 0)
    );
    assert!(misses(1, 1) < misses(1, 0) / 10.0, "they do into 4 MiB: {} {}", misses(1, 1), misses(1, 0));
    // The client's end is not counted, so a server that fits has almost no misses.
    let all_fit = per_packet(0, "l2/1/data_misses") + per_packet(0, "l2/1/fetch_misses");
    assert!(all_fit < 5.0, "4 connections fit into 4 MiB: {all_fit}");
    // Every layer worked, and almost no instructions are unattributed.
    for layer in ["user", "system-call", "tcp", "ip", "ethernet", "driver", "other"] {
        let rows = report.pointer("/points/0/samples/0/rows").and_then(Value::as_array).expect("rows");
        let all: f64 = rows.iter().filter(|row| row["layer"] == layer).map(|row| number(row, "/instructions")).sum();
        assert!(all > 0.0, "{layer}");
    }
    let nobody = number(report, "/points/0/samples/0/unattributed/instructions");
    assert!(nobody < 0.01 * number(report, "/points/0/samples/0/all/instructions"), "{nobody}");
}

fn assert_every_miss_has_its_object_and_packing_saves_lines(sample: &Value) {
    let objects = sample["objects"].as_array().expect("objects");
    let sum = |path: &str| -> f64 { objects.iter().map(|object| number(object, path)).sum() };
    // Two counts of the same accesses, by kind of memory and by layer.
    assert_eq!(sum("/l2_misses/0"), number(sample, "/all/l2/0/data_misses"));
    assert_eq!(sum("/l1d_misses"), number(sample, "/all/l1d_misses"));
    assert_eq!(sum("/reads") + sum("/writes"), number(sample, "/all/reads") + number(sample, "/all/writes"));
    let code = number(sample, "/code_l2_misses/kernel/0") + number(sample, "/code_l2_misses/user/0");
    assert_eq!(code, number(sample, "/all/l2/0/fetch_misses"));
    let unattributed = objects.iter().find(|object| object["name"] == "unattributed");
    let lost = unattributed.map_or(0.0, |object| number(object, "/reads") + number(object, "/writes"));
    assert!(lost < 0.01 * (sum("/reads") + sum("/writes")), "{lost} accesses are to nothing that is known");

    let tcp_sock = objects.iter().find(|object| object["structure"] == "tcp_sock").expect("sockets were touched");
    let sent = number(sample, "/sent");
    // At least one connection per packet; a lookup in the connection table passes some others.
    let visits = number(tcp_sock, "/visits") / sent;
    assert!((0.9..20.0).contains(&visits), "{visits} visits a packet");
    let field = |name: &str| {
        let fields = tcp_sock["fields"].as_array().expect("fields");
        let found = fields.iter().find(|field| field["name"].as_str().is_some_and(|words| words.contains(name)));
        found.unwrap_or_else(|| panic!("no {name} among {fields:#?}"))
    };
    // Every segment moves snd_nxt and every acknowledgement snd_una, with one write each.
    for name in ["snd_nxt", "snd_una"] {
        let writes = number(field(name), "/writes") / sent;
        assert!((0.9..1.2).contains(&writes), "{name} is written {writes} times a packet");
    }
    let of_fields: f64 =
        tcp_sock["fields"].as_array().into_iter().flatten().map(|field| number(field, "/l2_misses")).sum();
    assert!(of_fields <= number(tcp_sock, "/l2_misses/0"), "a field's misses are the object's");
    let packed = &sample["packed"][0];
    let (before, after) = (number(packed, "/l2_misses_before/0"), number(packed, "/l2_misses_after/0"));
    assert_eq!(before, number(tcp_sock, "/l2_misses/0"));
    assert!(after < 0.8 * before, "packed sockets miss less: {before} and {after}");
    assert!(number(packed, "/lines_after") < number(packed, "/lines_before"));
    let instructions = |path: &str| number(sample, &format!("{path}/instructions"));
    assert_eq!(instructions("/stack_packed"), instructions("/stack"), "the same run, to the instruction");
}

/// nginx with documents of 1,000 to 5,000 bytes, and the arguments of `simulate` for it.
struct Nginx {
    folder: tempfile::TempDir,
    words: Vec<String>,
}

impl Nginx {
    fn new() -> Nginx {
        let folder = open_dir();
        let at = folder.path().display().to_string();
        for number in 1..=5 {
            std::fs::write(folder.path().join(format!("page{number}")), vec![b'x'; 1000 * number]).expect("a file");
        }
        let paths =
            ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path /run/{name};"));
        let configuration = format!(
            "daemon off; user nobody nogroup; error_log stderr; pid /run/nginx.pid; events {{}}\n\
             http {{ access_log off; {} server {{ listen 8080; root {at}; }} }}\n",
            paths.concat()
        );
        std::fs::write(folder.path().join("nginx.conf"), configuration).expect("a file in a temporary folder");
        let mut words: Vec<String> = ["--warmup", "40ms", "--duration", "40ms"].map(String::from).into();
        words.extend(["--file".to_string(), at]);
        words.extend(["--folder", "/var/log/nginx", "--folder", "/var/lib/nginx"].map(String::from));
        Nginx { folder, words }
    }

    fn configuration(&self) -> String {
        self.folder.path().join("nginx.conf").display().to_string()
    }

    /// A log of this many requests from twenty clients, some of them for missing documents.
    fn log(&self, name: &str, requests: usize) -> std::path::PathBuf {
        let line = |at: usize| {
            let (client, page, second) = (at % 20, at * 7 % 6, at / 500);
            let (status, bytes) = if page == 0 { (404, 0) } else { (200, 1000 * page) };
            let time = format!("22/Nov/2026:10:{:02}:{:02} +0000", second / 60, second % 60);
            format!("10.1.0.{client} - - [{time}] \"GET /page{page} HTTP/1.1\" {status} {bytes}\n")
        };
        let path = self.folder.path().join(name);
        std::fs::write(&path, (0..requests).map(line).collect::<String>()).expect("a log");
        path
    }

    fn simulate(&self, words: &[&str]) -> Said {
        let own: Vec<&str> = self.words.iter().map(String::as_str).collect();
        run(&mut simulate(&[&own, words].concat()))
    }
}

/// A closed loop of 220 ms, like one from the command line.
#[derive(Debug)]
struct ClosedLoop;

impl GuestLoad for ClosedLoop {
    fn put(&self, image: &mut Image) -> Result<(), SimulateError> {
        image.take_program(&load_program(), Some("/straingauge/straingauge")).map(drop)
    }

    fn command(&self, point: &PointPlan) -> LoadCommand {
        let url = format!("http://{}:8080/page4", simulate::guest::SERVER_ADDRESS);
        let connections = point.connections.to_string();
        let words =
            ["/straingauge/straingauge", "load", &url, "--json", "--threads", "1", "--connections", &connections];
        let times = ["--warmup", "20ms", "--duration", "220ms"];
        // It sends one request before, on a separate connection.
        LoadCommand { words: words.into_iter().chain(times).map(String::from).collect(), opened: 1 + point.connections }
    }
}

/// The plan that the command line makes for nginx with a closed loop for one document.
fn experiment_with(nginx: &Nginx, caches: Option<Setup>) -> Experiment {
    let plan = ServerPlan {
        command: vec![program("nginx").display().to_string(), "-c".into(), nginx.configuration()],
        files: [nginx.folder.path(), Path::new("/etc/passwd"), Path::new("/etc/group")].map(Path::to_path_buf).into(),
        folders: ["/var/log/nginx", "/var/lib/nginx"].map(String::from).into(),
        port: 8080,
        load: Arc::new(ClosedLoop),
        warmup_ms: 20,
        window_ms: 20,
    };
    Experiment {
        points: Vec::new(),
        seeds: 1,
        caches,
        objects: false,
        pack: Vec::new(),
        cost: None,
        workload: Workload::Server(Box::new(plan)),
        limits: Limits { memory_mib: 512, timeout: Duration::from_secs(600) },
        kernel: None,
        qemu: None,
    }
}

fn small_caches() -> Setup {
    let level = |bytes| Geometry::new(bytes, 8, 64, Replacement::Lru).expect("a power of two");
    Setup {
        l1i: level(64 << 10),
        l1d: level(64 << 10),
        l2: vec![level(256 << 10)],
        l3: None,
        itlb: None,
        dtlb: None,
        next_line_prefetch: false,
        curve_sample_shift: None,
    }
}

#[test]
fn caches_change_no_count_of_a_real_server_and_failed_jobs_need_no_reboot() {
    skip_if!(nothing_to_load());
    let nginx = Nginx::new();
    let cached = experiment_with(&nginx, Some(small_caches()));
    let qemu = Qemu::find(None).expect("looked for before");
    let kernel = Kernel::find(None).expect("looked for before");
    let base = Image::base(&kernel).expect("the guest's own files");
    let files = experiment::files_of(&base, &cached.workload).expect("nginx's files");
    let mut files = files.expect("a server has files");
    files.take_program(Path::new("/bin/ls"), None).expect("every machine has one");
    skip_if!(not_installed("busybox"));
    let busybox = program("busybox");
    files.take_program(&busybox, None).expect("a program");
    let saved = Saved::boot(&qemu, &kernel, (&base, Some(&files)), 1, cached.limits, &mut || {}, &|| false);
    let mut saved = saved.expect("a boot");
    // With a delay the guest is idle most of the time, which its clock skips.
    let plan = PointPlan { connections: 4, rate_per_sec: 0, delay_us: 1000 };
    let mut sample = |experiment: &Experiment| experiment::sample(&mut saved, experiment, &plan, &|| false);

    let with = sample(&cached).expect("nginx serves");
    assert!(with.sent > 10, "{with:?}");
    let load = with.load.as_ref().expect("the engine's own account");
    assert!(load.pointer("/point/outcomes/ok").and_then(Value::as_u64) > Some(10), "{load:#}");
    let plain = experiment_with(&nginx, None);
    let without = sample(&plain).expect("nginx serves");
    let counts = |sample: &Sample| (sample.sent, sample.received, sample.window_ns, sample.client_instructions);
    assert_eq!(counts(&with), counts(&without), "caches do not reach the guest");
    let rows = |sample: &Sample| -> Vec<(String, u64)> {
        sample.rows.iter().map(|row| (format!("{:?}", row.row), row.counts.instructions)).collect()
    };
    assert_eq!(rows(&with), rows(&without));
    let simulation = Simulation {
        origin: record::Origin::Simulated,
        unit: String::new(),
        qemu: qemu.version.clone(),
        kernel: kernel.version.clone(),
        caches: cached.caches.as_ref().map(simulate::result::caches),
        cost: None,
        points: vec![Point { connections: 4, delay_us: 1000, n: 1, samples: vec![with], ..Point::default() }],
    };
    let text = simulate::render::text::run(&simulation, 10);
    let load = text.lines().skip_while(|line| *line != "The load").nth(2).expect("a row of the load");
    let cells: Vec<&str> = load.split_whitespace().collect();
    assert_eq!((cells[..2].join(" ").as_str(), cells[3]), ("C:4 L:1", "0"), "{text}");

    let mut ends = plain.clone();
    if let Workload::Server(server) = &mut ends.workload {
        server.command = ["/bin/ls", "/does-not-exist"].map(String::from).into();
    }
    let why = sample(&ends).expect_err("ls is no server").to_string();
    assert!(why.contains("did not start in the guest") && why.contains("No such file"), "{why}");
    let mut denies = plain.clone();
    if let Workload::Server(server) = &mut denies.workload {
        let busybox = busybox.display().to_string();
        let words = [&busybox, "nc", "-ll", "-p", "8080", "-e", &busybox, "echo", "-DENIED", "no", "web"];
        server.command = words.map(String::from).into();
    }
    let why = sample(&denies).expect_err("no HTTP").to_string();
    assert!(why.contains("port 8080 does not answer HTTP") && why.contains("'-DENIED no web'"), "{why}");
    let workload = Workload::Bench { warmup_packets: 1, packets: 10 };
    let unpackable = Experiment { workload, objects: true, pack: vec!["no_such_struct".into()], ..cached };
    let why = sample(&unpackable).expect_err("there is no such structure").to_string();
    assert!(why.contains("--repack no_such_struct") && why.contains("tcp_sock"), "{why}");
}

#[test]
fn a_log_is_replayed_in_the_guest_and_a_short_one_is_refused() {
    skip_if!(nothing_to_load());
    let nginx = Nginx::new();
    // One connection cannot send this many requests over 2 ms each way, but fewer than sixty-four can.
    nginx.log("access.log", 300);
    let at = nginx.folder.path();
    let scenario = at.join("web.toml").display().to_string();
    let text = format!(
        "url = 'http://example.net:8080/'\n[load]\nconnections = 8\nthreads = 64\n[workload]\ntrace = '{}'\nspeed = \
         'max'\n[path]\ndelay = '1ms'\n[server]\ncommand = ['nginx', '-c', '{}']\n",
        at.join("access.log").display(),
        nginx.configuration()
    );
    std::fs::write(&scenario, text).expect("a scenario");
    let place = at.join("run").display().to_string();
    // Typed options override the file.
    let words =
        ["--scenario", &scenario, "--axis", "connections", "--axis-values", "1,64", "--no-caches", "--out", &place];
    nginx.simulate(&words).exits_with(1).complains_of(&["the load ended in the guest before the count did", "log"]);
    // The previous point is kept.
    let json = run(&mut simulate(&["report", &place, "--json"])).exits_with(0).json();
    let sample = &json["simulation"]["points"][0]["samples"][0];
    let replay = |what: &str| number(sample, &format!("/load/point/workload/replay/{what}"));
    assert!(replay("statuses_equal") > 20.0 && replay("sizes_equal") > 20.0, "{sample:#}");
    assert_eq!(
        (replay("statuses_different"), replay("sizes_different")),
        (0.0, 0.0),
        "the log's own documents: {sample:#}"
    );
    let tables = json["tables"].as_array().expect("tables");
    let load = tables.iter().find(|table| table["title"] == "The load").expect("a table of the load");
    assert_eq!(load["rows"][0][0], "C:1 L:1");
    assert_ne!(load["rows"][0][2], "0", "what is not there is counted: {load:#}");
}

#[test]
fn a_guest_that_runs_out_of_time_is_reported() {
    skip_if!(missing());
    run(&mut simulate(&["--guest-timeout", "1ms"]))
        .exits_with(1)
        .complains_of(&["did not end within", "--guest-timeout"]);
}

#[test]
fn interruptions_and_kills_leave_no_guest() {
    skip_if!(missing());
    for (signal, code) in [(libc::SIGINT, Some(130)), (libc::SIGKILL, None)] {
        // Its memory size distinguishes this guest from those of other tests.
        let memory = if code.is_some() { "-m 300 " } else { "-m 310 " };
        let size = if code.is_some() { "300MiB" } else { "310MiB" };
        let mut running = Running::start(&mut simulate(&["--connections", "4", "--memory", size]));
        running.wait_until("the guest starts", || guests(memory) > 0);
        running.signal(signal);
        let said = running.wait();
        assert_eq!(said.code, code, "{}", said.err);
        let mut tries = 0;
        while guests(memory) > 0 {
            tries += 1;
            assert!(tries < 500, "the guest outlives straingauge");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn impossible_simulations_are_refused_in_a_sentence() {
    let refused = |arguments: &[&str], code: i32, words: &[&str]| {
        run(&mut simulate(arguments)).exits_with(code).complains_of(words);
    };
    let folder = open_dir();
    let scenario = |machine: &str| {
        let path = folder.path().join("machine.toml");
        std::fs::write(&path, format!("[simulate]\n{machine}\n")).expect("a scenario");
        path.display().to_string()
    };
    refused(&["--scenario", &scenario("l2-ways = 7"), "--l2", "100KiB"], 2, &["--l2", "do not divide"]);
    refused(&["--scenario", &scenario("line = 48"), "--l1", "64KiB"], 2, &["--l1", "power of two"]);
    let twelve = scenario("l2-ways = 12\nreplacement = 'plru'");
    refused(&["--scenario", &twelve, "--l2", "384KiB"], 2, &["tree-PLRU"]);
    refused(&["--scenario", &scenario("tlb = 7")], 2, &["tlb"]);
    refused(&["--l2", "1k,2k,3k,4k,5k,6k,7k,8k,9k"], 2, &["at most 8"]);
    refused(&["--connections", "0"], 2, &["connections"]);
    refused(&["--axis", "delay"], 2, &["--axis-values"]);
    refused(&["--seeds", "0"], 2, &["--seeds"]);
    refused(&["--axis", "rate", "--axis-values", "100,0"], 2, &["--axis-values"]);
    refused(&["--cost", "1,2"], 2, &["--cost", "three numbers"]);
    refused(&["--cost", "1,-2,3"], 2, &["--cost"]);
    refused(&["--no-caches", "--objects"], 2, &["--objects"]);
    refused(&["--memory", "1MiB"], 2, &["--memory"]);
    refused(&["--packets", "5", "--", "/bin/true"], 2, &["--packets"]);
    refused(&["--trace", "access.log"], 2, &["-- SERVER"]);
    refused(&["--trace", "/no/such/log", "--", "/bin/true"], 1, &["/no/such/log"]);
    refused(&["--", "no-such-server-here"], 1, &["no-such-server-here"]);
    refused(&["--qemu", "/does/not/exist"], 1, &["/does/not/exist"]);
}

#[test]
fn an_emulator_or_a_kernel_that_cannot_be_used_is_named() {
    let folder = open_dir();
    let put = |name: &str, version: &str| -> String {
        let path = folder.path().join(name);
        put_program(&path, &format!("#!/bin/sh\necho 'QEMU emulator version {version}'\n"));
        path.display().to_string()
    };
    let new = put("new", "11.0.0");
    run(&mut simulate(&["--qemu", &new])).exits_with(1).complains_of(&[
        "QEMU 11.0",
        "another plugin interface",
        "6.0 to 10",
    ]);
    let right = put("right", "7.2.0");
    let empty = folder.path().display().to_string();
    run(&mut simulate(&["--qemu", &right, "--kernel", &empty])).exits_with(1).complains_of(&[
        "no kernel",
        &empty,
        "--kernel",
    ]);
    let nowhere = Path::new("/nowhere");
    let without = run(simulate(&[]).env_remove("STRAINGAUGE_QEMU").env("PATH", nowhere)).exits_with(1);
    without.complains_of(&["qemu-system-x86_64 is not installed", "apt-get install"]);
}

//! Serves a tree with a real nginx to check the map and the manifest.

use std::io::{Cursor, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use workload::files::{Tree, TreeLimits, make};
use workload::trace::{LogFormat, TraceReader};

struct Nginx {
    process: Child,
    port: u16,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts nginx on a free loopback port as docs/workloads.md describes; without nginx, prints the reason and returns
/// `None`.
fn start(files: &Path, scratch: &Path) -> Option<Nginx> {
    if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
        eprintln!("not run: nginx is not installed");
        return None;
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (files, temporary) = (files.display(), scratch.display());
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {temporary}/{name};\n"))
        .collect();
    let configuration = format!(
        "daemon off;\nmaster_process off;\npid {temporary}/pid;\nerror_log stderr crit;\nevents {{}}\nhttp \
         {{\n{paths}access_log off;\ninclude {files}/nginx-map.conf;\nserver {{\nlisten \
         127.0.0.1:{port};\nmerge_slashes off;\nlocation / {{ root {files}/root; try_files $straingauge_file $uri/ \
         =404; }}\n}}\n}}\n"
    );
    let path = scratch.join("nginx.conf");
    std::fs::write(&path, configuration).unwrap();
    let mut process = Command::new("nginx").arg("-e").arg("stderr").arg("-c").arg(&path).spawn().unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(process.try_wait().unwrap().is_none(), "nginx refused its configuration");
        assert!(Instant::now() < patience, "nginx does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(Nginx { process, port })
}

/// Status and body of a GET for exactly these bytes.
fn get(port: u16, target: &[u8]) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(&[b"GET ", target, b" HTTP/1.0\r\nHost: h\r\n\r\n"].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    (std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap(), answer.split_off(head))
}

#[test]
fn nginx_answers_every_target_with_its_bytes() {
    let scratch = tempfile::tempdir().unwrap();
    let long = format!("/{}", "n".repeat(300));
    let targets = [
        "/",
        "/a.html",
        "/a/",
        "/a/b.txt",
        "/both",
        "/both/child",
        "/page?id=1",
        "/page?id=2",
        "/page",
        "//double",
        "/a//b",
        "/%41.html",
        "/sp%20ace",
        "/uml%C3%A4ut",
        "/\\\"quoted\\\"",
        "/back\\\\slash",
        "/$uri",
        "/${x}?$args",
        "/semi;colon{}",
        "/.htaccess",
        "/mapped-urls/x",
        "/~user/?x",
        "/x?a=/../b",
        &long,
        "/utf\\xc3\\xa9",
        "/plus+and&and=",
        "/d%24llar",
    ];
    let log: String = targets
        .iter()
        .enumerate()
        .map(|(number, target)| {
            format!("h - - [17/May/2015:10:05:03 +0000] \"GET {target} HTTP/1.1\" 200 {}\n", 100 + number)
        })
        .collect();
    let mut reader =
        TraceReader::from_reader("test.log".into(), Box::new(Cursor::new(log)), &LogFormat::Common).unwrap();
    let tree = Tree::of_trace(&mut reader, &TreeLimits::default()).unwrap();
    assert_eq!(tree.entries.len(), targets.len());
    let files = scratch.path().join("files");
    make(&tree, &files, &TreeLimits::default(), |_, _| {}).unwrap();
    let Some(nginx) = start(&files, scratch.path()) else { return };
    for entry in &tree.entries {
        let (status, body) = get(nginx.port, &entry.target);
        let shown = entry.target.escape_ascii();
        assert_eq!((status, body.len() as u64), (200, entry.bytes), "{shown}");
        assert!(
            body == std::fs::read(files.join("root").join(&entry.file)).unwrap(),
            "{shown} has another file's bytes"
        );
    }
    assert_eq!(get(nginx.port, b"/absent").0, 404);
    assert_eq!(get(nginx.port, b"/a").0, 301);
}

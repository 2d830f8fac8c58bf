//! Tests the cache model against Valgrind's cachegrind on the same program. cachegrind counts its misses, and lackey
//! (another tool of Valgrind) writes its trace of addresses, which the model then reads. Every count must be equal.

use simulate::cache::{Geometry, Level, Replacement};
use std::path::Path;
use std::process::Command;

const GEOMETRIES: [[(u64, u32); 3]; 2] = [[(1024, 2), (2048, 4), (16384, 8)], [(4096, 1), (8192, 2), (65536, 16)]];
const LINE: u32 = 64;

fn valgrind(arguments: &[&str], log: &Path) -> String {
    let output = Command::new("valgrind")
        .env_clear()
        .args(arguments)
        .arg(format!("--log-file={}", log.display()))
        .arg("/bin/true")
        .output()
        .expect("valgrind starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(log).expect("valgrind wrote its log")
}

/// cachegrind counts one miss for an access to two lines if at least one of them misses.
fn misses(level: &mut Level, address: u64, bytes: u64) -> bool {
    let line = u64::from(LINE);
    let first = !level.access(address, false).is_hit;
    if address / line == (address + bytes - 1) / line {
        first
    } else {
        !level.access(address + bytes - 1, false).is_hit || first
    }
}

#[test]
fn the_same_trace_misses_as_often_as_in_cachegrind() {
    let is_there = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there || !Path::new("/bin/true").exists() {
        eprintln!(
            "SKIPPED the_same_trace_misses_as_often_as_in_cachegrind: valgrind is not installed (apt-get install \
             valgrind)"
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = valgrind(&["--tool=lackey", "--trace-mem=yes"], &folder.path().join("trace"));
    for [i1, d1, ll] in GEOMETRIES {
        let option = |name: &str, (size, ways): (u64, u32)| format!("--{name}={size},{ways},{LINE}");
        let out = format!("--cachegrind-out-file={}", folder.path().join("counts").display());
        let arguments = ["--tool=cachegrind", &out, &option("I1", i1), &option("D1", d1), &option("LL", ll)];
        valgrind(&arguments, &folder.path().join("log"));
        let kept = std::fs::read_to_string(folder.path().join("counts")).unwrap();
        let summary = kept.lines().find_map(|line| line.strip_prefix("summary: ")).expect("a summary");
        // Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw
        let expected: Vec<u64> = summary.split_whitespace().map(|word| word.parse().unwrap()).collect();

        let level = |(size, ways)| Level::new(Geometry::new(size, ways, LINE, Replacement::Lru).unwrap());
        let (mut i1, mut d1, mut ll) = (level(i1), level(d1), level(ll));
        let mut counted = vec![0_u64; 9];
        for line in trace.lines() {
            let Some((kind, access)) = line.get(..3).zip(line.get(3..)) else { continue };
            let Some((address, bytes)) = access.split_once(',') else { continue };
            let (Ok(address), Ok(bytes)) = (u64::from_str_radix(address, 16), bytes.trim().parse()) else { continue };
            let (row, first) = match kind.trim() {
                "I" => (0, &mut i1),
                "L" | "M" => (3, &mut d1),
                "S" => (6, &mut d1),
                _ => continue,
            };
            counted[row] += 1;
            if misses(first, address, bytes) {
                counted[row + 1] += 1;
                counted[row + 2] += u64::from(misses(&mut ll, address, bytes));
            }
        }
        assert!(counted[0] > 50_000, "the trace was read: {counted:?}");
        assert_eq!(counted, expected);
    }
}

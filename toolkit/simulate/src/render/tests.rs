use super::findings::along;
use super::*;
use crate::simulation::Point;
use record::layers::Layer;
use serde_json::{Value, json};

fn counts(layer: &Value, instructions: u64, misses: u64) -> Value {
    json!({
        "layer": layer, "part": "", "instructions": instructions, "l1i_misses": 10, "l1d_misses": 20,
        "l2": [{ "fetch_misses": 0, "data_misses": misses }, { "fetch_misses": 0, "data_misses": misses / 2 }],
    })
}

fn point(connections: u64, rate: u64, delay_us: u64, misses: u64) -> Value {
    let rows: Vec<Value> = Layer::ALL.iter().map(|layer| counts(&json!(layer), 1000, misses)).collect();
    json!({
        "connections": connections, "rate_per_sec": rate, "delay_us": delay_us, "n": 1,
        "samples": [{
            "seed": 1, "sent": 10, "window_ns": 100_000_000, "rows": rows, "unattributed": counts(&Value::Null, 0, 0),
            "stack": counts(&Value::Null, 5000, 5 * misses), "all": counts(&Value::Null, 8000, 8 * misses),
            "objects": [{
                "name": "TCP", "structure": "tcp_sock<b>", "stride_bytes": 2304,
                "reads": 100, "writes": 50, "l1d_misses": 9,
                "l2_misses": [4 * misses, 2 * misses],
                "misses_by_instructions_since_visit": { "below": [1, 100], "counts": [misses, misses, 2 * misses] },
                "lines": [{ "offset": 64, "accesses": 100, "l2_misses": misses, "fields": ["snd_nxt"] }],
            }],
            "packed": [{
                "object": "tcp_sock", "l2_misses_before": [4 * misses, 0], "l2_misses_after": [misses, 0],
                "lines_before": 31, "lines_after": 17,
            }],
            "stack_packed": counts(&Value::Null, 5000, 2 * misses),
            // 100 packets and 20 answers per second.
            "load": { "point": {
                "schema": 1, "index": 0, "sweep": "single", "repeat": 0, "connections": 7, "pace": { "loop": "closed" },
                "started_unix_ms": 0, "warmup_ns": 0, "duration_ns": 200_000_000,
                "outcomes": { "sent": 5, "ok": 3, "non_2xx": 1, "reset": 1, "connects": 7 },
                "figures": {
                    "client.throughput_per_sec": { "value": 20.0, "unit": "1/s" },
                    "client.body_bytes": { "value": 400.0, "unit": "bytes" },
                },
            } },
        }],
    })
}

fn simulation() -> Simulation {
    let value = json!({
        "origin": "simulated", "qemu": "QEMU 7.2", "kernel": "6.1",
        "caches": { "l1i": "65536/2/64/lru", "l1d": "65536/2/64/lru", "l2": ["262144/16/64/lru", "1048576/16/64/lru"] },
        "cost": { "instruction": 1.0, "l1_miss": 10.0, "l2_miss": 100.0 },
        "points": [
            point(4, 8333, 0, 10), point(128, 8333, 0, 100), point(512, 8333, 0, 200),
            point(128, 8333, 20_000, 300), point(128, 100, 0, 90),
        ],
    });
    Simulation::parse(value.to_string().as_bytes()).unwrap()
}

#[test]
fn each_quantity_that_varies_has_its_points() {
    let simulation = simulation();
    let values = |group: &[&Point]| -> Vec<u64> { group.iter().map(|point| point.connections).collect() };
    let groups = along(&simulation, |point| point.connections);
    assert_eq!(groups.len(), 1, "of the others only one differs from another in the connections alone");
    assert_eq!(values(&groups[0]), [4, 128, 512]);
    assert_eq!(along(&simulation, |point| point.delay_us)[0].len(), 2);
    assert_eq!(along(&simulation, |point| point.rate_per_sec)[0].len(), 2);
    let numbers: Vec<String> = figures::figures(&simulation).iter().map(|figure| figure.caption.clone()).collect();
    for wanted in ["Figure 4", "Figure 5", "Figure 6", "Figure 7", "section 6.2"] {
        assert!(numbers.iter().any(|caption| caption.contains(wanted)), "{wanted}");
    }
    assert!(numbers.iter().all(|caption| caption.contains("Simulated")));
}

#[test]
fn tables_are_per_packet_and_cycles_name_their_costs() {
    let tables = tables::tables(&simulation(), 10);
    let table = |title: &str| {
        let found = tables.iter().find(|table| table.title.contains(title));
        found.unwrap_or_else(|| panic!("no {title}"))
    };
    let profiles = table("Table 1");
    assert!(
        profiles.note.contains("10 more per miss of L1") && profiles.note.contains("modelled"),
        "{}",
        profiles.note
    );
    let row = |name: &str| &profiles.rows.iter().find(|(label, _)| label.contains(name)).unwrap().1;
    assert_eq!(row("C:4 L:0 8333/s instructions")[2], "100");
    // (1000 + 10 * 30 + 100 * 10) / 10 packets
    assert_eq!(row("C:4 L:0 8333/s cycles")[2], "230");
    assert_eq!(table("Table 2").rows.len(), 2 * 5);
    // 5 packets of 500 instructions per answer.
    assert_eq!(table("The load").rows[0].1, ["4", "2", "7", "100", "5.00", "2,500"]);
    // At the point with most misses, 400 + 400 of 1200 come after the first instruction, and 600 after 100.
    let hidden = &table("Table 3").rows[0].1;
    assert_eq!(hidden, &["120", "90.0", "60.0"]);
    assert_eq!(table("order of their accesses").rows[0].1[..2], ["120", "30.0"]);
    assert_eq!(table("Lines of").rows[0].0, "64: snd_nxt");
}

#[test]
fn an_empty_simulation_has_no_numbers() {
    let empty = Simulation::parse(b"{\"origin\": \"simulated\", \"points\": [{\"samples\": [{}]}]}").unwrap();
    assert!(!text::run(&empty, 10).contains("NaN") && figures::figures(&empty).is_empty());
}

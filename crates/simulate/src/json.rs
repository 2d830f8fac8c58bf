//! The report as JSON. Counts are whole numbers over the window; `sent` is what divides them.

use crate::cache::{Counts, LevelCounts, Setup};
use crate::objects::DISTANCES;
use crate::objects_found::ObjectRow;
use crate::result::{PointReport, Report, RowCounts, Sample};
use record::layers::Layer;
use serde_json::{Value, json};

/// The whole report.
pub fn report(report: &Report) -> Value {
    let levels = report.caches.as_ref().map_or(0, |caches| caches.l2.len());
    json!({
        "origin": report.origin,
        "unit": "events in the window; divide by sent for events a packet",
        "qemu": report.qemu,
        "kernel": report.kernel,
        "caches": report.caches.as_ref().map(caches),
        "cost": report.cost.map(|cost| json!({
            "instruction": cost.instruction,
            "l1_miss": cost.l1_miss,
            "l2_miss": cost.l2_miss,
        })),
        "points": report.points.iter().map(|point| one_point(point, levels)).collect::<Vec<_>>(),
    })
}

fn caches(caches: &Setup) -> Value {
    let text = |geometry: &crate::cache::Geometry| geometry.to_string();
    json!({
        "format": "bytes/ways/line bytes/replacement",
        "l1i": text(&caches.l1i),
        "l1d": text(&caches.l1d),
        "l2": caches.l2.iter().map(text).collect::<Vec<_>>(),
        "l3": caches.l3.as_ref().map(text),
        "itlb": caches.itlb.as_ref().map(text),
        "dtlb": caches.dtlb.as_ref().map(text),
        "next_line_prefetch": caches.next_line_prefetch,
    })
}

fn one_point(point: &PointReport, levels: usize) -> Value {
    json!({
        "connections": point.plan.connections,
        "rate_per_sec": point.plan.rate_per_sec,
        "delay_us": point.plan.delay_us,
        "n": point.samples.len(),
        "samples": point.samples.iter().map(|sample| one_sample(sample, levels)).collect::<Vec<_>>(),
    })
}

fn one_sample(sample: &Sample, levels: usize) -> Value {
    let row = |layer: Layer, part: &str, counts: &RowCounts| {
        let mut value = row_counts(counts, levels);
        value["layer"] = json!(layer);
        value["part"] = json!(part);
        value
    };
    let functions = sample.functions.iter().map(|function| {
        let mut value = cache_counts(&function.caches, levels);
        value["function"] = json!(function.function);
        value["layer"] = json!(function.layer);
        value["instructions"] = json!(function.instructions);
        value
    });
    json!({
        "seed": sample.seed,
        "sent": sample.sent,
        "received": sample.received,
        "window_ns": sample.window_ns,
        "client_instructions": sample.client_instructions,
        "rows": sample.rows.iter().map(|(known, counts)| row(known.layer, &known.part, counts)).collect::<Vec<_>>(),
        "unattributed": row_counts(&sample.unattributed, levels),
        "stack": row_counts(&sample.stack(), levels),
        "all": row_counts(&sample.all(), levels),
        "unclassified_instructions": sample.unclassified_instructions,
        "functions": functions.collect::<Vec<_>>(),
        "curve": sample.curve.as_ref().map(|(accesses, points)| json!({
            "accesses": accesses,
            "miss_ratio_by_bytes": points,
        })),
        "objects": sample.objects.as_ref().ok().filter(|rows| !rows.is_empty()).map(|rows| {
            rows.iter().map(|row| object(row, levels)).collect::<Vec<_>>()
        }),
        "objects_not_known": sample.objects.as_ref().err(),
        "code_l2_misses": { "kernel": &sample.code[0][..levels], "user": &sample.code[1][..levels] },
        "packed": sample.packed.iter().map(|row| json!({
            "object": row.name,
            "l2_misses_before": &row.before[..levels],
            "l2_misses_after": &row.after[..levels],
            "lines_before": row.lines_before,
            "lines_after": row.lines_after,
        })).collect::<Vec<_>>(),
        "stack_packed": sample.stack_packed.as_ref().map(|counts| row_counts(counts, levels)),
        "load": sample.load.as_ref().and_then(|text| serde_json::from_str::<Value>(text).ok()),
    })
}

fn object(row: &ObjectRow, levels: usize) -> Value {
    json!({
        "name": row.name,
        "structure": row.structure,
        "stride_bytes": row.stride,
        "reads": row.reads,
        "writes": row.writes,
        "l1d_misses": row.l1d_misses,
        "l2_misses": &row.l2_misses[..levels],
        "visits": row.visits,
        "misses_by_instructions_since_visit": {
            "below": DISTANCES,
            "counts": row.distances,
        },
        "fields": row.fields.iter().map(|field| json!({
            "name": field.name,
            "offset": field.offset,
            "bytes": field.bytes,
            "reads": field.reads,
            "writes": field.writes,
            "l2_misses": field.misses,
        })).collect::<Vec<_>>(),
        "lines": row.lines.iter().map(|line| json!({
            "offset": line.offset,
            "accesses": line.accesses,
            "l2_misses": line.misses,
            "fields": line.fields,
        })).collect::<Vec<_>>(),
        "variables": row.variables,
    })
}

fn row_counts(counts: &RowCounts, levels: usize) -> Value {
    let mut value = cache_counts(&counts.caches, levels);
    value["instructions"] = json!(counts.instructions);
    value["repeats"] = json!(counts.repeats);
    value["reads"] = json!(counts.reads);
    value["writes"] = json!(counts.writes);
    value
}

fn cache_counts(counts: &Counts, levels: usize) -> Value {
    if levels == 0 {
        return json!({});
    }
    let level = |level: &LevelCounts| {
        json!({
            "fetch_misses": level.fetch_misses,
            "data_misses": level.data_misses,
            "write_backs": level.write_backs,
            "prefetches": level.prefetches,
            "useful_prefetches": level.useful_prefetches,
        })
    };
    json!({
        "l1i_misses": counts.l1i_misses,
        "l1d_misses": counts.l1d_misses,
        "l1d_write_backs": counts.l1d_write_backs,
        "itlb_misses": counts.itlb_misses,
        "dtlb_misses": counts.dtlb_misses,
        "l2": counts.l2.iter().take(levels).map(level).collect::<Vec<_>>(),
        "l3": level(&counts.l3),
    })
}

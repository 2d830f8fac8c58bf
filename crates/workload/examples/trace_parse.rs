//! Reads a log and prints its contents and the time that reading took: straingauge's side of bench/trace-parse.
//!
//! Usage: `trace_parse LOG [FORMAT]`. Prints one line: entries, rejected lines, bytes read, sum of sizes, hash of the
//! clients.

use std::time::Instant;
use workload::trace::{LogFormat, TraceReader};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let log = args.next().ok_or("usage: trace_parse LOG [FORMAT]")?;
    let format: LogFormat = args.next().as_deref().unwrap_or("auto").parse()?;
    let start = Instant::now();
    let mut reader = TraceReader::open(log.as_ref(), &format)?;
    let (mut sum_bytes, mut touched) = (0u64, 0u64);
    while let Some(entry) = reader.next_entry()? {
        sum_bytes += entry.bytes.unwrap_or(0);
        // Uses every field, so that the compiler cannot omit any part of the work.
        touched = touched
            .wrapping_add(entry.time_ns as u64)
            .wrapping_add(entry.client.len() as u64)
            .wrapping_add(u64::from(*entry.target.last().unwrap_or(&0)))
            .wrapping_add(u64::from(entry.method[0]))
            .wrapping_add(u64::from(entry.status.unwrap_or(0)));
    }
    let elapsed = start.elapsed().as_secs_f64();
    let counts = reader.counts();
    println!(
        "format={} entries={} rejected={} bytes={} sum_bytes={sum_bytes} touched={touched} elapsed_s={elapsed:.6}",
        reader.format(),
        counts.entries,
        counts.rejected.total(),
        counts.bytes
    );
    Ok(())
}

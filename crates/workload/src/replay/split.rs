//! One log as several: the lines of each client go to the part that holds it ([`Share::holds`]), in the log's order and
//! unchanged. A replayer of a part sends what a replayer of the whole log with that share would send.

use super::ReplayOptions;
use super::order::Window;
use super::origin::Origin;
use crate::stable_hash;
use crate::trace::{TraceError, TraceReader};
use flate2::Compression;
use flate2::write::GzEncoder;
use record::Share;
use std::io::Write;

/// Counts of the whole log that its parts do not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitCounts {
    /// The log's earliest time ([`ReplayOptions::origin_ns`]).
    pub origin_ns: i64,
    /// Lines earlier than a line before them.
    pub went_back: u64,
    /// The most that a line's time was before the latest of the lines above it.
    pub back_max_ns: u64,
    /// Lines too late to be sorted.
    pub clamped: u64,
    /// The longest time from a line to a later one, and the number of that line.
    pub gap: (u64, u64),
}

/// Divides the log in `reader` by the shares, which are together the whole: `give` gets the number of a share and some
/// bytes of it, at most about `piece_bytes`, which together are a log compressed with gzip. A part without clients is
/// empty. Memory is bounded by a piece for each part.
pub fn split<E: From<TraceError>>(
    reader: &mut TraceReader,
    shares: &[Share],
    piece_bytes: usize,
    mut give: impl FnMut(u32, Vec<u8>) -> Result<(), E>,
) -> Result<SplitCounts, E> {
    let options = ReplayOptions::default();
    // In the order of their places, from 0.
    let whole_of = shares.first().map_or(1, |share| u64::from(share.of.max(1)));
    let window = || Window::new(options.reorder_ns, options.held_limit);
    let mut whole = window();
    let mut windows: Vec<Window> = shares.iter().map(|_| window()).collect();
    // The line with the latest time so far.
    let (mut latest_ns, mut latest) = (i64::MIN, Vec::new());
    let mut origin = Origin::new(&options);
    let fast = || GzEncoder::new(Vec::new(), Compression::fast());
    let mut out: Vec<GzEncoder<Vec<u8>>> = shares.iter().map(|_| fast()).collect();
    let mut is_empty = vec![true; out.len()];
    // Writing to memory cannot fail.
    let put = |out: &mut GzEncoder<Vec<u8>>, bytes: &[u8]| out.write_all(bytes).unwrap_or_default();
    while let Some(entry) = reader.next_entry()? {
        let time_ns = whole.see(entry.time_ns, entry.line);
        origin.see(time_ns, entry.line, &options);
        if !entry.directives.is_empty() {
            out.iter_mut().for_each(|out| put(out, entry.directives));
        }
        let client = stable_hash(entry.client) % whole_of;
        let place = shares.partition_point(|share| u64::from(share.index) <= client) - 1;
        debug_assert!(shares[place].holds(client));
        is_empty[place] = false;
        if windows[place].see(entry.time_ns, entry.line) != time_ns {
            // Moved up because a line of another client was much later: that line tells this part so. No replayer of
            // the part has its client, so it is not sent.
            windows[place].see(latest_ns, entry.line);
            put(&mut out[place], &latest);
        }
        if entry.time_ns >= latest_ns {
            latest_ns = entry.time_ns;
            latest.clear();
            latest.extend_from_slice(entry.text);
            latest.push(b'\n');
        }
        put(&mut out[place], entry.text);
        put(&mut out[place], b"\n");
        if out[place].get_ref().len() >= piece_bytes {
            give(place as u32, std::mem::take(out[place].get_mut()))?;
        }
    }
    for (index, (mut out, is_empty)) in out.into_iter().zip(is_empty).enumerate() {
        if windows[index].latest_ns < latest_ns {
            // The end of the whole log is the end of each part.
            put(&mut out, &latest);
        }
        let rest = out.finish().unwrap_or_default();
        if !is_empty && !rest.is_empty() {
            give(index as u32, rest)?;
        }
    }
    Ok(SplitCounts {
        origin_ns: origin.at_ns().unwrap_or(0),
        went_back: whole.went_back,
        back_max_ns: whole.back_max_ns,
        clamped: whole.clamped,
        gap: whole.gap,
    })
}

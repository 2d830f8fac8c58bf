//! Splits one log into several. The lines of each client go to the share that holds it ([`LoadShare::holds`]), in the
//! log's order and unchanged. A replayer of a part sends the same requests as a replayer of the whole log with that
//! share.

use super::order::SortingWindow;
use super::origin::ReplayOrigin;
use super::{ReplayOptions, account_of};
use crate::stable_hash;
use crate::trace::TraceReader;
use flate2::Compression;
use flate2::write::GzEncoder;
use record::LoadShare;
use record::workload::ReplayResult;
use std::io::Write;

/// Splits the log in `reader` by the shares, which together are the whole. `give` gets the number of a share and at
/// most about `piece_bytes` of its bytes; the bytes of a share together are a log in gzip format. The part of a share
/// without clients is empty. Memory is bounded by one piece per share. Returns what the parts do not show: the earliest
/// time in the log ([`ReplayOptions::origin_ns`]), and the account of its lines.
pub fn split(
    reader: &mut TraceReader,
    shares: &[LoadShare],
    piece_bytes: usize,
    mut give: impl FnMut(u32, Vec<u8>) -> Result<(), String>,
) -> Result<(i64, ReplayResult), String> {
    let options = ReplayOptions::default();
    let whole_of = shares.first().map_or(1, |share| u64::from(share.of.max(1)));
    let window = || SortingWindow::new(options.reorder_ns, options.held_limit);
    let mut whole = window();
    let mut windows: Vec<SortingWindow> = shares.iter().map(|_| window()).collect();
    // The line with the latest time so far.
    let (mut latest_ns, mut latest) = (i64::MIN, Vec::new());
    let mut origin = ReplayOrigin::new(&options);
    let fast = || GzEncoder::new(Vec::new(), Compression::fast());
    let mut out: Vec<GzEncoder<Vec<u8>>> = shares.iter().map(|_| fast()).collect();
    let mut is_empty = vec![true; out.len()];
    let put = |out: &mut GzEncoder<Vec<u8>>, bytes: &[u8]| out.write_all(bytes).unwrap_or_default();
    while let Some(entry) = reader.next_entry()? {
        let time_ns = whole.advance(entry.time_ns, entry.line);
        origin.observe(time_ns, entry.line, &options);
        if !entry.directives.is_empty() {
            out.iter_mut().for_each(|out| put(out, entry.directives));
        }
        let client = stable_hash(entry.client) % whole_of;
        let place = shares.partition_point(|share| u64::from(share.index) <= client) - 1;
        debug_assert!(shares[place].holds(client));
        is_empty[place] = false;
        if windows[place].advance(entry.time_ns, entry.line) != time_ns {
            // A much later line of another client moves this request up. The part gets that line, too, so that it also
            // moves the request. Its client belongs to no replayer of the part, so the line is not sent.
            windows[place].advance(latest_ns, entry.line);
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
    Ok((origin.at_ns().unwrap_or(0), account_of(reader, whole.disorder)))
}

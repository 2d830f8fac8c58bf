//! Parsers of the machine's counters: pure functions from bytes to numbers. Device names are untrusted text. No input
//! panics, missing or malformed fields are left out, and sizes are bounded.

use crate::proc_text::{lines, number, words};
use record::PlainText;
use record::watch::system::DiskCounts;
use std::collections::BTreeMap;

/// A sector of /proc/diskstats, independent of the device's (Documentation/admin-guide/iostats.rst).
const SECTOR_BYTES: u64 = 512;
const MOST_DEVICES: usize = 4096;

/// Sums the whole devices in `/proc/diskstats`. Partitions, devices on top of other devices (device mapper, RAID,
/// loop) and devices in memory would count twice.
pub fn parse_disks(text: &[u8]) -> Option<DiskCounts> {
    let mut devices: Vec<(&[u8], DiskCounts)> = Vec::new();
    for line in lines(text).take(MOST_DEVICES) {
        let fields: Vec<&[u8]> = words(line).take(13).collect();
        let (Some(name), true) = (fields.get(2), fields.len() == 13) else { continue };
        let counts = [3, 5, 7, 9, 12].map(|at| number(fields[at]));
        if let [Some(reads), Some(read), Some(writes), Some(written), Some(busy_ms)] = counts {
            let [read_bytes, written_bytes] = [read, written].map(|sectors| sectors.saturating_mul(SECTOR_BYTES));
            devices.push((name, DiskCounts { devices: 1, reads, read_bytes, writes, written_bytes, busy_ms }));
        }
    }
    let layered: [&[u8]; 6] = [b"loop", b"ram", b"zram", b"dm-", b"md", b"sr"];
    let names: Vec<&[u8]> = devices.iter().map(|(name, _)| *name).collect();
    let is_whole = |name: &[u8]| {
        !layered.iter().any(|prefix| name.starts_with(prefix)) && !names.iter().any(|disk| is_partition(name, disk))
    };
    let mut sum = DiskCounts::default();
    devices.iter().filter(|(name, _)| is_whole(name)).for_each(|(_, counts)| sum.add(counts));
    (sum.devices > 0).then_some(sum)
}

/// Whether a device is a partition, as `sda1` of `sda` or `nvme0n1p2` of `nvme0n1`.
fn is_partition(name: &[u8], disk: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(disk) else { return false };
    let digits = rest.strip_prefix(b"p").unwrap_or(rest);
    let needs_p = disk.last().is_some_and(u8::is_ascii_digit);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) && (!needs_p || rest.starts_with(b"p"))
}

/// Parses `/proc/interrupts` or `/proc/softirqs`: counts by kind, summed over the CPUs of the heading. The kind is
/// the device's name or, for the machine's own interrupts, the label (`LOC`, `TLB`, `TIMER`). With more than `most`
/// kinds, the rarest are summed as `other`.
pub fn parse_counts_by_kind(text: &[u8], most: usize) -> BTreeMap<String, u64> {
    let mut all = lines(text);
    let cpus = all.next().map_or(0, |heading| words(heading).filter(|word| word.starts_with(b"CPU")).count());
    let mut by_kind: BTreeMap<String, u64> = BTreeMap::new();
    for line in all.take(MOST_DEVICES) {
        let mut fields = words(line);
        let Some(label) = fields.next().and_then(|word| word.strip_suffix(b":")) else { continue };
        let mut sum = 0u64;
        let mut rest = fields.peekable();
        for _ in 0..cpus {
            let Some(count) = rest.peek().copied().and_then(number) else { break };
            sum = sum.saturating_add(count);
            rest.next();
        }
        // The last word of an interrupt's line is its device; the words before it name the controller.
        let words_left: Vec<&[u8]> = rest.collect();
        let is_numbered = label.iter().all(u8::is_ascii_digit);
        let kind = if is_numbered { words_left.last().copied().unwrap_or(label) } else { label };
        let kind = PlainText::of_bytes(kind, 40).into();
        if sum > 0 {
            let count = by_kind.entry(kind).or_default();
            *count = count.saturating_add(sum);
        }
    }
    while by_kind.len() > most.max(2) {
        let rarest = by_kind.iter().filter(|(kind, _)| *kind != "other").min_by_key(|(_, count)| **count);
        let Some(kind) = rarest.map(|(kind, _)| kind.clone()) else { break };
        let count = by_kind.remove(&kind).unwrap_or(0);
        *by_kind.entry("other".into()).or_default() += count;
    }
    by_kind
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc_text::parse_named_numbers;

    #[test]
    fn partitions_and_layered_devices_are_not_counted_twice() {
        let text = b"   8 0 sda 10 0 100 5 20 0 200 9 0 33 14 0 0\n   8 1 sda1 10 0 100 5 20 0 200 9 0 33 14\n\
            259 0 nvme0n1 1 0 8 0 2 0 16 0 0 7 0 0\n 259 1 nvme0n1p1 1 0 8 0 2 0 16 0 0 7 0\n\
            259 2 nvme0n10 1 0 8 0 1 0 8 0 0 1 0\n 253 0 dm-0 10 0 100 5 20 0 200 9 0 33 14\n 7 0 loop0 5 0 5 0 5 0 5 \
                     0 0 5 0\n";
        let sum = parse_disks(text).unwrap();
        assert_eq!((sum.devices, sum.reads, sum.writes, sum.busy_ms), (3, 12, 23, 41));
        assert_eq!((sum.read_bytes, sum.written_bytes), ((100 + 8 + 8) * 512, (200 + 16 + 8) * 512));
        assert_eq!(parse_disks(b""), None);
        assert_eq!(parse_disks(b" 8 0 sda 10 0 x 5\n"), None);
    }

    #[test]
    fn interrupts_are_summed_over_cpus_by_device() {
        let text = b"           CPU0       CPU1\n 24:          1          2  IO-APIC   5-edge      ACPI:Ged\n\
            28:          3          0 PCI-MSIX-0000:00:01.0   0-edge      virtio0-input.0\n\
            29:          4          0 PCI-MSIX-0000:00:01.0   1-edge      virtio0-input.0\nLOC:  100  200  Local timer \
                     interrupts\nERR:          0\n";
        let kinds = parse_counts_by_kind(text, 24);
        let wanted = [("ACPI:Ged", 3), ("LOC", 300), ("virtio0-input.0", 7)];
        assert_eq!(kinds, wanted.iter().map(|(kind, count)| (kind.to_string(), *count)).collect());
        let few = parse_counts_by_kind(text, 2);
        assert_eq!(few, [("LOC".to_string(), 300), ("other".to_string(), 10)].into());
    }

    #[test]
    fn softirqs_are_parsed_without_text_after_the_numbers() {
        let kinds = parse_counts_by_kind(b"   CPU0 CPU1\n  TIMER: 5 6\n NET_RX: 7 8\n", 24);
        assert_eq!(kinds, [("NET_RX".to_string(), 15), ("TIMER".to_string(), 11)].into());
    }

    #[test]
    fn named_numbers_are_found_and_invalid_text_is_refused() {
        let found =
            parse_named_numbers(b"pgfault 12\nMemTotal: 7 kB\npgpgin x\n", ["MemTotal:", "pgfault", "pgpgin", "no"]);
        assert_eq!(found, [Some(7), Some(12), None, None]);
    }
}

use crate::watch::point_watch::PointReadings;
use record::figure::Figures;
use record::names;
use record::watch::system::{DiskCounts, Kind, Paging};

/// What Table 2 of Almeida, Almeida and Yates lists beyond what every point has.
pub(super) fn machine(figures: &mut Figures, readings: &PointReadings) {
    let (begin, end) = (&readings.begin.system, &readings.end.system);
    let mut rate = |name: &str, kind: Kind, counts: Option<(u64, u64)>, why: &str| {
        let seconds = end.seconds_since(begin, kind);
        figures.rate(name, counts.filter(|_| seconds.is_some()), seconds.unwrap_or(1.0), why);
    };
    let disk = end.disk.as_ref().zip(begin.disk.as_ref());
    let mut of_disk = |name, pick: fn(&DiskCounts) -> u64| {
        let counts = disk.map(|(now, then)| (pick(now), pick(then)));
        rate(name, Kind::Disk, counts, "no device that is not a part of another");
    };
    of_disk(names::MACHINE_DISK_READS, |disk| disk.reads);
    of_disk(names::MACHINE_DISK_READ_BYTES, |disk| disk.read_bytes);
    of_disk(names::MACHINE_DISK_WRITES, |disk| disk.writes);
    of_disk(names::MACHINE_DISK_WRITTEN_BYTES, |disk| disk.written_bytes);
    let paging = end.paging.as_ref().zip(begin.paging.as_ref());
    let mut of_paging = |name, pick: fn(&Paging) -> u64| {
        let counts = paging.map(|(now, then)| (pick(now), pick(then)));
        rate(name, Kind::Paging, counts, "/proc/vmstat cannot be read");
    };
    of_paging(names::MACHINE_PAGED_IN, |paging| paging.in_bytes);
    of_paging(names::MACHINE_PAGED_OUT, |paging| paging.out_bytes);
    of_paging(names::MACHINE_FAULTS, |paging| paging.faults);
    of_paging(names::MACHINE_MAJOR_FAULTS, |paging| paging.major_faults);
    rate(names::MACHINE_STARTED, Kind::Cpu, end.started.zip(begin.started), "/proc/stat cannot be read");
    let io = readings.end.io.zip(readings.begin.io);
    let no_io = "the server's processes may not be looked into";
    let read = io.map(|(now, then)| (now.read_bytes, then.read_bytes));
    rate(names::SERVER_DISK_READ, Kind::Server, read, no_io);
    let written = io.map(|(now, then)| (now.written_bytes, then.written_bytes));
    rate(names::SERVER_DISK_WRITTEN, Kind::Server, written, no_io);
}

//! Counts by kind of memory, with the names of types, fields and variables, and layouts computed from them.

use crate::kernel_types::{Btf, Field, Variables, fields_of, type_of_cache};
use crate::objects::{DISTANCES, ObjectCounts, Packing, WORD_BYTES, Word};
use crate::simulation::{Distances, Field as FieldRow, Line as LineRow, Object, Packed};

/// Bytes of a line in these tables.
const LINE_BYTES: u64 = 64;
/// The unit that is moved when fields are packed.
const GRAIN_BYTES: u64 = 8;
/// Number of named variables, those with most misses.
const MOST_VARIABLES: usize = 20;

/// Fields that share a grain, from `start` to `end` in grains.
struct Group {
    name: String,
    start: u64,
    end: u64,
}

/// All grains of an object in groups. Fields that share a grain are in one group; a grain without a field is a group.
fn groups(fields: &[Field], grains: u64, grain_bytes: u64) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut next = 0;
    let unnamed = |groups: &mut Vec<Group>, from: u64, to: u64| {
        for grain in from..to {
            groups.push(Group { name: format!("(byte {})", grain * grain_bytes), start: grain, end: grain + 1 });
        }
    };
    for field in fields {
        let (start, end) = (field.offset / grain_bytes, (field.offset + field.bytes).div_ceil(grain_bytes).min(grains));
        if start >= end {
            continue;
        }
        match groups.last_mut() {
            Some(last) if start < last.end => {
                if !last.name.ends_with('…') {
                    let is_long = last.name.len() > 60;
                    last.name.push_str(&if is_long {
                        ", …".to_string()
                    } else {
                        format!(", {}", short(&field.name))
                    });
                }
                last.end = last.end.max(end);
            }
            _ => {
                unnamed(&mut groups, next, start);
                groups.push(Group { name: short(&field.name), start, end });
            }
        }
        next = groups.last().map_or(0, |last| last.end);
    }
    unnamed(&mut groups, next, grains);
    groups
}

/// The last two names of a path.
fn short(path: &str) -> String {
    let mut dots = path.rmatch_indices('.').map(|(at, _)| at);
    let from = dots.nth(1).map_or(0, |at| at + 1);
    path[from..].to_string()
}

fn sum(words: &[Word]) -> Word {
    words.iter().fold(Word::default(), |sum, word| Word {
        reads: sum.reads + word.reads,
        writes: sum.writes + word.writes,
        misses: sum.misses + word.misses,
    })
}

fn part(words: &[Word], start: u64, end: u64) -> &[Word] {
    let (start, end) = (start as usize, (end as usize).min(words.len()));
    words.get(start..end).unwrap_or_default()
}

/// Adds names to the plugin's counts, sorted by misses of the first L2.
pub fn named(counts: &[ObjectCounts], btf: &Btf, variables: &Variables, levels: usize) -> Vec<Object> {
    let mut rows: Vec<Object> = Vec::new();
    for one in counts {
        let structure = if one.size > 0 { type_of_cache(btf, &one.name, one.object_size) } else { None };
        let fields = structure.as_deref().map(|name| fields_of(btf, name)).unwrap_or_default();
        let row = Object {
            name: one.name.clone(),
            stride_bytes: one.size.into(),
            reads: one.reads,
            writes: one.writes,
            l1d_misses: one.l1d_misses,
            l2_misses: one.l2_misses[..levels].into(),
            visits: one.visits,
            misses_by_instructions_since_visit: Distances { below: DISTANCES.into(), counts: one.distances.into() },
            fields: if structure.is_some() { field_rows(&one.words, &fields) } else { Vec::new() },
            lines: line_rows(&one.words, &fields),
            variables: by_variable(&one.lines, variables),
            structure,
        };
        rows.push(row);
    }
    rows.sort_by_key(|row| std::cmp::Reverse((row.l2_misses(0), row.l1d_misses, row.accesses())));
    rows
}

fn field_rows(words: &[Word], fields: &[Field]) -> Vec<FieldRow> {
    let word_bytes = u64::from(WORD_BYTES);
    let rows = groups(fields, words.len() as u64, word_bytes).into_iter().map(|group| {
        let Word { reads, writes, misses: l2_misses } = sum(part(words, group.start, group.end));
        let (offset, bytes) = (group.start * word_bytes, (group.end - group.start) * word_bytes);
        FieldRow { name: group.name, offset, bytes, reads, writes, l2_misses }
    });
    rows.filter(|row| row.reads + row.writes > 0).collect()
}

fn line_rows(words: &[Word], fields: &[Field]) -> Vec<LineRow> {
    let words_of_line = LINE_BYTES / u64::from(WORD_BYTES);
    let lines = (words.len() as u64).div_ceil(words_of_line);
    let row = |line: u64| {
        let (start, end) = (line * words_of_line, (line + 1) * words_of_line);
        let Word { reads, writes, misses: l2_misses } = sum(part(words, start, end));
        let mut named: Vec<(u64, String)> = Vec::new();
        if !fields.is_empty() {
            for field in field_rows(part(words, start, end), &within(fields, line * LINE_BYTES)) {
                named.push((field.reads + field.writes, field.name));
            }
        }
        named.sort_by_key(|(accesses, _)| std::cmp::Reverse(*accesses));
        let fields = named.into_iter().map(|(_, name)| name).take(6).collect();
        LineRow { offset: line * LINE_BYTES, accesses: reads + writes, l2_misses, fields }
    };
    (0..lines).map(row).filter(|row| row.accesses > 0).collect()
}

/// The fields of a line, with offsets from its start.
fn within(fields: &[Field], start: u64) -> Vec<Field> {
    let end = start + LINE_BYTES;
    let inside = fields.iter().filter(|field| field.offset < end && field.offset + field.bytes > start);
    let cut = |field: &Field| {
        let offset = field.offset.max(start);
        let bytes = (field.offset + field.bytes).min(end) - offset;
        Field { name: field.name.clone(), offset: offset - start, bytes }
    };
    inside.map(cut).collect()
}

fn by_variable(lines: &[(u64, u64)], variables: &Variables) -> Vec<(String, u64)> {
    let mut by_name: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    for (line, misses) in lines {
        *by_name.entry(variables.at(*line).unwrap_or("(no name)")).or_default() += misses;
    }
    let mut all: Vec<(String, u64)> = by_name.into_iter().map(|(name, misses)| (name.to_string(), misses)).collect();
    all.sort_by_key(|(_, misses)| std::cmp::Reverse(*misses));
    all.truncate(MOST_VARIABLES);
    all
}

/// The layout with the fields sorted by their accesses per byte. Fields that share eight bytes stay together, and so
/// does a field that is longer.
pub fn packed(counts: &ObjectCounts, btf: &Btf) -> Option<Packing> {
    let grains = u64::from(counts.size) / GRAIN_BYTES;
    let structure = type_of_cache(btf, &counts.name, counts.object_size)?;
    let mut groups = groups(&fields_of(btf, &structure), grains, GRAIN_BYTES);
    let words = GRAIN_BYTES / u64::from(WORD_BYTES);
    let accesses = |group: &Group| {
        let Word { reads, writes, .. } = sum(part(&counts.words, group.start * words, group.end * words));
        reads + writes
    };
    // Accesses per grain in fixed point; the sort is stable.
    groups.sort_by_cached_key(|group| std::cmp::Reverse((accesses(group) << 10) / (group.end - group.start)));
    let mut places = vec![0_u16; grains as usize];
    let mut next = 0;
    for group in groups {
        for grain in group.start..group.end {
            places[grain as usize] = u16::try_from(next).ok()?;
            next += 1;
        }
    }
    Some(Packing { cache: counts.name.clone(), places })
}

/// Lines in use with the words at the layout's places.
fn lines_when_packed(row: &Object, counts: &ObjectCounts, packing: &Packing) -> u64 {
    let mut lines = vec![0_u64; (u64::from(counts.size).div_ceil(LINE_BYTES)) as usize];
    for (index, word) in counts.words.iter().enumerate() {
        let byte = index as u64 * u64::from(WORD_BYTES);
        let grain = packing.places.get((byte / GRAIN_BYTES) as usize).copied().map_or(byte / GRAIN_BYTES, u64::from);
        if let Some(line) = lines.get_mut((grain * GRAIN_BYTES / LINE_BYTES) as usize) {
            *line += word.reads + word.writes;
        }
    }
    lines.iter().filter(|accesses| **accesses > 0 && 10 * **accesses >= row.visits).count() as u64
}

/// The effect of the layouts, from the counts of a run with the original layout and of the same run with the new
/// ones.
pub fn compared(rows: &[Object], counts: &[ObjectCounts], after: &[ObjectCounts], packings: &[Packing]) -> Vec<Packed> {
    let each = packings.iter().filter_map(|packing| {
        let row = rows.iter().find(|row| row.name == packing.cache)?;
        let before = counts.iter().find(|one| one.name == packing.cache)?;
        let after = after.iter().find(|one| one.name == packing.cache)?;
        Some(Packed {
            object: row.title().into(),
            l2_misses_before: before.l2_misses[..row.l2_misses.len()].into(),
            l2_misses_after: after.l2_misses[..row.l2_misses.len()].into(),
            lines_before: row.lines_in_use(),
            lines_after: lines_when_packed(row, before, packing),
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, offset: u64, bytes: u64) -> Field {
        Field { name: name.into(), offset, bytes }
    }

    #[test]
    fn fields_that_share_a_grain_form_one_group_and_gaps_form_others() {
        let fields = [field("a.b.c", 0, 4), field("d", 4, 2), field("e", 6, 2), field("f", 16, 16)];
        let told = |grains, bytes| -> Vec<(String, u64, u64)> {
            groups(&fields, grains, bytes).into_iter().map(|group| (group.name, group.start, group.end)).collect()
        };
        let owned =
            |list: &[(&str, u64, u64)]| list.iter().map(|(name, a, b)| (name.to_string(), *a, *b)).collect::<Vec<_>>();
        assert_eq!(
            told(10, 4),
            owned(&[
                ("b.c", 0, 1),
                ("d, e", 1, 2),
                ("(byte 8)", 2, 3),
                ("(byte 12)", 3, 4),
                ("f", 4, 8),
                ("(byte 32)", 8, 9),
                ("(byte 36)", 9, 10)
            ])
        );
        assert_eq!(told(4, 8), owned(&[("b.c, d, e", 0, 1), ("(byte 8)", 1, 2), ("f", 2, 4)]));
    }

    #[test]
    fn counts_are_assigned_to_fields_and_lines() {
        let mut words = vec![Word::default(); 40];
        words[1] = Word { reads: 3, writes: 1, misses: 2 };
        words[20] = Word { reads: 0, writes: 5, misses: 1 };
        let fields = [field("x", 0, 4), field("y", 4, 4), field("array", 64, 64)];
        let rows = field_rows(&words, &fields);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].name.as_str(), rows[0].reads, rows[0].l2_misses), ("y", 3, 2));
        assert_eq!((rows[1].name.as_str(), rows[1].writes, rows[1].bytes), ("array", 5, 64));
        let lines = line_rows(&words, &fields);
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[1].offset, lines[1].accesses, lines[1].l2_misses), (64, 5, 1));
        assert_eq!(lines[0].fields, ["y"]);
    }

    #[test]
    fn the_most_accessed_words_come_first_when_packed() {
        use crate::kernel_types::tests_writer::Writer;
        let mut writer = Writer::new();
        let (long, int) = (writer.int(8), writer.int(4));
        let array = writer.array(int, 4);
        writer.aggregate(
            "thing",
            false,
            48,
            &[
                ("cold", long, 0),
                ("array", array, 8),
                ("warm", long, 24),
                ("a", int, 32),
                ("b", int, 36),
                ("hot", long, 40),
            ],
        );
        let btf = Btf::parse(writer.bytes()).unwrap();
        let mut counts =
            ObjectCounts { name: "thing".into(), size: 48, object_size: 48, visits: 1, ..Default::default() };
        counts.words = vec![Word::default(); 12];
        counts.words[10].reads = 100;
        counts.words[9].writes = 7;
        counts.words[6].reads = 1;
        counts.words[3].reads = 4;
        let packing = packed(&counts, &btf).unwrap();
        // First hot, then a and b together, then the array (4 in 16 bytes: 2 per grain), then warm, then the cold
        // fields.
        assert_eq!(packing.places, [5, 2, 3, 4, 1, 0]);
    }
}

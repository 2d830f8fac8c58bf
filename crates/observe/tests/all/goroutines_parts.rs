//! The goroutines of a process, and Go's table of functions, in memory that this test lays out as Go does.

use observe::go_file::GoFunctions;
use observe::goroutines::GoProgram;
use observe::memory::Memory;
use observe::parked::{ParkedCounts, Place, Program, Stack};
use proptest::prelude::*;

const REASONS: [&str; 5] = ["", "GC assist marking", "IO wait", "chan receive", "sync.Mutex.Lock"];

/// A goroutine's descriptor and its stack. `has_return`: one more word in the saved registers (before Go 1.25);
/// `has_call`: one more word before the number (since Go 1.23).
fn goroutine(number: u64, state: u64, reason: u64, has_return: bool, has_call: bool) -> Vec<u64> {
    let mut stack = vec![0u64; 64];
    let at = stack.as_ptr() as u64;
    // Two frames: the next frame's address and the return address.
    (stack[4], stack[5]) = (at + 8 * 20, 0x1111);
    (stack[20], stack[21]) = (0, 0x2222);
    let mut words = vec![at, at + 64 * 8, 0, 0, 0, 0, 0, at + 8, 0x1000, 0, 0];
    words.extend(if has_return { vec![0, 0, at + 8 * 4] } else { vec![0, at + 8 * 4] });
    words.extend([0, 0, 0, 0].iter().chain(has_call.then_some(&0)));
    // The state and the number, the reason three words later.
    words.extend([state, number, 0, 0, reason]);
    words.resize(40, 0);
    std::mem::forget(stack);
    words
}

/// Variables of a program with these goroutines: its list, and its names of reasons.
fn variables(goroutines: Vec<Vec<u64>>) -> Vec<u64> {
    let addresses: Vec<u64> = goroutines.iter().map(|one| one.as_ptr() as u64).collect();
    let mut variables = vec![7, addresses.as_ptr() as u64, addresses.len() as u64, addresses.len() as u64 + 1];
    variables.extend(REASONS.iter().flat_map(|name| {
        let at = if name.is_empty() { 0 } else { name.as_ptr() as u64 };
        [at, name.len() as u64]
    }));
    variables.extend([3, u64::MAX]);
    std::mem::forget((goroutines, addresses));
    variables
}

fn searched(variables: &[u64]) -> Option<GoProgram> {
    GoProgram::search(std::process::id(), &[(variables.as_ptr() as u64, variables.to_vec())])
}

#[test]
fn goroutines_are_counted_by_reason_and_stack_in_the_layouts_of_all_versions() {
    for (has_return, has_call) in [(true, false), (true, true), (false, true)] {
        let one = |number, state, reason| goroutine(number, state, reason, has_return, has_call);
        // Waiting for a lock twice, once while the garbage collector reads the stack; for a socket; able to run;
        // running; dead.
        let all = vec![one(1, 4, 4), one(17, 0x1004, 4), one(2, 4, 2), one(3, 1, 0), one(4, 2, 0), one(0, 6, 0)];
        let variables = variables(all);
        let program = searched(&variables).expect("the list and the reasons are there");
        let mut seen = ParkedCounts::default();
        program.read(9, &mut seen).expect("its memory can be read");
        let place = |reason: &str, stack: Stack| Place { pid: 9, reason: reason.into(), stack };
        let lock = place("sync.Mutex.Lock", Stack::Addresses(vec![0x1000, 0x1111, 0x2222]));
        let expected = [(lock, 2), (place("", Stack::default()), 1)].into_iter().collect();
        assert_eq!(seen.places, expected, "{has_return} {has_call}");
    }
}

#[test]
fn a_program_without_the_list_or_the_reasons_has_no_goroutines() {
    let three = || (1..4).map(|number| goroutine(number, 4, 4, true, true)).collect::<Vec<_>>();
    let whole = variables(three());
    assert!(searched(&whole).is_some());
    assert_eq!(searched(&whole[4..]), None, "no list");
    assert_eq!(searched(&whole[..4]), None, "no reasons");
    let mut same = three();
    same.iter_mut().for_each(|one| one.iter_mut().filter(|word| **word == 3).for_each(|word| *word = 2));
    assert_eq!(searched(&variables(same)), None, "two goroutines have one number");
}

/// A table with functions of 16 bytes each, from offset 32 of the code on.
fn table(names: &[&str]) -> Vec<u64> {
    let count = names.len() as u64;
    let descriptions = 8 * count;
    let mut entries: Vec<u32> = Vec::new();
    let mut name_at = 0;
    let mut described: Vec<u32> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        entries.extend([32 + 16 * index as u32, descriptions as u32 + 8 * index as u32]);
        described.extend([0, name_at]);
        name_at += name.len() as u32 + 1;
    }
    let text: Vec<u8> = names.iter().flat_map(|name| name.bytes().chain([0])).chain([0; 512]).collect();
    let (entries_at, names_at) = (9 * 8, 9 * 8 + 16 * count);
    let words = |halves: Vec<u32>| -> Vec<u64> {
        halves.as_chunks::<2>().0.iter().map(|[low, high]| u64::from(*low) | u64::from(*high) << 32).collect()
    };
    let mut table = vec![0xffff_fff1 | 8 << 56, count, 0, 0, names_at, 0, 0, 0, entries_at];
    table.extend(words(entries).into_iter().chain(words(described)));
    table.extend(text.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)));
    table
}

fn functions(table: &[u64]) -> Option<GoFunctions> {
    GoFunctions::read(Memory::of(std::process::id()), table.as_ptr() as u64, 0x1000..0x2000)
}

#[test]
fn functions_of_a_stripped_program_have_the_names_of_its_own_table() {
    let table = table(&["runtime.gopark", "main.(*store).get", "main.main"]);
    let functions = functions(&table).expect("a table");
    let name = |address| functions.name(address);
    assert_eq!(name(0x1020).as_deref(), Some("runtime.gopark"));
    assert_eq!(name(0x103f).as_deref(), Some("main.(*store).get"));
    assert_eq!(name(0x1fff).as_deref(), Some("main.main"), "the last one");
    assert_eq!([name(0x101f), name(0xfff), name(0x2000), name(u64::MAX)], [None, None, None, None]);
}

proptest! {
    #[test]
    fn any_table_is_read_without_harm(words in prop::collection::vec(any::<u64>(), 9..40), at in 1usize..9,
        addresses in prop::collection::vec(0u64..0x3000, 8)) {
        let mut damaged = table(&["runtime.gopark", "main.main"]);
        damaged[at] = words[at];
        for table in [damaged, words] {
            if let Some(functions) = functions(&table) {
                addresses.iter().for_each(|address| drop(functions.name(*address)));
            }
        }
    }

    #[test]
    fn any_memory_is_read_without_harm(
        words in prop::collection::vec(any::<u64>(), 4..64), has_list in any::<bool>(), list in any::<u64>()
    ) {
        prop_assert_eq!(searched(&words), None);
        let mut damaged = variables((1..6).map(|number| goroutine(number, 4, 4, true, true)).collect());
        if let Some(program) = searched(&damaged) {
            // The process changes its list while it is read.
            (damaged[1], damaged[2]) = (if has_list { damaged[1] } else { list }, list);
            let mut seen = ParkedCounts::default();
            program.read(1, &mut seen);
            prop_assert!(seen.places.len() <= 1024);
        }
    }
}

//! Tests the plugin's counts at an access, with an emulator that answers from a list of pages.

use crate::attribution::{End, Role};
use crate::block::{Block, Code};
use crate::cache::{Counts, Geometry, Replacement, Setup};
use crate::exchange::{Answer, Objects, Order, mark};
use crate::functions::UNKNOWN;
use crate::machine::Machine;
use crate::qemu::{AccessInfo, Place};

/// A load of eight bytes in the form that the functions below expect.
const LOAD: AccessInfo = 3;

#[unsafe(no_mangle)]
extern "C" fn qemu_plugin_mem_is_store(info: AccessInfo) -> bool {
    info & 16 != 0
}

#[unsafe(no_mangle)]
extern "C" fn qemu_plugin_mem_size_shift(info: AccessInfo) -> u32 {
    info & 15
}

/// Two user pages that are in reverse order in memory; the next one is unknown.
const USER: u64 = 0x7000_0000_1000;

#[unsafe(no_mangle)]
extern "C" fn qemu_plugin_get_hwaddr(_: AccessInfo, address: u64) -> *mut Place {
    let page = match address >> 12 {
        page if page == USER >> 12 => 0x9000,
        page if page == (USER >> 12) + 1 => 0x5000,
        _ => 0,
    };
    if page == 0 { std::ptr::null_mut() } else { (page | address & 0xfff) as *mut Place }
}

#[unsafe(no_mangle)]
extern "C" fn qemu_plugin_hwaddr_is_io(_: *const Place) -> bool {
    false
}

#[unsafe(no_mangle)]
extern "C" fn qemu_plugin_hwaddr_phys_addr(place: *const Place) -> u64 {
    place as u64
}

fn machine(has_objects: bool, answer: String) -> Machine {
    let level = |size: u64, line: u32| Geometry::new(size, 4, line, Replacement::Lru).unwrap();
    let caches = Setup {
        l1i: level(16 << 10, 64),
        l1d: level(16 << 10, 64),
        l2: vec![level(64 << 10, 64)],
        l3: None,
        itlb: Some(level(64 << 12, 4096)),
        dtlb: Some(level(64 << 12, 4096)),
        next_line_prefetch: false,
        curve_sample_shift: None,
    };
    let objects = has_objects.then(|| Objects { map: Default::default(), packings: Vec::new() });
    let order = Order { caches: Some(caches), objects, watched: Default::default(), rows: 1, symbols: Vec::new() };
    Machine::new(1, order, answer)
}

/// A block of user code.
fn block(instructions: u16) -> Block<'static> {
    Block {
        function: UNKNOWN,
        role: Role::Helps,
        instructions,
        end: End::Jump,
        is_first: false,
        is_watched: false,
        is_kernel: false,
        is_repeat: false,
        repeats_at: 0,
        page: 0,
        code: Code::Lines(&[]),
    }
}

/// The counts of the user while the machine runs this closure.
fn counted(has_objects: bool, act: impl FnOnce(&mut Machine)) -> Answer {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answer");
    let mut machine = machine(has_objects, file.display().to_string());
    act(&mut machine);
    machine.mark(mark::END);
    Answer::from_text(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// The counts of user loads of eight bytes at these addresses.
fn counts_of(addresses: &[u64], has_objects: bool) -> Counts {
    let account = loads(addresses, has_objects).accounts[0];
    assert_eq!(account.reads, addresses.len() as u64);
    account.caches
}

fn loads(addresses: &[u64], has_objects: bool) -> Answer {
    counted(has_objects, |machine| {
        let word = machine.word(block(1));
        // SAFETY: a word of this machine.
        unsafe { machine.enter(word) };
        addresses.iter().for_each(|address| machine.access(LOAD, *address));
    })
}

#[test]
fn an_access_over_two_pages_counts_on_both() {
    for has_objects in [false, true] {
        let second = USER + 0x1000;
        let both = counts_of(&[second - 4, USER + 0xff8, second], has_objects);
        assert_eq!((both.l1d_misses, both.dtlb_misses), (2, 2), "the second page is the one in use");
        let past = counts_of(&[second + 0xffc], has_objects);
        assert_eq!((past.l1d_misses, past.dtlb_misses), (1, 1), "nothing is known of the third page");
    }
}

#[test]
fn code_beyond_its_page_counts_at_its_known_address() {
    let machine = machine(false, String::new());
    let image = 0xffff_ffff_8000_0000;
    assert_eq!(machine.code_lines(image + 0x1ffe, 0x1ffe, 5), 0x7f..=0x80);
    assert_eq!(machine.code_lines(USER + 0xffe, 0x9ffe, 5), 0x27f..=0x27f);
    assert_eq!(machine.code_lines(USER + 0xf3e, 0x9f3e, 5), 0x27c..=0x27d);
}

#[test]
fn a_repeated_instruction_counts_once_even_after_others_of_its_block() {
    // QEMU executes the first element with the code before it, and each further one as a block. Up to QEMU 9 one more
    // execution has no element; QEMU 10 translates the further ones separately, so that their word differs.
    let repeats = |first: Option<Block<'static>>, is_qemu_10: bool| {
        let answer = counted(false, |machine| {
            let again = Block { is_repeat: true, repeats_at: USER, ..block(1) };
            let further = machine.word(again);
            let begins = match first {
                None if !is_qemu_10 => further,
                first => machine.word(first.unwrap_or(again)),
            };
            let without = (!is_qemu_10).then_some((further, false));
            for (word, has_element) in [begins, further, further].map(|word| (word, true)).into_iter().chain(without) {
                // SAFETY: a word of this machine.
                unsafe { machine.enter(word) };
                for address in [USER, USER + 0x1000].into_iter().filter(|_| has_element) {
                    machine.element_came();
                    machine.access(LOAD, address);
                }
            }
        });
        (answer.accounts[0].instructions, answer.accounts[0].repeats)
    };
    for is_qemu_10 in [false, true] {
        assert_eq!(repeats(None, is_qemu_10), (1, 2));
        assert_eq!(repeats(Some(Block { repeats_at: USER, ..block(4) }), is_qemu_10), (4, 2));
        assert_eq!(
            repeats(Some(Block { repeats_at: USER - 2, ..block(4) }), is_qemu_10),
            (5, 1),
            "of another, it is the first"
        );
        assert_eq!(repeats(Some(block(4)), is_qemu_10), (5, 1), "it was jumped to");
    }
}

#[test]
fn the_second_line_of_an_access_to_a_variable_misses_under_its_own_address() {
    let line = 0xffff_ffff_8200_1000_u64;
    let objects = loads(&[line + 60], true).objects;
    assert_eq!(objects[0].lines, [(line, 1), (line + 64, 1)]);
}

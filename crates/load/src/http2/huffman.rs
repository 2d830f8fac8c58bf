//! The Huffman code of HPACK (RFC 7541 appendix B). It is canonical: codes of one length are consecutive, in the order
//! of [`SYMBOLS`], so counts by length determine it.

use super::Malformed;

/// Code lengths, and the number of codes of each.
const COUNTS: [(u32, u32); 21] = [
    (5, 10),
    (6, 26),
    (7, 32),
    (8, 6),
    (10, 5),
    (11, 3),
    (12, 2),
    (13, 6),
    (14, 2),
    (15, 3),
    (19, 3),
    (20, 8),
    (21, 13),
    (22, 26),
    (23, 29),
    (24, 12),
    (25, 4),
    (26, 15),
    (27, 19),
    (28, 29),
    (30, 4),
];

const END: u32 = 256;

#[rustfmt::skip]
static SYMBOLS: [u8; 256] = [
    48, 49, 50, 97, 99, 101, 105, 111, 115, 116, 32, 37, 45, 46, 47, 51, 52, 53, 54, 55,
    56, 57, 61, 65, 95, 98, 100, 102, 103, 104, 108, 109, 110, 112, 114, 117, 58, 66, 67, 68,
    69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 89,
    106, 107, 113, 118, 119, 120, 121, 122, 38, 42, 44, 59, 88, 90, 33, 34, 40, 41, 63, 39,
    43, 124, 35, 62, 0, 36, 64, 91, 93, 126, 94, 125, 60, 96, 123, 92, 195, 208, 128, 130,
    131, 162, 184, 194, 224, 226, 153, 161, 167, 172, 176, 177, 179, 209, 216, 217, 227, 229, 230, 129,
    132, 133, 134, 136, 146, 154, 156, 160, 163, 164, 169, 170, 173, 178, 181, 185, 186, 187, 189, 190,
    196, 198, 228, 232, 233, 1, 135, 137, 138, 139, 140, 141, 143, 147, 149, 150, 151, 152, 155, 157,
    158, 165, 166, 168, 174, 175, 180, 182, 183, 188, 191, 197, 231, 239, 9, 142, 144, 145, 148, 159,
    171, 206, 215, 225, 236, 237, 199, 207, 234, 235, 192, 193, 200, 201, 202, 205, 210, 213, 218, 219,
    238, 240, 242, 243, 255, 203, 204, 211, 212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250,
    251, 252, 253, 254, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20,
    21, 23, 24, 25, 26, 27, 28, 29, 30, 31, 127, 220, 249, 10, 13, 22,];

struct CodeGroup {
    bits: u32,
    first: u32,
    /// The first code after the group, left-aligned; the last group ends at 2^32.
    end: u64,
    symbol: u32,
}

static GROUPS: [CodeGroup; COUNTS.len()] = groups();

const fn groups() -> [CodeGroup; COUNTS.len()] {
    let mut groups = [const { CodeGroup { bits: 0, first: 0, end: 0, symbol: 0 } }; COUNTS.len()];
    let (mut at, mut next, mut symbol) = (0, 0u64, 0);
    while at < COUNTS.len() {
        let (bits, count) = COUNTS[at];
        let end = next + ((count as u64) << (32 - bits));
        groups[at] = CodeGroup { bits, first: next as u32, end, symbol };
        next = end;
        symbol += count;
        at += 1;
    }
    assert!(next == 1 << 32 && symbol == END + 1);
    groups
}

const WRONG: Malformed = Malformed("a header field breaks the rules of HPACK (its Huffman code)");

/// Passes the characters to `take`; returns their number.
pub fn decode(coded: &[u8], mut take: impl FnMut(u8)) -> Result<usize, Malformed> {
    // The next bits, left-aligned.
    let (mut window, mut have) = (0u64, 0u32);
    let mut rest = coded.iter();
    let mut length = 0;
    loop {
        while have <= 32 {
            let Some(byte) = rest.next() else { break };
            window |= u64::from(*byte) << (56 - have);
            have += 8;
        }
        // Strings are padded with one bits.
        let top = ((window | u64::MAX >> have) >> 32) as u32;
        let Some(group) = GROUPS.iter().find(|group| u64::from(top) < group.end) else { return Err(WRONG) };
        if group.bits > have {
            return if have < 8 && top == u32::MAX { Ok(length) } else { Err(WRONG) };
        }
        let symbol = group.symbol + ((top - group.first) >> (32 - group.bits));
        if symbol == END {
            return Err(WRONG);
        }
        take(SYMBOLS[symbol as usize]);
        window <<= group.bits;
        have -= group.bits;
        length += 1;
    }
}

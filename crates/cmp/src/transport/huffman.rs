//! Where the characters of a Huffman-coded HPACK string begin (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: the codes of one length are consecutive numbers. So the number of codes of each length says where a code
//! ends, and no table of characters is needed.

/// How many codes have 1, 2, 3 … 30 bits.
const COUNTS: [u32; 30] =
    [0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19, 29, 0, 4];

/// The first five bits of `%` (010101) and of the space (010100), and of no other character.
const PERCENT: u32 = 0b01010;
/// Their number.
const PERCENT_BITS: usize = 5;

/// A position in a string.
#[derive(Debug, Default)]
pub(super) struct Position {
    /// The bits of the present code.
    code: u32,
    /// The smallest code of this length.
    first: u32,
    length: usize,
}

impl Position {
    /// Replaces each `%` that ends in `byte` by `.` (010111). The two differ in the fifth bit only, so the rest of the code is not
    /// needed: it may not have arrived yet. A space, which no authority may hold, becomes `-` (010110).
    pub(super) fn replace(&mut self, byte: u8) -> u8 {
        let mut replaced = byte;
        for shift in (0..8).rev() {
            let bit = u32::from(byte >> shift & 1);
            self.code = self.code << 1 | bit;
            self.first <<= 1;
            // The code is complete: it ends within 30 bits.
            let count = COUNTS[self.length];
            self.length += 1;
            if self.code.wrapping_sub(self.first) < count {
                *self = Self::default();
                continue;
            }
            if self.length == PERCENT_BITS && self.code == PERCENT {
                replaced |= 1 << shift;
            }
            self.first += count;
        }
        replaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_are_those_of_a_complete_code() {
        assert_eq!(COUNTS.iter().sum::<u32>(), 257);
        let sum: u64 = COUNTS.iter().zip(1..).map(|(count, bits)| u64::from(*count) << (30 - bits)).sum();
        assert_eq!(sum, 1 << 30);
    }

    #[test]
    fn a_percent_becomes_a_dot_in_place() {
        // `%.` and `.%`, padded with ones: 010101 010111 1111 and 010111 010101 1111.
        for before in [[0b0101_0101, 0b0111_1111], [0b0101_1101, 0b0101_1111]] {
            let mut position = Position::default();
            assert_eq!(before.map(|byte| position.replace(byte)), [0b0101_1101, 0b0111_1111]);
        }
    }

    #[test]
    fn every_code_ends() {
        let mut position = Position::default();
        for byte in (0..=u8::MAX).chain([0xff; 100]) {
            position.replace(byte);
            assert!(position.length < COUNTS.len());
        }
    }
}

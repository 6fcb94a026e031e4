//! Finds the value of `:authority` in a block of HPACK fields (RFC 7541, section 6), and replaces `%` in it.
//!
//! The length of a string and the number of its characters stay as they are. So no length of a frame changes, and the dynamic tables
//! of client and server keep equal sizes.

use super::huffman::Position;

/// The index of the name `:authority` in the static table (RFC 7541, appendix A).
const AUTHORITY: u8 = 1;
/// The longest string that is followed, in bytes. Far above what a server accepts as the size of all fields.
const MAX_STRING: u32 = 16 * 1024 * 1024;

/// A position in a block.
#[derive(Debug, Default)]
pub(super) struct Block(Next);

/// What the next byte is.
#[derive(Debug, Default)]
enum Next {
    /// The first byte of a field.
    #[default]
    Field,
    /// A further byte of an index or of a table's size. Then comes this.
    Number(After),
    /// The first byte of a string's length.
    Length(Text),
    /// A further byte of a string's length.
    Longer { text: Text, is_huffman: bool, length: u32, shift: u32 },
    /// A byte of a string.
    Byte { text: Text, huffman: Option<Position>, left: u32 },
    /// The block is malformed. The server will refuse it; nothing is changed.
    Broken,
}

/// What follows a number.
#[derive(Debug, Clone, Copy)]
enum After {
    Field,
    Value,
}

/// A string of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    Name,
    Value,
    Authority,
}

impl Block {
    /// Replaces `%` in the value of `:authority`. `bytes` is the next part of the block, of any length.
    pub(super) fn replace(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = match std::mem::take(&mut self.0) {
                Next::Field => field(*byte),
                Next::Number(after) if *byte & 0x80 != 0 => Next::Number(after),
                Next::Number(After::Field) => Next::Field,
                Next::Number(After::Value) => Next::Length(Text::Value),
                Next::Length(text) => {
                    let (is_huffman, length) = (*byte & 0x80 != 0, u32::from(*byte & 0x7f));
                    if length == 0x7f {
                        Next::Longer { text, is_huffman, length, shift: 0 }
                    } else {
                        string(text, is_huffman, length)
                    }
                }
                Next::Longer { text, is_huffman, length, shift } => longer(text, is_huffman, length, shift, *byte),
                Next::Byte { text, huffman, left } => one(text, huffman, left, byte),
                Next::Broken => Next::Broken,
            };
        }
    }
}

/// What follows the first byte of a field.
fn field(byte: u8) -> Next {
    // Indexed; literal with indexing; size of the table; literal without indexing, or never indexed.
    let (mask, is_literal) = match byte {
        0x80.. => (0x7f, false),
        0x40.. => (0x3f, true),
        0x20.. => (0x1f, false),
        _ => (0x0f, true),
    };
    let index = byte & mask;
    match (is_literal, index) {
        (true, 0) => Next::Length(Text::Name),
        (true, AUTHORITY) => Next::Length(Text::Authority),
        (true, _) if index == mask => Next::Number(After::Value),
        (true, _) => Next::Length(Text::Value),
        (false, _) if index == mask => Next::Number(After::Field),
        (false, _) => Next::Field,
    }
}

/// A further byte of a string's length (RFC 7541, section 5.1).
fn longer(text: Text, is_huffman: bool, length: u32, shift: u32, byte: u8) -> Next {
    if shift > 21 {
        return Next::Broken;
    }
    let length = length + (u32::from(byte & 0x7f) << shift);
    match () {
        () if length > MAX_STRING => Next::Broken,
        () if byte & 0x80 != 0 => Next::Longer { text, is_huffman, length, shift: shift + 7 },
        () => string(text, is_huffman, length),
    }
}

/// What follows the length of a string.
fn string(text: Text, is_huffman: bool, left: u32) -> Next {
    match (left, text) {
        (0, Text::Name) => Next::Length(Text::Value),
        (0, _) => Next::Field,
        _ => Next::Byte { text, huffman: is_huffman.then(Position::default), left },
    }
}

/// A byte of a string.
fn one(text: Text, mut huffman: Option<Position>, left: u32, byte: &mut u8) -> Next {
    if text == Text::Authority {
        match &mut huffman {
            Some(position) => *byte = position.replace(*byte),
            None if *byte == b'%' => *byte = b'.',
            None => {}
        }
    }
    if left == 1 { string(text, false, 0) } else { Next::Byte { text, huffman, left: left - 1 } }
}

use httlib_hpack::{Decoder, Encoder};
use proptest::prelude::*;

use super::*;

/// The head of a frame of stream 1.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

/// The bytes after the filter, for parts of each length.
fn filtered(bytes: &[u8]) -> Vec<u8> {
    let whole = [PREFACE, bytes].concat();
    let mut expected = whole.clone();
    Frames::default().replace(&mut expected);
    for part in 1..whole.len().min(40) {
        let (mut frames, mut parts) = (Frames::default(), whole.clone());
        parts.chunks_mut(part).for_each(|part| frames.replace(part));
        assert_eq!(parts, expected, "in parts of {part}");
    }
    expected[PREFACE.len()..].to_vec()
}

/// A literal with indexing: the name's index, and a raw value.
fn literal(index: u8, value: &[u8]) -> Vec<u8> {
    [&[0x40 | index, u8::try_from(value.len()).unwrap()], value].concat()
}

#[test]
fn only_authorities_are_changed() {
    let of = |authority: &[u8]| {
        [&literal(AUTHORITY_INDEX, authority)[..], &literal(4, b"/a%2Fb"), &[0x82], &literal(0, b"x%y"), b"\x03v%w"]
            .concat()
    };
    let before = frame(HEADERS, END_HEADERS, &of(b"a%2Fb%2Fc.sock"));
    assert_eq!(filtered(&before), frame(HEADERS, END_HEADERS, &of(b"a.2Fb.2Fc.sock")));
    // The second request names the first one's entry, and data is not looked at.
    let again = [before.clone(), frame(0, 0, b"A\x01%%%"), frame(HEADERS, END_HEADERS, &[0xbe, 0x83])].concat();
    assert_eq!(filtered(&again)[before.len()..], again[before.len()..]);
}

#[test]
fn padding_priority_and_continuations_are_followed() {
    let block = literal(AUTHORITY_INDEX, b"a%2Fb");
    let changed = literal(AUTHORITY_INDEX, b"a.2Fb");
    let padded = |block: &[u8]| {
        let payload = [&[3], &[b'%'; 5][..], &block[..4], b"A%%"].concat();
        [frame(HEADERS, PADDED | PRIORITY, &payload), frame(CONTINUATION, END_HEADERS, &block[4..])].concat()
    };
    assert_eq!(filtered(&padded(&block)), padded(&changed));
    // A longer string's length takes more bytes.
    let long = |c: u8| [&[0x41, 0x7f, 0x80 + 73, 1][..], &vec![c; 127 + 73 + 128]].concat();
    let framed = |c| frame(HEADERS, END_HEADERS, &long(c));
    assert_eq!(filtered(&framed(b'%')), framed(b'.'));
}

#[test]
fn malformed_bytes_pass() {
    for bytes in [
        frame(HEADERS, END_HEADERS | PADDED, &[9, 0x41]),
        frame(HEADERS, END_HEADERS | PADDED, &[]),
        frame(HEADERS, END_HEADERS | PRIORITY, &[0x41, 1]),
        frame(HEADERS, END_HEADERS, &[0x41, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, b'%']),
        frame(CONTINUATION, 0, b"%%%"),
    ] {
        assert_eq!(filtered(&bytes), bytes);
    }
}

/// The index of `:authority` in HPACK's static table.
const AUTHORITY_INDEX: u8 = 1;

/// A field: whether it is the authority, its value, and how it is written (indexed, never indexed, Huffman).
type Field = (bool, Vec<u8>, u8);

fn field() -> impl Strategy<Value = Field> {
    let byte = prop_oneof![Just(b'%'), b'!'..=b'~', 0x80..=0xffu8];
    let form = prop_oneof![Just(0), Just(Encoder::WITH_INDEXING), Just(Encoder::NEVER_INDEXED)];
    let huffman = prop_oneof![Just(0), Just(Encoder::HUFFMAN_VALUE)];
    (any::<bool>(), prop::collection::vec(byte, 0..200), form, huffman)
        .prop_map(|(is_authority, value, form, huffman)| (is_authority, value, form | huffman))
}

proptest! {
    /// A reference decoder reads the filtered blocks of a connection as it reads the original ones, but for the authorities.
    #[test]
    fn a_reference_decoder_agrees(blocks in prop::collection::vec(prop::collection::vec(field(), 0..6), 1..6), cut in 1..60usize) {
        let (mut encoder, mut before, mut after) = (Encoder::default(), Decoder::default(), Decoder::default());
        let (mut frames, mut preface) = (Frames::default(), PREFACE.to_vec());
        frames.replace(&mut preface);
        for block in blocks {
            let mut bytes = Vec::new();
            for (is_authority, value, flags) in block {
                if is_authority {
                    encoder.encode((u32::from(AUTHORITY_INDEX), value, flags), &mut bytes).unwrap();
                } else {
                    encoder.encode((b"x%y".to_vec(), value, flags | Encoder::BEST_FORMAT), &mut bytes).unwrap();
                }
            }
            let at = cut.min(bytes.len());
            let mut framed = [frame(HEADERS, 0, &bytes[..at]), frame(CONTINUATION, END_HEADERS, &bytes[at..])].concat();
            framed.chunks_mut(cut).for_each(|part| frames.replace(part));
            let mut filtered = [&framed[HEAD..HEAD + at], &framed[2 * HEAD + at..]].concat();
            let (mut expected, mut found) = (Vec::new(), Vec::new());
            before.decode(&mut bytes, &mut expected).unwrap();
            after.decode(&mut filtered, &mut found).unwrap();
            for (name, value, _) in &mut expected {
                if name == b":authority" {
                    value.iter_mut().filter(|byte| **byte == b'%').for_each(|byte| *byte = b'.');
                }
            }
            prop_assert_eq!(found, expected);
        }
    }
}

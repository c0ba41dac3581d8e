//! Files of the MaxMind format for tests (<https://maxmind.github.io/MaxMind-DB/>): a tree of IPv4 networks, and a value for
//! each of them.

use std::net::Ipv4Addr;

/// A value of the data section.
pub enum MmdbValue {
    Text(&'static str),
    Short(u16),
    Number(u32),
    Long(u64),
    EmptyList,
    Map(Vec<(&'static str, MmdbValue)>),
}

/// Returns a database in which each network of `values`, an address and a prefix length, has its value.
pub fn database(values: Vec<(Ipv4Addr, u8, MmdbValue)>) -> Vec<u8> {
    const EMPTY: usize = usize::MAX;
    let mut nodes = vec![[EMPTY; 2]];
    let (mut data, mut leaves) = (Vec::new(), Vec::new());
    for (network, length, value) in values {
        let (bits, mut node) = (u32::from(network), 0);
        for depth in 0..length {
            let side = (bits >> (31 - depth) & 1) as usize;
            if depth + 1 == length {
                leaves.push((node, side, data.len()));
            } else if nodes[node][side] == EMPTY {
                nodes[node][side] = nodes.len();
                nodes.push([EMPTY; 2]);
            }
            node = nodes[node][side];
        }
        encode(&value, &mut data);
    }
    let count = nodes.len();
    for record in nodes.iter_mut().flatten().filter(|record| **record == EMPTY) {
        *record = count;
    }
    for (node, side, offset) in leaves {
        nodes[node][side] = count + 16 + offset;
    }
    let mut file: Vec<u8> =
        nodes.iter().flatten().flat_map(|record| (*record as u32).to_be_bytes()[1..].to_vec()).collect();
    file.extend([0; 16]);
    file.extend(data);
    file.extend(b"\xab\xcd\xefMaxMind.com");
    let metadata = MmdbValue::Map(vec![
        ("node_count", MmdbValue::Number(count as u32)),
        ("record_size", MmdbValue::Short(24)),
        ("ip_version", MmdbValue::Short(4)),
        ("database_type", MmdbValue::Text("test")),
        ("binary_format_major_version", MmdbValue::Short(2)),
        ("binary_format_minor_version", MmdbValue::Short(0)),
        ("build_epoch", MmdbValue::Long(1_800_000_000)),
        ("languages", MmdbValue::EmptyList),
        ("description", MmdbValue::Map(Vec::new())),
    ]);
    encode(&metadata, &mut file);
    file
}

fn encode(value: &MmdbValue, out: &mut Vec<u8>) {
    const TEXT: u8 = 2 << 5;
    const SHORT: u8 = 5 << 5;
    const NUMBER: u8 = 6 << 5;
    // Types above 7 follow in a byte of their own.
    const LONG: u8 = 9 - 7;
    const LIST: u8 = 11 - 7;
    const MAP: u8 = 7 << 5;
    match value {
        MmdbValue::Text(text) => {
            // The reader takes a length of 29 and more from the next byte.
            match text.len() {
                length @ ..29 => out.push(TEXT | length as u8),
                length => out.extend([TEXT | 29, (length - 29) as u8]),
            }
            out.extend(text.as_bytes());
        }
        MmdbValue::Short(number) => {
            out.push(SHORT | 2);
            out.extend(number.to_be_bytes());
        }
        MmdbValue::Number(number) => {
            out.push(NUMBER | 4);
            out.extend(number.to_be_bytes());
        }
        MmdbValue::Long(number) => {
            out.extend([8, LONG]);
            out.extend(number.to_be_bytes());
        }
        MmdbValue::EmptyList => out.extend([0, LIST]),
        MmdbValue::Map(entries) => {
            out.push(MAP | entries.len() as u8);
            for (key, value) in entries {
                encode(&MmdbValue::Text(key), out);
                encode(value, out);
            }
        }
    }
}

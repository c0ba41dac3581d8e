//! Numbers as text. Digits are appended in pieces of a fixed size and truncated afterwards, which is faster than a copy
//! of a length known only at run time.

use std::net::Ipv4Addr;

/// Appends a whole number.
pub(super) fn write_u64(out: &mut Vec<u8>, number: u64) {
    match number {
        0..10 => out.push(b'0' + number as u8),
        10..10_000 => write_4_digits(out, number as usize),
        _ => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
    }
}

/// Appends a number of up to four digits.
fn write_4_digits(out: &mut Vec<u8>, number: usize) {
    let ([a, b], [c, d]) = (DECIMAL[number / 100], DECIMAL[number % 100]);
    let padding = usize::from(number < 1000) + usize::from(number < 100) + usize::from(number < 10);
    let digits = u32::from_le_bytes([a, b, c, d]) >> (8 * padding);
    out.extend_from_slice(&digits.to_le_bytes());
    out.truncate(out.len() - padding);
}

/// Appends `value` thousandths as a decimal without trailing zeros: `12`, `12.25`.
pub(super) fn decimal_milli(out: &mut Vec<u8>, value: u64) {
    write_u64(out, value / 1000);
    let fraction = (value % 1000) as usize;
    if fraction > 0 {
        let [tenths, hundredths] = DECIMAL[fraction / 10];
        out.extend_from_slice(&[b'.', tenths, hundredths, b'0' + (fraction % 10) as u8]);
        let padding = usize::from(fraction.is_multiple_of(10)) + usize::from(fraction.is_multiple_of(100));
        out.truncate(out.len() - padding);
    }
}

/// Returns the six digits of a number below one million.
pub(super) fn to_6_digits(number: u32) -> [u8; 6] {
    let number = number as usize % 1_000_000;
    let ([a, b], [c, d], [e, f]) = (DECIMAL[number / 10_000], DECIMAL[number / 100 % 100], DECIMAL[number % 100]);
    [a, b, c, d, e, f]
}

/// Appends an IPv4 address.
pub(super) fn ipv4(out: &mut Vec<u8>, address: Ipv4Addr) {
    for octet in address.octets() {
        out.extend_from_slice(&OCTETS[usize::from(octet)]);
        let padding = usize::from(octet < 100) + usize::from(octet < 10);
        out.truncate(out.len() - padding);
    }
    out.truncate(out.len() - 1);
}

/// Returns the hexadecimal digits of a decision id.
pub fn hexadecimal(id: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(id.to_be_bytes()) {
        *pair = HEX_PAIRS[usize::from(byte)];
    }
    digits
}

/// Hexadecimal digits.
pub(super) const HEX: &[u8; 16] = b"0123456789abcdef";

static HEX_PAIRS: [[u8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [HEX[byte >> 4], HEX[byte & 15]];
        byte += 1;
    }
    pairs
};

/// `00` to `99`.
static DECIMAL: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [HEX[number / 10], HEX[number % 10]];
        number += 1;
    }
    pairs
};

/// `0.` to `255.`, padded with dots to four bytes.
static OCTETS: [[u8; 4]; 256] = {
    let mut octets = [[b'.'; 4]; 256];
    let mut octet = 0;
    while octet < 256 {
        let digits = [HEX[octet / 100], HEX[octet / 10 % 10], HEX[octet % 10]];
        let padding = (octet < 100) as usize + (octet < 10) as usize;
        let mut position = padding;
        while position < 3 {
            octets[octet][position - padding] = digits[position];
            position += 1;
        }
        octet += 1;
    }
    octets
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidegate_policy::Units;

    fn formatted(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"before".to_vec();
        write(&mut out);
        String::from_utf8(out).expect("ASCII").split_off(6)
    }

    #[test]
    fn small_numbers_are_formatted_exactly() {
        for number in 0..=10_001 {
            assert_eq!(formatted(|out| write_u64(out, number)), number.to_string());
            assert_eq!(formatted(|out| decimal_milli(out, number)), Units::from_milli(number).to_string());
        }
        for octet in 0..=255 {
            let address = Ipv4Addr::new(octet, 0, 10, 255 - octet);
            assert_eq!(formatted(|out| ipv4(out, address)), address.to_string());
        }
    }

    proptest! {
        #[test]
        fn any_number_is_formatted_exactly(number: u64) {
            prop_assert_eq!(formatted(|out| write_u64(out, number)), number.to_string());
            prop_assert_eq!(formatted(|out| out.extend(hexadecimal(number))), format!("{number:016x}"));
            let micros = (number % 1_000_000) as u32;
            prop_assert_eq!(formatted(|out| out.extend(to_6_digits(micros))), format!("{micros:06}"));
        }
    }
}

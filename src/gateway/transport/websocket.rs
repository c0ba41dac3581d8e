//! What the gateway knows of WebSockets (RFC 6455): the key of the handshake, by which a server shows that it understood the
//! upgrade (section 4), and where a frame ends (section 5), so that it can send one of its own.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidegate_http1::Fields;

/// Field with the key of the client.
pub(in crate::gateway) const KEY: &str = "sec-websocket-key";
/// Field with the answer of the server.
pub(in crate::gateway) const ACCEPT: &str = "sec-websocket-accept";
/// Appended to the key for the answer (RFC 6455 section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Returns the key made of a nonce.
pub(in crate::gateway) fn key(nonce: [u8; 16]) -> String {
    STANDARD.encode(nonce)
}

/// Returns true if `response` answers to the key in `request`.
pub(in crate::gateway) fn is_accepted(request: &Fields, response: &Fields) -> bool {
    let Some(key) = request.get_all_by_text(KEY).next() else { return false };
    let expected = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat()));
    response.get_all_by_text(ACCEPT).any(|accept| accept == expected.as_bytes())
}

/// Status of a close (RFC 6455 section 7.4.1).
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) enum CloseStatus {
    GoingAway = 1001,
    PolicyViolation = 1008,
}

/// First byte of a close: the last frame of its message, opcode 8.
const CLOSE: u8 = 0x88;
/// Longest head of a frame: two bytes, the length in eight, the mask.
const MAX_HEAD: usize = 14;

/// Returns the frame with which a server closes.
pub(in crate::gateway) fn close_of_server(status: CloseStatus) -> Vec<u8> {
    let payload = (status as u16).to_be_bytes();
    [&[CLOSE, payload.len() as u8][..], &payload].concat()
}

/// Returns the frame with which a client that goes away closes.
pub(in crate::gateway) fn close_of_client(mask: [u8; 4]) -> Vec<u8> {
    let [high, low] = (CloseStatus::GoingAway as u16).to_be_bytes();
    let payload = [high ^ mask[0], low ^ mask[1]];
    [&[CLOSE, 0x80 | payload.len() as u8][..], &mask, &payload].concat()
}

/// Position in the frames of one direction.
#[derive(Debug, Default)]
pub(in crate::gateway) struct FramePosition {
    /// Beginning of the head of the frame.
    head: [u8; MAX_HEAD],
    head_length: usize,
    /// Rest of the payload of the frame, in bytes.
    payload: u64,
    has_closed: bool,
}

impl FramePosition {
    /// Goes on by the bytes that were sent.
    pub(in crate::gateway) fn advance(&mut self, mut bytes: &[u8]) {
        loop {
            let skipped = usize::try_from(self.payload).unwrap_or(usize::MAX).min(bytes.len());
            self.payload -= skipped as u64;
            let Some((&byte, rest)) = bytes[skipped..].split_first() else { return };
            bytes = rest;
            self.head[self.head_length] = byte;
            self.head_length += 1;
            if let Some(payload) = payload_length(&self.head[..self.head_length]) {
                self.has_closed |= self.head[0] & 0xf == CLOSE & 0xf;
                (self.payload, self.head_length) = (payload, 0);
            }
        }
    }

    /// Returns true if another frame may begin: the sender is between two, and has not closed.
    pub(in crate::gateway) fn may_begin_frame(&self) -> bool {
        self.payload == 0 && self.head_length == 0 && !self.has_closed
    }
}

/// Returns the length of the payload; `None` if the head is not complete.
fn payload_length(head: &[u8]) -> Option<u64> {
    let (&[_, second], rest) = head.split_first_chunk::<2>()?;
    let (length, rest) = match second & 0x7f {
        126 => rest.split_first_chunk().map(|(length, rest)| (u64::from(u16::from_be_bytes(*length)), rest))?,
        127 => rest.split_first_chunk().map(|(length, rest)| (u64::from_be_bytes(*length), rest))?,
        length => (u64::from(length), rest),
    };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    (rest.len() >= mask).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(opcode: u8, length: usize, is_masked: bool) -> Vec<u8> {
        let mask = if is_masked { 0x80 } else { 0 };
        let mut frame = match length {
            0..126 => vec![0x80 | opcode, mask | length as u8],
            126..65536 => [&[0x80 | opcode, mask | 126][..], &(length as u16).to_be_bytes()].concat(),
            _ => [&[0x80 | opcode, mask | 127][..], &(length as u64).to_be_bytes()].concat(),
        };
        // Like heads of frames, if they were read as such.
        frame.resize(frame.len() + length + if is_masked { 4 } else { 0 }, 0x88);
        frame
    }

    proptest! {
        #[test]
        fn frames_of_the_gateway_fit_between_those_of_the_sender(
            frames in proptest::collection::vec((0..3u8, prop_oneof![0..200usize, 65_000..66_000usize], any::<bool>()), 0..6),
            cuts in proptest::collection::vec(1..5000usize, 1..20),
        ) {
            let frames: Vec<Vec<u8>> =
                frames.into_iter().map(|(opcode, length, is_masked)| frame(opcode, length, is_masked)).collect();
            let mut ends = vec![0];
            frames.iter().for_each(|frame| ends.push(ends[ends.len() - 1] + frame.len()));
            let bytes = frames.concat();
            let (mut position, mut sent) = (FramePosition::default(), 0);
            for cut in cuts.iter().cycle() {
                prop_assert_eq!(position.may_begin_frame(), ends.contains(&sent), "at {}", sent);
                if sent == bytes.len() {
                    break;
                }
                let end = bytes.len().min(sent + cut);
                position.advance(&bytes[sent..end]);
                sent = end;
            }
            position.advance(&frame(8, 2, false));
            prop_assert!(!position.may_begin_frame(), "nothing follows a close");
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            FramePosition::default().advance(&bytes);
        }
    }

    #[test]
    fn closes_are_frames() {
        let of_server = close_of_server(CloseStatus::PolicyViolation);
        assert_eq!(of_server[2..], [3, 0xf0]);
        for (close, is_masked) in [(of_server, false), (close_of_client([1, 2, 3, 4]), true)] {
            assert_eq!(payload_length(&close[..close.len() - 2]), Some(2));
            assert_eq!(close.len(), if is_masked { 8 } else { 4 });
        }
        assert_eq!(close_of_client([1, 2, 3, 4])[6..], [3 ^ 1, 0xe9 ^ 2]);
    }

    #[test]
    fn answer_is_that_of_the_rfc() {
        let fields = |name, value| [(name, value)].into_iter().collect::<Fields>();
        let request = fields(KEY, "dGhlIHNhbXBsZSBub25jZQ==");
        assert!(is_accepted(&request, &fields(ACCEPT, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")));
        assert!(!is_accepted(&request, &fields(ACCEPT, "s3pPLMBiTxaQ9kYGzzhZRbK+xOp=")));
        assert!(!is_accepted(&request, &Fields::new()) && !is_accepted(&Fields::new(), &Fields::new()));
    }
}

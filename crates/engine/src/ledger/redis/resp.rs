//! The part of the Redis protocol (RESP 2) that a ledger needs: encodes commands and parses replies.

use std::future::Future;
use std::io;
use std::pin::Pin;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// Reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`, or a string of any length.
    Text(Vec<u8>),
    /// `-ERR ...`: the command was not executed completely.
    Error(String),
    /// An integer.
    Number(i64),
    /// A null value.
    Nil,
    /// An array.
    List(Vec<Reply>),
}

/// Maximum length of a string, far above the state of a thousand instances of one quota.
const MAX_BULK_LEN: usize = 64 * 1024 * 1024;
/// Maximum length of an array, and of a line.
const MAX_ARRAY_LEN: usize = 1024 * 1024;
/// Maximum nesting: the lease script returns a flat array.
const MAX_DEPTH: usize = 4;

impl Reply {
    /// Returns the text of a string reply, or `None` for another type.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// Appends a command to the output.
pub(super) fn write_command(out: &mut Vec<u8>, words: &[&str]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}

/// Reads one reply. After an error, the connection must not be reused.
pub async fn read_reply<R: AsyncBufRead + Unpin + Send>(reader: &mut R) -> io::Result<Reply> {
    read_nested(reader, 0).await
}

fn read_nested<'a, R: AsyncBufRead + Unpin + Send>(
    reader: &'a mut R,
    depth: usize,
) -> Pin<Box<dyn Future<Output = io::Result<Reply>> + Send + 'a>> {
    Box::pin(async move {
        let line = read_line(reader).await?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| unexpected_reply("empty line"))?;
        let number = || rest.parse::<i64>().map_err(|_| unexpected_reply("invalid number"));
        match kind {
            "+" => Ok(Reply::Text(rest.as_bytes().to_vec())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Number(number()?)),
            "$" | "*" if number()? == -1 => Ok(Reply::Nil),
            "$" => {
                let length = length(number()?, MAX_BULK_LEN)?;
                let mut text = Vec::new();
                // Allocate with the received data, not by the announced length.
                let read = AsyncReadExt::take(&mut *reader, length as u64 + 2).read_to_end(&mut text).await?;
                if read < length + 2 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if !text.ends_with(b"\r\n") {
                    return Err(unexpected_reply("string without terminator"));
                }
                text.truncate(length);
                Ok(Reply::Text(text))
            }
            "*" if depth < MAX_DEPTH => {
                let length = length(number()?, MAX_ARRAY_LEN)?;
                let mut list = Vec::new();
                for _ in 0..length {
                    list.push(read_nested(reader, depth + 1).await?);
                }
                Ok(Reply::List(list))
            }
            _ => Err(unexpected_reply("unknown reply type")),
        }
    })
}

async fn read_line<R: AsyncBufRead + Unpin>(reader: &mut R) -> io::Result<String> {
    let mut line = Vec::new();
    let read = AsyncReadExt::take(&mut *reader, MAX_ARRAY_LEN as u64).read_until(b'\n', &mut line).await?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if !line.ends_with(b"\r\n") {
        return Err(unexpected_reply("line without terminator"));
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).map_err(|_| unexpected_reply("invalid UTF-8"))
}

fn length(number: i64, max: usize) -> io::Result<usize> {
    usize::try_from(number).ok().filter(|length| *length <= max).ok_or_else(|| unexpected_reply("invalid length"))
}

fn unexpected_reply(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not the Redis protocol: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_reply(bytes: &[u8]) -> io::Result<Reply> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(read_reply(&mut io::Cursor::new(bytes)))
    }

    #[test]
    fn commands_are_encoded_and_replies_decoded() {
        let mut out = Vec::new();
        write_command(&mut out, &["GET", "ä"]);
        assert_eq!(out, "*2\r\n$3\r\nGET\r\n$2\r\nä\r\n".as_bytes());
        for (bytes, expected) in [
            ("+OK\r\n", Reply::Text(b"OK".to_vec())),
            ("-OOM too much\r\n", Reply::Error("OOM too much".into())),
            (":-7\r\n", Reply::Number(-7)),
            ("$-1\r\n", Reply::Nil),
            ("$4\r\na\r\nb\r\n", Reply::Text(b"a\r\nb".to_vec())),
            (
                "*2\r\n:1\r\n*1\r\n$0\r\n\r\n",
                Reply::List(vec![Reply::Number(1), Reply::List(vec![Reply::Text(Vec::new())])]),
            ),
        ] {
            assert_eq!(parse_reply(bytes.as_bytes()).expect(bytes), expected);
        }
    }

    #[test]
    fn non_redis_reply_is_a_protocol_error() {
        for bytes in
            ["HTTP/1.1 400 Bad Request\r\n", "\r\n", "$x\r\n", "$99999999999\r\n", "*-2\r\n", "$1\r\nabc", "+a\n"]
        {
            let error = parse_reply(bytes.as_bytes()).expect_err(bytes).to_string();
            assert!(error.contains("not the Redis protocol"), "{bytes:?}: {error}");
        }
        for cut in ["", "$5\r\nab", "*2\r\n:1\r\n"] {
            assert_eq!(
                parse_reply(cut.as_bytes()).expect_err("the reply is truncated").kind(),
                io::ErrorKind::UnexpectedEof,
                "{cut:?}"
            );
        }
    }

    #[test]
    fn nesting_is_limited() {
        let nested = |depth: usize| parse_reply(format!("{}:1\r\n", "*1\r\n".repeat(depth)).as_bytes());
        assert!(nested(MAX_DEPTH).is_ok());
        assert!(nested(MAX_DEPTH + 1).is_err() && nested(10_000).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in "[-+:$*0-9a\r\n]{0,40}") {
            let _ = parse_reply(bytes.as_bytes());
        }
    }
}

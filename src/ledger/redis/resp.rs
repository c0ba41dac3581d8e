//! The protocol of Redis (RESP 2) on the wire, as much of it as a ledger needs: commands out, replies in.

use std::future::Future;
use std::io;
use std::pin::Pin;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// `+OK`, or text of any length.
    Text(Vec<u8>),
    /// `-ERR ...`: whatever came of the command, it was not carried out whole.
    Error(String),
    /// A whole number.
    Number(i64),
    /// Nothing.
    Nil,
    /// Several.
    List(Vec<Reply>),
}

/// The longest text that is believed: far beyond what a thousand gates on one quota would say.
const MAX_BULK_LEN: usize = 64 * 1024 * 1024;
/// The longest list that is believed, and the longest line.
const MAX_ARRAY_LEN: usize = 1024 * 1024;
/// Our script answers with a flat list.
const MAX_DEPTH: usize = 4;

impl Reply {
    /// Its text, where it is one.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// Adds a command to what is to be sent.
pub(super) fn write_command(out: &mut Vec<u8>, words: &[&str]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}

/// Reads one reply. An error of this function means that the connection is of no more use.
pub(super) async fn read_reply<R: AsyncBufRead + Unpin + Send>(from: &mut R) -> io::Result<Reply> {
    read_nested(from, 0).await
}

fn read_nested<'a, R: AsyncBufRead + Unpin + Send>(
    from: &'a mut R,
    depth: usize,
) -> Pin<Box<dyn Future<Output = io::Result<Reply>> + Send + 'a>> {
    Box::pin(async move {
        let line = read_line(from).await?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| unexpected_reply("an empty line"))?;
        let number = || rest.parse::<i64>().map_err(|_| unexpected_reply("a number that is none"));
        match kind {
            "+" => Ok(Reply::Text(rest.as_bytes().to_vec())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Number(number()?)),
            "$" | "*" if number()? == -1 => Ok(Reply::Nil),
            "$" => {
                let length = length(number()?, MAX_BULK_LEN)?;
                let mut text = Vec::new();
                // Grows with what arrives, not with what was announced.
                let read = AsyncReadExt::take(&mut *from, length as u64 + 2).read_to_end(&mut text).await?;
                if read < length + 2 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if !text.ends_with(b"\r\n") {
                    return Err(unexpected_reply("a text without its end"));
                }
                text.truncate(length);
                Ok(Reply::Text(text))
            }
            "*" if depth < MAX_DEPTH => {
                let length = length(number()?, MAX_ARRAY_LEN)?;
                let mut list = Vec::new();
                for _ in 0..length {
                    list.push(read_nested(from, depth + 1).await?);
                }
                Ok(Reply::List(list))
            }
            _ => Err(unexpected_reply("something else")),
        }
    })
}

async fn read_line<R: AsyncBufRead + Unpin>(from: &mut R) -> io::Result<String> {
    let mut line = Vec::new();
    let read = AsyncReadExt::take(&mut *from, MAX_ARRAY_LEN as u64).read_until(b'\n', &mut line).await?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if !line.ends_with(b"\r\n") {
        return Err(unexpected_reply("a line without its end"));
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).map_err(|_| unexpected_reply("no text"))
}

fn length(number: i64, most: usize) -> io::Result<usize> {
    usize::try_from(number).ok().filter(|length| *length <= most).ok_or_else(|| unexpected_reply("an absurd length"))
}

fn unexpected_reply(found: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it does not speak the Redis protocol: found {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> io::Result<Reply> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(read_reply(&mut io::Cursor::new(bytes)))
    }

    #[test]
    fn a_command_is_counted_and_every_kind_of_reply_is_read() {
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
            assert_eq!(read(bytes.as_bytes()).expect(bytes), expected);
        }
    }

    #[test]
    fn what_is_no_redis_is_said_to_be_none() {
        for bytes in
            ["HTTP/1.1 400 Bad Request\r\n", "\r\n", "$x\r\n", "$99999999999\r\n", "*-2\r\n", "$1\r\nabc", "+a\n"]
        {
            let told = read(bytes.as_bytes()).expect_err(bytes).to_string();
            assert!(told.contains("does not speak the Redis protocol"), "{bytes:?}: {told}");
        }
        for cut in ["", "$5\r\nab", "*2\r\n:1\r\n"] {
            assert_eq!(read(cut.as_bytes()).expect_err("it is cut").kind(), io::ErrorKind::UnexpectedEof, "{cut:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in "[-+:$*0-9a\r\n]{0,40}") {
            let _ = read(bytes.as_bytes());
        }
    }
}

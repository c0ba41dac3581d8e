//! Writes responses: head, body framing, connection persistence.

use super::super::body::{BodyCoding, BodyWriter, SendBody};
use super::super::buffer::WriteBuffer;
use super::super::chunked;
use super::super::fields::{Fields, list, write_field};
use super::super::framing;
use super::super::head;
use super::super::message::Response;
use super::super::name::Name;
use super::conn::SharedConn;
use super::{Finish, ResponseContext, ServeOptions};
use http::{Method, StatusCode};
use http_body::Body;
use std::future::poll_fn;
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncWrite};

/// Framing fields of a response, and the coding of its body.
struct ResponseFraming {
    coding: BodyCoding,
    content_length: Option<u64>,
}

/// Sends a response. Returns true if the connection is kept, `None` if the client disconnected or the response was
/// aborted.
pub(super) async fn send<IO, B, E, D, R>(
    conn: &mut SharedConn<IO>,
    out: &mut WriteBuffer,
    response_context: ResponseContext,
    response: Response<B>,
    options: &ServeOptions<'_, E, D, R>,
) -> Option<bool>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    B: SendBody,
    E: Fn() -> Finish,
    D: Fn() -> [u8; 29],
{
    let Response { status, fields, body } = response;
    let framed = frame_response(response_context, status, &fields, &body);
    let keep_alive = response_context.keeps_alive
        && (options.finish)() == Finish::Never
        && !matches!(framed.coding, BodyCoding::UntilClose)
        && !conn.expects_continue()
        && conn.can_skip_body()
        && !wants_close(&fields);
    poll_fn(|cx| conn.poll_cancel_continue(cx)).await.ok()?;
    write_head(out.front_mut(), response_context, status, &fields, &framed, keep_alive, &options.date);
    let mut body = BodyWriter::new(body, framed.coding);
    let written = poll_fn(|cx| {
        if let Poll::Ready(written) = body.poll_write(conn, out, cx) {
            return Poll::Ready(written.ok());
        }
        conn.poll_closed(cx).map(|()| None)
    });
    written.await?;
    Some(keep_alive)
}

/// Sends the head of a response that switches protocols. Returns its body, or `None` if the client disconnected.
pub(super) async fn send_switch<IO: AsyncRead + AsyncWrite + Unpin, B>(
    conn: &mut SharedConn<IO>,
    out: &mut WriteBuffer,
    response: Response<B>,
) -> Option<B> {
    let Response { status, fields, body } = response;
    let front = out.front_mut();
    head::write_status(front, false, status);
    fields.write(front, |name| !matches!(name, Name::TransferEncoding | Name::ContentLength));
    front.extend_from_slice(b"\r\n");
    poll_fn(|cx| out.poll_flush(conn, cx)).await.ok()?;
    Some(body)
}

fn frame_response<B: Body>(
    response_context: ResponseContext,
    status: StatusCode,
    fields: &Fields,
    body: &B,
) -> ResponseFraming {
    let method = if response_context.is_head { Method::HEAD } else { Method::GET };
    let exact = body.size_hint().exact();
    let declared = || std::str::from_utf8(fields.get(Name::ContentLength)?).ok()?.parse().ok();
    if framing::has_no_body(&method, status) {
        let content_length = match status {
            StatusCode::NO_CONTENT => None,
            // For HEAD: the length of the response to GET, if the service declared it.
            _ => declared().or(exact.filter(|&length| length > 0)),
        };
        return ResponseFraming { coding: BodyCoding::Exact(0), content_length };
    }
    match exact.or_else(declared) {
        Some(length) => ResponseFraming { coding: BodyCoding::Exact(length), content_length: Some(length) },
        None if response_context.is_http10 => ResponseFraming { coding: BodyCoding::UntilClose, content_length: None },
        None => {
            let trailers =
                if response_context.accepts_trailers { chunked::announced_trailers(fields) } else { Vec::new() };
            ResponseFraming { coding: BodyCoding::Chunked(trailers), content_length: None }
        }
    }
}

fn wants_close(fields: &Fields) -> bool {
    fields.all(Name::Connection).flat_map(list).any(|option| option.eq_ignore_ascii_case(b"close"))
}

fn write_head(
    out: &mut Vec<u8>,
    response_context: ResponseContext,
    status: StatusCode,
    fields: &Fields,
    framed: &ResponseFraming,
    keep_alive: bool,
    date: impl Fn() -> [u8; 29],
) {
    head::write_status(out, response_context.is_http10, status);
    let mut has_date = false;
    fields.write(out, |name| {
        has_date |= name == Name::Date;
        !matches!(name, Name::Connection | Name::TransferEncoding | Name::ContentLength)
    });
    if let Some(length) = framed.content_length {
        head::write_content_length(out, length);
    } else if let BodyCoding::Chunked(_) = framed.coding {
        head::write_chunked(out);
    }
    match keep_alive {
        true if response_context.is_http10 => out.extend_from_slice(b"connection: keep-alive\r\n"),
        true => {}
        false => out.extend_from_slice(b"connection: close\r\n"),
    }
    if !has_date {
        write_field(out, b"date", &date());
    }
    out.extend_from_slice(b"\r\n");
}

//! A gateway for `scripts/meter-bench` that counts with the library Limitador, as its documentation of `RateLimiter::reserve` says:
//! what a call states is reserved, and what its response reports is committed. A call without a report leaves its reservation
//! to expire.
//!
//! usage: limitador-gateway LISTEN ORIGIN LIMIT WINDOW_S [REDIS_URL]

use limitador::RateLimiter;
use limitador::limit::{Context, Limit};
use limitador::reservation::ReservationId;
#[cfg(feature = "redis")]
use limitador::storage::redis::RedisStorage;
use std::collections::HashMap;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

const REFUSED: &str = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const FAILED: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, origin, limit, window, redis @ ..] = &arguments[..] else {
        panic!("see the first lines of the source")
    };
    let limiter = Arc::new(match redis {
        #[cfg(feature = "redis")]
        [url] => RateLimiter::new_with_storage(Box::new(RedisStorage::new(url).expect("Redis"))),
        [] => RateLimiter::new(10_000),
        _ => panic!("built without Redis"),
    });
    let number = |text: &str| text.parse().expect("a number");
    let key = "key".try_into().expect("a variable");
    limiter.add_limit(Limit::new("models", number(limit), number(window), vec![], vec![key]));
    for client in TcpListener::bind(listen).expect("the address is free").incoming().flatten() {
        let (limiter, origin) = (Arc::clone(&limiter), origin.clone());
        std::thread::spawn(move || serve(client, &limiter, &origin));
    }
}

fn serve(mut client: TcpStream, limiter: &RateLimiter, origin: &str) -> Result<()> {
    let (head, body) = receive(&mut client)?;
    let key = head.split("Bearer ").nth(1).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let namespace = "models".into();
    let context: Context = HashMap::from([("key".to_owned(), key.to_owned())]).into();
    let stated = last_number(&body, "\"max_tokens\":").unwrap_or(1000) + body.len() as u64 / 4;
    let reservation = match limiter.reserve(&namespace, &context, stated, None) {
        Ok(result) if result.limited => return client.write_all(REFUSED.as_bytes()),
        Ok(result) => result.reservation_id,
        Err(_) => return client.write_all(FAILED.as_bytes()),
    };
    let (relayed, response) = relay(&mut client, origin, &head, &body);
    if let Some(used) = last_number(&response, "\"total_tokens\":") {
        commit(limiter, &context, reservation.as_ref(), used);
    }
    relayed
}

fn commit(limiter: &RateLimiter, context: &Context, reservation: Option<&ReservationId>, used: u64) {
    if let Err(error) = limiter.commit_reservation(&"models".into(), context, reservation, used) {
        eprintln!("{used} are not counted: {error}");
    }
}

fn receive(client: &mut TcpStream) -> Result<(String, String)> {
    let (mut received, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&received);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "))
                .map_or(0, |it| it.parse().unwrap_or(0));
            if body.len() >= length {
                return Ok((head.to_owned(), body.to_owned()));
            }
        }
        match client.read(&mut part)? {
            0 => return Err(Error::from(ErrorKind::UnexpectedEof)),
            count => received.extend_from_slice(&part[..count]),
        }
    }
}

/// Relays the response until its end, or until the client leaves. Returns what was received.
fn relay(client: &mut TcpStream, origin: &str, head: &str, body: &str) -> (Result<()>, String) {
    let mut response = Vec::new();
    let relayed = (|| {
        let mut origin = TcpStream::connect(origin)?;
        write!(origin, "{head}\r\n\r\n{body}")?;
        let mut part = [0; 4096];
        loop {
            let count = origin.read(&mut part)?;
            if count == 0 {
                return Ok(());
            }
            response.extend_from_slice(&part[..count]);
            client.write_all(&part[..count])?;
        }
    })();
    (relayed, String::from_utf8_lossy(&response).into_owned())
}

fn last_number(text: &str, name: &str) -> Option<u64> {
    let rest = text.rsplit_once(name)?.1.trim_start();
    rest[..rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}

//! One connection to one server: opened when it is needed, given up at the first trouble, not opened again in haste.

use super::endpoint::RedisEndpoint;
use super::error;
use super::resp::{Reply, read_reply, write_command};
use crate::ledger::StoreError;
use crate::policy::Timestamp;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeouts of a connection to a server. A slower server counts as lost: units in hand are spent meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Longest time for connecting, authenticating and loading the script.
    pub connect: Duration,
    /// Longest time for the replies of one round.
    pub reply: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_millis(250), reply: Duration::from_millis(100) }
    }
}

/// The pauses between two attempts: the first, and the longest. Gates that come back must be in time for the moments that a
/// server without a memory waits for them ([`super::timing::Timing::recovery_grace`]).
const RECONNECT_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// A connection, or when to try for one again.
#[derive(Debug)]
pub(super) struct RedisConnection {
    server: RedisEndpoint,
    script: String,
    timeouts: Timeouts,
    open: Option<OpenConnection>,
    not_before: Timestamp,
    pause: Duration,
    /// Why the last attempt failed.
    last_error: String,
}

#[derive(Debug)]
struct OpenConnection {
    stream: BufReader<TcpStream>,
    /// The name that the server gave our script.
    script: String,
}

impl RedisConnection {
    pub(super) fn new(server: RedisEndpoint, script: &str, timeouts: Timeouts) -> Self {
        let (script, not_before) = (script.to_owned(), Timestamp::default());
        Self { server, script, timeouts, open: None, not_before, pause: RECONNECT_BACKOFF.0, last_error: String::new() }
    }

    /// Runs the script once for each of `calls`, all of them in one go; a reply for each.
    pub(super) async fn run(&mut self, calls: &[Vec<String>], now: Timestamp) -> Result<Vec<Reply>, StoreError> {
        let mut replies = self.attempt(calls, now).await?;
        // The server has forgotten the script (SCRIPT FLUSH): a new connection brings it along. None of the calls was run.
        if replies.iter().any(|reply| matches!(reply, Reply::Error(told) if told.starts_with("NOSCRIPT"))) {
            self.open = None;
            replies = self.attempt(calls, now).await?;
        }
        Ok(replies)
    }

    /// Lets go of the connection: the next round looks the name up again and may find another server.
    pub(super) fn disconnect(&mut self) {
        self.open = None;
    }

    async fn attempt(&mut self, calls: &[Vec<String>], now: Timestamp) -> Result<Vec<Reply>, StoreError> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.connect(now).await?,
        };
        let mut out = Vec::new();
        for call in calls {
            let mut words = vec!["EVALSHA", &open.script, "1"];
            words.extend(call.iter().map(String::as_str));
            write_command(&mut out, &words);
        }
        let exchange = async {
            open.stream.get_mut().write_all(&out).await?;
            let mut replies = Vec::with_capacity(calls.len());
            for _ in calls {
                replies.push(read_reply(&mut open.stream).await?);
            }
            std::io::Result::Ok(replies)
        };
        // A connection on which an answer is due is never used again: the answer would be taken for another's.
        match timeout(self.timeouts.reply, exchange).await {
            Ok(Ok(replies)) => {
                self.open = Some(open);
                Ok(replies)
            }
            Ok(Err(error)) => Err(error::unreachable(&self.server, error)),
            Err(_) => Err(error::unreachable(&self.server, format!("no answer within {:?}", self.timeouts.reply))),
        }
    }

    async fn connect(&mut self, now: Timestamp) -> Result<OpenConnection, StoreError> {
        // A clock that was set back must not keep us away for long.
        if now < self.not_before && self.not_before.saturating_duration_since(now) <= RECONNECT_BACKOFF.1 {
            return Err(error::unreachable(&self.server, &self.last_error));
        }
        let opened = match timeout(self.timeouts.connect, handshake(&self.server, &self.script)).await {
            Ok(opened) => opened,
            Err(_) => {
                let late = format!("no connection within {:?}", self.timeouts.connect);
                Err(error::unreachable(&self.server, late))
            }
        };
        match &opened {
            Ok(_) => self.pause = RECONNECT_BACKOFF.0,
            Err(error) => {
                self.not_before = now + self.pause;
                self.pause = (self.pause * 2).min(RECONNECT_BACKOFF.1);
                self.last_error = format!("waiting to try again after: {error}");
            }
        }
        opened
    }
}

/// Opens a connection, says who we are and brings the script along.
async fn handshake(server: &RedisEndpoint, script: &str) -> Result<OpenConnection, StoreError> {
    let lost = |error| error::unreachable(server, error);
    let stream = TcpStream::connect((server.host.as_str(), server.port)).await.map_err(lost)?;
    stream.set_nodelay(true).map_err(lost)?;
    let mut stream = BufReader::new(stream);
    let database = server.database.to_string();
    if let Some(password) = &server.password {
        let words = match &server.user {
            Some(user) => vec!["AUTH", user, password],
            None => vec!["AUTH", password],
        };
        // Its answer is not shown: there are servers that repeat what they did not understand.
        if let Reply::Error(_) = command(&mut stream, &words).await.map_err(lost)? {
            return Err(error::refused(server, "it does not accept the user or password in ledger.redis.url"));
        }
    }
    if server.database != 0
        && let Reply::Error(told) = command(&mut stream, &["SELECT", &database]).await.map_err(lost)?
    {
        return Err(error::from_server(server, &told));
    }
    match command(&mut stream, &["SCRIPT", "LOAD", script]).await.map_err(lost)? {
        Reply::Error(told) => Err(error::from_server(server, &told)),
        reply => match reply.text() {
            Some(name) => Ok(OpenConnection { script: name.to_owned(), stream }),
            None => Err(error::refused(server, "it does not know scripts")),
        },
    }
}

async fn command(stream: &mut BufReader<TcpStream>, words: &[&str]) -> std::io::Result<Reply> {
    let mut out = Vec::new();
    write_command(&mut out, words);
    stream.get_mut().write_all(&out).await?;
    read_reply(stream).await
}

//! A connection to one server: opened on demand, closed at the first error, reopened with backoff.

use super::endpoint::RedisEndpoint;
use super::error;
use super::resp::{Reply, read_reply, write_command};
use crate::ledger::StoreError;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeouts of a connection. A slower server counts as unavailable; held units are spent meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Maximum time to connect, authenticate and load the script.
    pub connect: Duration,
    /// Maximum time for the replies of one round.
    pub reply: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_millis(250), reply: Duration::from_millis(100) }
    }
}

/// Minimum and maximum reconnect backoff. Instances must reconnect within the time that a server without state waits
/// for their reports (`RECOVERY_GRACE` in `script.lua`).
const RECONNECT_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// A connection with reconnect and backoff.
#[derive(Debug)]
pub(super) struct RedisConnection {
    server: RedisEndpoint,
    script: String,
    timeouts: Timeouts,
    connection: Option<OpenConnection>,
    reconnect_at: Timestamp,
    backoff: Duration,
    /// Error of the last attempt.
    last_error: String,
}

#[derive(Debug)]
struct OpenConnection {
    stream: BufReader<TcpStream>,
    /// Hash of the script, as returned by the server.
    script: String,
}

impl RedisConnection {
    pub(super) fn new(server: RedisEndpoint, script: &str, timeouts: Timeouts) -> Self {
        let (script, reconnect_at) = (script.to_owned(), Timestamp::default());
        Self {
            server,
            script,
            timeouts,
            connection: None,
            reconnect_at,
            backoff: RECONNECT_BACKOFF.0,
            last_error: String::new(),
        }
    }

    /// Runs the script once per call, in one pipeline. Returns one reply per call.
    pub(super) async fn run(&mut self, calls: &[Vec<String>], now: Timestamp) -> Result<Vec<Reply>, StoreError> {
        let mut replies = self.attempt(calls, now).await?;
        // The server has flushed the script (SCRIPT FLUSH) and executed none of the calls. A new connection loads the
        // script.
        if replies.iter().any(|reply| matches!(reply, Reply::Error(message) if message.starts_with("NOSCRIPT"))) {
            self.connection = None;
            replies = self.attempt(calls, now).await?;
        }
        Ok(replies)
    }

    /// Closes the connection. The next round resolves the host name again and may reach another server.
    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }

    async fn attempt(&mut self, calls: &[Vec<String>], now: Timestamp) -> Result<Vec<Reply>, StoreError> {
        let mut connection = match self.connection.take() {
            Some(open) => open,
            None => self.connect(now).await?,
        };
        let mut out = Vec::new();
        for call in calls {
            let mut words = vec!["EVALSHA", &connection.script, "1"];
            words.extend(call.iter().map(String::as_str));
            write_command(&mut out, &words);
        }
        let exchange = async {
            connection.stream.get_mut().write_all(&out).await?;
            let mut replies = Vec::with_capacity(calls.len());
            for _ in calls {
                replies.push(read_reply(&mut connection.stream).await?);
            }
            std::io::Result::Ok(replies)
        };
        // A connection with a pending reply is never reused: that reply would be assigned to another call.
        match timeout(self.timeouts.reply, exchange).await {
            Ok(Ok(replies)) => {
                self.connection = Some(connection);
                Ok(replies)
            }
            Ok(Err(error)) => Err(error::unreachable(&self.server, error)),
            Err(_) => Err(error::unreachable(&self.server, format!("no response within {:?}", self.timeouts.reply))),
        }
    }

    async fn connect(&mut self, now: Timestamp) -> Result<OpenConnection, StoreError> {
        // A clock that was set back must not delay the next attempt for long.
        if now < self.reconnect_at && self.reconnect_at.saturating_duration_since(now) <= RECONNECT_BACKOFF.1 {
            return Err(error::unreachable(&self.server, &self.last_error));
        }
        let opened = match timeout(self.timeouts.connect, handshake(&self.server, &self.script)).await {
            Ok(opened) => opened,
            Err(_) => {
                let message = format!("connect timed out after {:?}", self.timeouts.connect);
                Err(error::unreachable(&self.server, message))
            }
        };
        match &opened {
            Ok(_) => self.backoff = RECONNECT_BACKOFF.0,
            Err(error) => {
                self.reconnect_at = now + self.backoff;
                self.backoff = (self.backoff * 2).min(RECONNECT_BACKOFF.1);
                self.last_error = format!("retry pending after: {error}");
            }
        }
        opened
    }
}

/// Opens a connection, authenticates and loads the script.
async fn handshake(server: &RedisEndpoint, script: &str) -> Result<OpenConnection, StoreError> {
    let unreachable = |error| error::unreachable(server, error);
    let stream = TcpStream::connect((server.host.as_str(), server.port)).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let mut stream = BufReader::new(stream);
    let database = server.database.to_string();
    if let Some(password) = &server.password {
        let words = match &server.user {
            Some(user) => vec!["AUTH", user, password],
            None => vec!["AUTH", password],
        };
        // The reply is not logged: some servers repeat arguments that they cannot parse.
        if let Reply::Error(_) = command(&mut stream, &words).await.map_err(unreachable)? {
            return Err(error::refused(server, "authentication failed; check user and password in ledger.redis.url"));
        }
    }
    if server.database != 0
        && let Reply::Error(message) = command(&mut stream, &["SELECT", &database]).await.map_err(unreachable)?
    {
        return Err(error::from_server(server, &message));
    }
    match command(&mut stream, &["SCRIPT", "LOAD", script]).await.map_err(unreachable)? {
        Reply::Error(message) => Err(error::from_server(server, &message)),
        reply => match reply.text() {
            Some(hash) => Ok(OpenConnection { script: hash.to_owned(), stream }),
            None => Err(error::refused(server, "scripts are not supported")),
        },
    }
}

async fn command(stream: &mut BufReader<TcpStream>, words: &[&str]) -> std::io::Result<Reply> {
    let mut out = Vec::new();
    write_command(&mut out, words);
    stream.get_mut().write_all(&out).await?;
    read_reply(stream).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    const START: Timestamp = Timestamp::from_seconds(1000);

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
    }

    fn connection(port: u16, timeouts: Timeouts) -> RedisConnection {
        let server = RedisEndpoint { host: "127.0.0.1".into(), port, user: None, password: None, database: 0 };
        RedisConnection::new(server, "return 1", timeouts)
    }

    #[test]
    fn pauses_between_attempts_double_up_to_a_second() {
        let mut connection = connection(1, Timeouts::default());
        let mut is_attempted = |now| {
            let error = block_on(connection.run(&[], now)).expect_err("no server has this port").to_string();
            assert!(error.contains("refused"), "{error}");
            !error.contains("retry pending after")
        };
        let mut now = START;
        assert!(is_attempted(now));
        for pause_ms in [50, 100, 200, 400, 800, 1000, 1000] {
            assert!(!is_attempted(now + Duration::from_millis(pause_ms - 1)), "{pause_ms}");
            now += Duration::from_millis(pause_ms);
            assert!(is_attempted(now), "{pause_ms}");
        }
        assert!(is_attempted(START - Duration::from_secs(600)), "a clock set back delays nothing");
    }

    #[test]
    fn disconnected_server_is_connected_again() {
        block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let port = listener.local_addr().expect("an address").port();
            let second = Duration::from_secs(60);
            let mut connection = connection(port, Timeouts { connect: second, reply: second });
            // A server that answers one handshake and one call for each connection.
            let server = tokio::spawn(async move {
                let mut open = Vec::new();
                for _ in 0..2 {
                    let mut stream = BufReader::new(listener.accept().await.expect("a connection").0);
                    for answer in ["+hash\r\n", ":7\r\n"] {
                        read_reply(&mut stream).await.expect("a command");
                        stream.write_all(answer.as_bytes()).await.expect("the client reads");
                    }
                    open.push(stream);
                }
                open
            });
            for _ in 0..2 {
                let replies = connection.run(&[vec!["key".into()]], START).await.expect("a reply");
                assert_eq!(replies, [Reply::Number(7)]);
                connection.disconnect();
            }
            assert_eq!(server.await.expect("no panic").len(), 2);
        });
    }
}

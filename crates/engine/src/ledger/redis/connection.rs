//! A connection to one server: opened on demand, closed at the first error, reopened with backoff.

use super::endpoint::{HostPort, RedisAddress, RedisEndpoint};
use super::error;
use crate::ledger::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, RedisConnectionInfo, RedisResult, Value};
use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tidegate_policy::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;

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

/// A connection with reconnect and backoff, which runs one script.
pub(super) struct RedisConnection {
    server: RedisEndpoint,
    script: String,
    timeouts: Timeouts,
    open: Option<OpenConnection>,
    reconnect_at: Timestamp,
    backoff: Duration,
    /// Error of the last attempt, without the server.
    last_error: String,
}

struct OpenConnection {
    commands: MultiplexedConnection,
    /// Bytes that may still be received of the replies to the commands that were sent last.
    receivable: Arc<AtomicUsize>,
    /// Reads and writes. Polled only while replies are awaited, so nothing reaches the server after a round has failed.
    driver: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Hash of the script, as returned by the server; empty before it is loaded.
    script: String,
}

/// Maximum bytes of the replies to the commands that are sent together, far above the state of a thousand instances.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// Received half of a connection, with an upper bound: what a server sends is buffered until a reply is whole.
struct BoundedReader {
    stream: ReadHalf<Box<dyn Stream>>,
    receivable: Arc<AtomicUsize>,
}

impl AsyncRead for BoundedReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let received = buffer.filled().len() - before;
        let fits = |left: usize| left.checked_sub(received);
        match self.receivable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Poll::Ready(Ok(())),
            Err(_) => Poll::Ready(Err(io::Error::other("replies above 64 MiB"))),
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl RedisConnection {
    pub(super) fn new(server: RedisEndpoint, script: &str, timeouts: Timeouts) -> Self {
        let (script, reconnect_at) = (script.to_owned(), Timestamp::default());
        Self {
            server,
            script,
            timeouts,
            open: None,
            reconnect_at,
            backoff: RECONNECT_BACKOFF.0,
            last_error: String::new(),
        }
    }

    /// Runs the script once per call, in one pipeline. Returns one reply per call.
    pub(super) async fn run(&mut self, calls: &[&[String]], now: Timestamp) -> Result<Vec<Value>, StoreError> {
        let mut replies = self.attempt(calls, now).await?;
        // The server has flushed the script (SCRIPT FLUSH) and executed none of the calls. A new connection loads the
        // script.
        if replies.iter().any(|reply| matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")) {
            self.open = None;
            replies = self.attempt(calls, now).await?;
        }
        Ok(replies)
    }

    /// Closes the connection. The next round resolves the host name again and may reach another server.
    pub(super) fn disconnect(&mut self) {
        self.open = None;
    }

    async fn attempt(&mut self, calls: &[&[String]], now: Timestamp) -> Result<Vec<Value>, StoreError> {
        let mut connection = match self.open.take() {
            Some(open) => open,
            None => self.connect(now).await?,
        };
        if calls.is_empty() {
            self.open = Some(connection);
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::with_capacity(calls.len());
        for call in calls {
            pipeline.cmd("EVALSHA").arg(&connection.script).arg(1).arg(*call);
        }
        // A connection with a pending reply is never reused: its calls may or may not have been executed.
        match timeout(self.timeouts.reply, connection.exchange(&pipeline)).await {
            Ok(Ok(replies)) => {
                self.open = Some(connection);
                Ok(replies)
            }
            Ok(Err(error)) => Err(error::from_client(&self.server, &error)),
            Err(_) => Err(error::unreachable(&self.server, format!("no response within {:?}", self.timeouts.reply))),
        }
    }

    async fn connect(&mut self, now: Timestamp) -> Result<OpenConnection, StoreError> {
        // A clock that was set back must not delay the next attempt for long.
        if now < self.reconnect_at && self.reconnect_at.saturating_duration_since(now) <= RECONNECT_BACKOFF.1 {
            return Err(error::unreachable(&self.server, format!("{}; retry pending", self.last_error)));
        }
        let is_accepted = AtomicBool::new(false);
        let opening = open_with_script(&self.server, &self.script, &is_accepted);
        let opened = match timeout(self.timeouts.connect, opening).await {
            Ok(Err(error @ StoreError::Refused(_))) => {
                let is_sentinel = timeout(self.timeouts.reply, is_sentinel(&self.server)).await == Ok(true);
                Err(if is_sentinel { error::sentinel(&self.server) } else { error })
            }
            Ok(opened) => opened,
            Err(_) => Err(error::timed_out(&self.server, self.timeouts.connect, is_accepted.into_inner())),
        };
        match &opened {
            Ok(_) => self.backoff = RECONNECT_BACKOFF.0,
            Err(error) => {
                self.reconnect_at = now + self.backoff;
                self.backoff = (self.backoff * 2).min(RECONNECT_BACKOFF.1);
                self.last_error = error::reason(&self.server, error);
                if let RedisAddress::Sentinel { sentinels, .. } = &mut self.server.address {
                    sentinels.rotate_left(1);
                }
            }
        }
        opened
    }
}

impl fmt::Debug for RedisConnection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RedisConnection").field("server", &self.server).finish_non_exhaustive()
    }
}

impl OpenConnection {
    /// Opens a connection and authenticates. Sets `is_accepted` once the server has accepted a connection.
    async fn open(server: &RedisEndpoint, is_accepted: &AtomicBool) -> Result<Self, StoreError> {
        let stream = match &server.address {
            RedisAddress::Tcp(address) => open_tcp(server, address, is_accepted).await,
            RedisAddress::Unix(path) => match UnixStream::connect(path).await {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn Stream>),
                Err(error) => Err(error),
            },
            RedisAddress::Sentinel { sentinels, primary } => {
                let address = primary_address(server, sentinels, primary, is_accepted).await?;
                is_accepted.store(false, Ordering::Relaxed);
                open_tcp(server, &address, is_accepted).await
            }
        };
        let stream = stream.map_err(|error| error::from_stream(server, &error))?;
        let opened = Self::authenticate(server, stream).await;
        opened.map_err(|error| error::from_handshake(server, &error))
    }

    async fn authenticate(server: &RedisEndpoint, stream: Box<dyn Stream>) -> RedisResult<Self> {
        // Without CLIENT SETINFO, which an ACL need not allow.
        let mut credentials = RedisConnectionInfo::default().set_db(i64::from(server.database)).set_skip_set_lib_name();
        if let Some(user) = &server.user {
            credentials = credentials.set_username(user);
        }
        if let Some(password) = &server.password {
            credentials = credentials.set_password(password);
        }
        // The timeouts of a round are the only ones.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let receivable = Arc::new(AtomicUsize::new(MAX_REPLY_BYTES));
        let (reader, writer) = tokio::io::split(stream);
        let stream = tokio::io::join(BoundedReader { stream: reader, receivable: Arc::clone(&receivable) }, writer);
        let (commands, driver) = MultiplexedConnection::new_with_config(&credentials, stream, config).await?;
        Ok(Self { commands, receivable, driver: Box::pin(driver), script: String::new() })
    }

    /// Sends commands and returns a reply for each, which may be an error of the server.
    async fn exchange(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        self.receivable.store(MAX_REPLY_BYTES, Ordering::Relaxed);
        let count = commands.len();
        let mut replies = pin!(self.commands.send_packed_commands(commands, 0, count));
        tokio::select! {
            biased;
            replies = &mut replies => replies,
            // The server has closed the connection, perhaps after its replies.
            () = &mut self.driver => replies.await,
        }
    }

    /// Sends one command and returns its reply.
    async fn command(&mut self, server: &RedisEndpoint, words: &[&str]) -> Result<Value, StoreError> {
        let mut command = redis::Cmd::new();
        command.arg(words);
        let mut commands = Pipeline::new();
        commands.add_command(command);
        match self.exchange(&commands).await.map(|replies| replies.into_iter().next()) {
            Ok(Some(Value::ServerError(error))) => Err(error::from_server(server, &error)),
            Ok(reply) => Ok(reply.unwrap_or_default()),
            Err(error) => Err(error::from_handshake(server, &error)),
        }
    }
}

async fn open_with_script(
    server: &RedisEndpoint,
    script: &str,
    is_accepted: &AtomicBool,
) -> Result<OpenConnection, StoreError> {
    let mut connection = OpenConnection::open(server, is_accepted).await?;
    let hash = connection.command(server, &["SCRIPT", "LOAD", script]).await?;
    connection.script =
        redis::from_redis_value(hash).map_err(|_| error::refused(server, "scripts are not supported"))?;
    Ok(connection)
}

async fn open_tcp(server: &RedisEndpoint, address: &HostPort, is_accepted: &AtomicBool) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    is_accepted.store(true, Ordering::Relaxed);
    stream.set_nodelay(true)?;
    let Some(tls) = &server.tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
    Ok(Box::new(tls.connect(name, stream).await?))
}

/// Asks the first Sentinel for the address of the primary.
async fn primary_address(
    server: &RedisEndpoint,
    sentinels: &[HostPort],
    primary: &str,
    is_accepted: &AtomicBool,
) -> Result<HostPort, StoreError> {
    let first = sentinels.first().ok_or_else(|| error::refused(server, "no Sentinel"))?;
    let asked = RedisEndpoint { database: 0, ..server.with_address(RedisAddress::Tcp(first.clone())) };
    let reply = ask(&asked, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", primary], is_accepted).await?;
    match redis::from_redis_value::<Option<(String, u16)>>(reply) {
        Ok(Some((host, port))) => Ok(HostPort { host, port }),
        Ok(None) => Err(error::refused(&asked, format!("this Sentinel knows no primary {primary}"))),
        Err(error) => Err(error::refused(&asked, error)),
    }
}

/// Returns true if the server is a Sentinel, although it was not configured as one.
async fn is_sentinel(server: &RedisEndpoint) -> bool {
    if !matches!(server.address, RedisAddress::Tcp(_)) {
        return false;
    }
    let asked = RedisEndpoint { database: 0, ..server.clone() };
    let role = ask(&asked, &["ROLE"], &AtomicBool::default()).await;
    let is_sentinel = |word: Value| redis::from_redis_value::<String>(word).is_ok_and(|word| word == "sentinel");
    match role {
        Ok(Value::Array(words)) => words.into_iter().next().is_some_and(is_sentinel),
        _ => false,
    }
}

/// Sends one command and returns its reply. Sends user and password only to a server that requires them.
async fn ask(server: &RedisEndpoint, command: &[&str], is_accepted: &AtomicBool) -> Result<Value, StoreError> {
    let without_password = RedisEndpoint { user: None, password: None, ..server.clone() };
    let ask = async |server: &RedisEndpoint| {
        // Boxed, because this is called while a connection is opened.
        Box::pin(OpenConnection::open(server, is_accepted)).await?.command(server, command).await
    };
    match ask(&without_password).await {
        Err(StoreError::Refused(_)) if server.password.is_some() => ask(server).await,
        reply => reply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const START: Timestamp = Timestamp::from_seconds(1000);

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
    }

    fn connection(port: u16, timeouts: Timeouts) -> RedisConnection {
        RedisConnection::new(RedisEndpoint::local(port), "return 1", timeouts)
    }

    #[test]
    fn pauses_between_attempts_double_up_to_a_second() {
        let mut connection = connection(1, Timeouts::default());
        let mut is_attempted = |now| {
            let error = block_on(connection.run(&[], now)).expect_err("no server has this port").to_string();
            assert!(error.contains("refused"), "{error}");
            assert_eq!(error.matches("cannot reach redis at").count(), 1, "{error}");
            !error.contains("; retry pending")
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
            let minute = Duration::from_secs(60);
            let mut connection = connection(port, Timeouts { connect: minute, reply: minute });
            // A server that answers one handshake and one call for each connection.
            let server = tokio::spawn(async move {
                let mut open = Vec::new();
                for _ in 0..2 {
                    let mut stream = listener.accept().await.expect("a connection").0;
                    for answer in ["+hash\r\n", ":7\r\n"] {
                        read_command(&mut stream).await;
                        stream.write_all(answer.as_bytes()).await.expect("the client reads");
                    }
                    open.push(stream);
                }
                open
            });
            for _ in 0..2 {
                let replies = connection.run(&[&["key".into()]], START).await.expect("a reply");
                assert_eq!(replies, [Value::Int(7)]);
                connection.disconnect();
            }
            assert_eq!(server.await.expect("no panic").len(), 2);
        });
    }

    #[test]
    fn replies_without_an_end_are_an_error() {
        block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let port = listener.local_addr().expect("an address").port();
            let server = tokio::spawn(async move {
                let mut stream = listener.accept().await.expect("a connection").0;
                let announced = format!("${}\r\n", 1_u64 << 40);
                let part = [b'a'; 64 * 1024];
                let mut sent = stream.write_all(announced.as_bytes()).await.map_or(MAX_REPLY_BYTES, |()| 0);
                while sent < 2 * MAX_REPLY_BYTES && stream.write_all(&part).await.is_ok() {
                    sent += part.len();
                }
                sent
            });
            let minute = Duration::from_secs(60);
            let mut connection = connection(port, Timeouts { connect: minute, reply: minute });
            let error = connection.run(&[&["key".into()]], START).await.expect_err("the reply has no end");
            assert!(error.to_string().contains("cannot reach"), "{error}");
            assert!(server.await.expect("no panic") < 2 * MAX_REPLY_BYTES, "the client has left");
        });
    }

    /// Returns the error for a server that responds to each command with what `answer` returns for it.
    fn error_of(endpoint: impl FnOnce(u16) -> RedisEndpoint, answer: fn(&str) -> &'static str) -> String {
        block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let port = listener.local_addr().expect("an address").port();
            let minute = Duration::from_secs(60);
            let server = tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    tokio::spawn(async move {
                        let mut received = vec![0; 64 * 1024];
                        while let Ok(count @ 1..) = stream.read(&mut received).await {
                            let command = String::from_utf8_lossy(&received[..count]).into_owned();
                            if stream.write_all(answer(&command).as_bytes()).await.is_err() {
                                return;
                            }
                        }
                    });
                }
            });
            let timeouts = Timeouts { connect: minute, reply: minute };
            let mut connection = RedisConnection::new(endpoint(port), "return 1", timeouts);
            let error = connection.run(&[], START).await.expect_err("the server does not lease");
            server.abort();
            error.to_string()
        })
    }

    #[test]
    fn sentinel_in_place_of_a_server_is_named_with_its_scheme() {
        let sentinel = |command: &str| match command {
            command if command.contains("ROLE") => "*2\r\n$8\r\nsentinel\r\n*0\r\n",
            command if command.contains("AUTH") => "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
            _ => "-ERR unknown command 'SCRIPT', with args beginning with: 'LOAD'\r\n",
        };
        let with_password = |port| RedisEndpoint { password: Some("hunter2".into()), ..RedisEndpoint::local(port) };
        for error in [error_of(RedisEndpoint::local, sentinel), error_of(with_password, sentinel)] {
            assert!(error.contains("is a Sentinel; write redis+sentinel://"), "{error}");
            assert!(!error.contains("check user and password"), "{error}");
        }
        let primary = |command: &str| match command {
            command if command.contains("ROLE") => "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n",
            _ => "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        };
        let error = error_of(with_password, primary);
        assert!(error.contains("check user and password"), "{error}");
    }

    #[test]
    fn server_without_tls_is_named_as_such() {
        let with_tls = |port| RedisEndpoint { tls: Some(error::tls_connector()), ..RedisEndpoint::local(port) };
        let error = error_of(with_tls, |_| "-ERR unknown command\r\n");
        assert!(error.ends_with("may not speak TLS: if it does not, write redis:// in place of rediss://"), "{error}");
    }

    #[test]
    fn silent_server_has_accepted_the_connection() {
        block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let port = listener.local_addr().expect("an address").port();
            let server = RedisEndpoint::local(port);
            let is_accepted = AtomicBool::default();
            tokio::select! {
                _ = open_with_script(&server, "return 1", &is_accepted) => panic!("the server says nothing"),
                () = async {
                    let mut stream = listener.accept().await.expect("a connection").0;
                    read_command(&mut stream).await;
                } => {}
            }
            assert!(is_accepted.into_inner());
        });
    }

    /// Reads a command, which is an array of strings.
    async fn read_command(stream: &mut TcpStream) {
        let mut received = Vec::new();
        while redis::parse_redis_value(&received).is_err() {
            assert_ne!(stream.read_buf(&mut received).await.expect("the client writes"), 0, "closed");
        }
    }
}

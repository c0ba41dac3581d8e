//! Listening socket of the admin API: TCP, or a Unix socket for programs of the gateway's user and group.

use axum::extract::Extension;
use std::fmt;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use tidegate_config::admin_address::AdminAddress;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A bound socket that does not serve yet.
pub enum BoundListener {
    /// A TCP socket.
    Tcp(std::net::TcpListener),
    /// A Unix socket, and its file.
    Unix(unix::UnixListener, SocketFile),
}

/// A listening socket.
pub enum Listener {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A Unix socket, and its file.
    Unix(UnixListener, SocketFile),
}

/// An accepted connection.
pub(super) enum Accepted {
    Tcp(TcpStream, Peer),
    Unix(UnixStream, Peer),
}

/// A client, as the audit log shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    /// Address and port of a TCP connection.
    Address(SocketAddr),
    /// User of a program that connected to the Unix socket.
    User(u32),
}

/// The client of a request; `None` in tests without a listener.
pub(super) type OptionalPeer = Option<Extension<Peer>>;

/// File of a Unix socket. Removed on drop.
pub struct SocketFile(PathBuf);

impl BoundListener {
    /// Binds a socket. Replaces the file of a Unix socket without a listener. Returns an error if the address is in
    /// use, or if there is another file.
    pub fn bind(address: &AdminAddress) -> io::Result<Self> {
        match address {
            AdminAddress::Tcp(address) => {
                let listener = std::net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(listener))
            }
            AdminAddress::Unix(path) => {
                let (listener, file) = bind_unix(path)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Unix(listener, file))
            }
        }
    }

    /// Returns the address, with the port that the system selected.
    pub fn address(&self) -> io::Result<AdminAddress> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(AdminAddress::Tcp),
            Self::Unix(_, file) => Ok(AdminAddress::Unix(file.0.clone())),
        }
    }

    /// Prepares the socket for the runtime of the current thread.
    pub fn into_listener(self) -> io::Result<Listener> {
        match self {
            Self::Tcp(listener) => TcpListener::from_std(listener).map(Listener::Tcp),
            Self::Unix(listener, file) => Ok(Listener::Unix(UnixListener::from_std(listener)?, file)),
        }
    }
}

impl Listener {
    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok(Accepted::Tcp(stream, Peer::Address(address)))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let peer = Peer::User(stream.peer_cred()?.uid());
                Ok(Accepted::Unix(stream, peer))
            }
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(out, "{address}"),
            Self::User(user) => write!(out, "user {user}"),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Binds a Unix socket that only the user and the group of the gateway may connect to. It appears at `path` once its mode
/// is set.
fn bind_unix(path: &Path) -> io::Result<(unix::UnixListener, SocketFile)> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "a file that is no socket is there"));
        }
        Ok(_) if unix::UnixStream::connect(path).is_ok() => return Err(ErrorKind::AddrInUse.into()),
        _ => {}
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    if let Err(error) = fs::remove_file(&draft)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error);
    }
    let listener = unix::UnixListener::bind(&draft)?;
    let mut file = SocketFile(draft);
    fs::set_permissions(&file.0, Permissions::from_mode(0o660))?;
    fs::rename(&file.0, path)?;
    path.clone_into(&mut file.0);
    Ok((listener, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_socket_replaces_only_one_without_a_listener() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("admin.sock");
        let address = AdminAddress::Unix(path.clone());
        let bind = || BoundListener::bind(&address);
        let error_kind = || bind().err().expect("refused").kind();

        let first = bind().expect("a free path");
        assert_eq!(first.address().expect("an address"), address);
        assert_eq!(fs::metadata(&path).expect("a socket").permissions().mode() & 0o777, 0o660);
        assert_eq!(error_kind(), ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists(), "removed with the listener");

        drop(unix::UnixListener::bind(&path).expect("a free path"));
        assert!(path.exists(), "left by a gateway that was killed");
        drop(bind().expect("no listener"));
        fs::write(&path, "notes").expect("writable");
        assert_eq!(error_kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).expect("kept"), "notes");
    }
}

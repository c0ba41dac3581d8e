//! Address of the admin listener.

use super::authority::socket_address;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Address of the admin listener: an address with a port, or the path of a Unix socket, written `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// A TCP socket.
    Tcp(SocketAddr),
    /// A Unix socket at this absolute path.
    Unix(PathBuf),
}

/// Text that is no address of an admin listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidAdminAddress;

impl AdminAddress {
    /// Returns the TCP address, if it is one.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Returns true if only programs on this machine can connect.
    pub fn is_local(&self) -> bool {
        self.tcp().is_none_or(|address| address.ip().is_loopback())
    }
}

impl FromStr for AdminAddress {
    type Err = InvalidAdminAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAdminAddress> {
        match text.strip_prefix("unix:").map(Path::new) {
            Some(path) if path.is_absolute() && path.as_os_str().as_bytes().len() <= MAX_SOCKET_PATH => {
                Ok(Self::Unix(path.to_owned()))
            }
            Some(_) => Err(InvalidAdminAddress),
            None => socket_address(text).map(Self::Tcp).ok_or(InvalidAdminAddress),
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

/// Maximum length of the path of a Unix socket on Linux, in bytes.
const MAX_SOCKET_PATH: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_a_socket_of_either_kind() {
        for text in ["127.0.0.1:9090", "[::1]:9090", "0.0.0.0:1", "unix:/run/tidegate/admin.sock"] {
            assert_eq!(text.parse::<AdminAddress>().map(|address| address.to_string()).as_deref(), Ok(text));
        }
        let too_long = format!("unix:/{}", "a".repeat(107));
        for text in [
            "",
            "9090",
            "127.0.0.1",
            "unix:",
            "unix:run/admin.sock",
            "localhost:9090",
            "127.0.0.1:09090",
            "[::1]:+1",
            &too_long,
        ] {
            assert_eq!(text.parse::<AdminAddress>(), Err(InvalidAdminAddress), "{text}");
        }
        let is_local = |text: &str| text.parse::<AdminAddress>().expect("an address").is_local();
        assert!(is_local("127.0.0.1:1") && is_local("unix:/a") && !is_local("0.0.0.0:1"));
    }
}

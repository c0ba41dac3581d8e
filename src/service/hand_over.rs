//! Hand-over to a new process of the same gateway, for an upgrade of the program: listening sockets and keys of session
//! tickets over a socket pair, then the ledger, once no new request can be charged here.
//!
//! The new process says `ready` when its configuration is valid, `serving` when it serves. In between, the old one says
//! `released`. Then it says which URLs are written to by the requests that it completes, and what they cost beyond their
//! reservations, because the new one has cache and ledger.

use crate::gateway::{ListenSockets, WrittenUrl};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_engine::ledger::LateKeyCharge;
use tidegate_policy::Units;
use tidegate_tls::{TicketKey, TicketKeySet};

/// Environment variable that is set if standard input is the channel of a predecessor.
const VARIABLE: &str = "TIDEGATE_PREDECESSOR";
/// Most sockets of one message.
const SOCKETS_PER_MESSAGE: usize = 64;
/// Most bytes of one message.
const MESSAGE_SIZE: usize = 64 * 1024;
/// Time in which a new process must be ready, and then serve.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const SERVING_TIMEOUT: Duration = Duration::from_secs(30);

/// What a process takes over from its predecessor, or from itself if its successor failed.
#[derive(Default)]
pub struct Inheritance {
    /// Listening sockets.
    pub sockets: ListenSockets,
    /// Keys of session tickets.
    pub tickets: Option<TicketKeySet>,
    /// Connections to the origin that were open.
    pub origin_connections: usize,
    /// Settings that served before; `None` are those of the source.
    pub settings: Option<Box<Settings>>,
}

/// The process that hands over to this one.
pub struct Predecessor(Channel);

/// The process to which this one hands over.
pub(super) struct Successor {
    channel: Channel,
    process: Child,
}

struct Channel(OwnedFd);

#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Sockets { addresses: Vec<String> },
    OriginConnections { count: usize },
    Tickets { current: Ticket, previous: Option<Ticket>, current_since: u64 },
    End,
    Ready,
    Released,
    Serving,
    Written { url: [u8; 16] },
    Charged { quota: String, window: u64, milli: u64 },
    KeyCharged { quota: String, has_budgets: bool, window: u64, key: u64, released_milli: u64, charged_milli: u64 },
}

/// What the old process says while it completes its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LateChange {
    /// A URL was written to.
    Written(WrittenUrl),
    /// A request has cost more than its reservation.
    Charged { quota: String, window: u64, units: Units },
    /// A request has cost more or less than was reserved for its key.
    KeyCharged(LateKeyCharge),
}

#[derive(Debug, Serialize, Deserialize)]
struct Ticket {
    name: [u8; 16],
    secret: [u8; 32],
}

impl Inheritance {
    /// Receives what a predecessor hands over to this process; nothing if there is none. The predecessor still has the
    /// ledger.
    pub fn receive() -> io::Result<(Self, Option<Predecessor>)> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok((Self::default(), None));
        }
        let channel = Channel(io::stdin().as_fd().try_clone_to_owned()?);
        let mut inheritance = Self::default();
        loop {
            match channel.receive()? {
                (Message::Sockets { addresses }, sockets) => {
                    addresses
                        .into_iter()
                        .zip(sockets)
                        .for_each(|(address, socket)| inheritance.sockets.add(address, socket));
                }
                (Message::OriginConnections { count }, _) => inheritance.origin_connections = count,
                (Message::Tickets { current, previous, current_since }, _) => {
                    let key = |Ticket { name, secret }| TicketKey { name, secret };
                    let (current, previous) = (key(current), previous.map(key));
                    inheritance.tickets = Some(TicketKeySet { current, previous, current_since });
                }
                (Message::End, _) => break,
                _ => return Err(unexpected()),
            }
        }
        Ok((inheritance, Some(Predecessor(channel))))
    }
}

impl Predecessor {
    /// Waits until the predecessor has released the ledger, after this process is ready to take it.
    pub(super) fn take_ledger(&self) -> io::Result<()> {
        self.0.send(&Message::Ready, &[])?;
        self.0.expect(|message| matches!(message, Message::Released))
    }

    /// Tells the predecessor that this process serves. The predecessor may have ended.
    pub(super) fn tell_serving(&self) {
        let _ = self.0.send(&Message::Serving, &[]);
    }

    /// Waits for the next change by a request of the predecessor; `None` once it has ended.
    pub(super) fn next_change(&self) -> Option<LateChange> {
        match self.0.receive() {
            Ok((Message::Written { url }, _)) => Some(LateChange::Written(WrittenUrl(url))),
            Ok((Message::Charged { quota, window, milli }, _)) => {
                Some(LateChange::Charged { quota, window, units: Units::from_milli(milli) })
            }
            Ok((Message::KeyCharged { quota, has_budgets, window, key, released_milli, charged_milli }, _)) => {
                let [released, charged] = [released_milli, charged_milli].map(Units::from_milli);
                Some(LateChange::KeyCharged(LateKeyCharge { quota, has_budgets, window, key, released, charged }))
            }
            _ => None,
        }
    }
}

impl Successor {
    /// Starts `command` as a successor, hands the sockets and keys to it, and waits until it is ready.
    pub(super) fn start(
        mut command: Command,
        sockets: &ListenSockets,
        tickets: &TicketKeySet,
        origin_connections: usize,
    ) -> io::Result<Self> {
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let process = command
            .env(VARIABLE, "1")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDNAMES")
            // The watchdog of systemd is for the main process, whichever that is.
            .env_remove("WATCHDOG_PID")
            .stdin(Stdio::from(other))
            .spawn()?;
        // Its own end of the channel is the only one from here on, so that its exit is noticed.
        drop(command);
        let mut successor = Self { channel: Channel(own), process };
        match successor.hand_over(sockets, tickets, origin_connections) {
            Ok(()) => Ok(successor),
            Err(error) => Err(successor.failure(&error)),
        }
    }

    fn hand_over(&self, sockets: &ListenSockets, tickets: &TicketKeySet, origin_connections: usize) -> io::Result<()> {
        self.channel.set_timeout(READY_TIMEOUT)?;
        let sockets: Vec<_> = sockets.iter().collect();
        for sockets in sockets.chunks(SOCKETS_PER_MESSAGE) {
            let addresses = sockets.iter().map(|(address, _)| (*address).to_owned()).collect();
            let sockets: Vec<_> = sockets.iter().map(|(_, socket)| *socket).collect();
            self.channel.send(&Message::Sockets { addresses }, &sockets)?;
        }
        self.channel.send(&Message::OriginConnections { count: origin_connections }, &[])?;
        let ticket = |key: &TicketKey| Ticket { name: key.name, secret: key.secret };
        let (current, previous) = (ticket(&tickets.current), tickets.previous.as_ref().map(ticket));
        self.channel.send(&Message::Tickets { current, previous, current_since: tickets.current_since }, &[])?;
        self.channel.send(&Message::End, &[])?;
        self.channel.expect(|message| matches!(message, Message::Ready))
    }

    /// Lets the successor take the ledger, and waits until it serves.
    pub(super) fn release_ledger(&mut self) -> io::Result<()> {
        let released = || {
            self.channel.set_timeout(SERVING_TIMEOUT)?;
            self.channel.send(&Message::Released, &[])?;
            self.channel.expect(|message| matches!(message, Message::Serving))
        };
        released().map_err(|error| self.failure(&error))
    }

    /// Tells the successor a change by a request of this process. Fails if it has ended.
    pub(super) fn tell(&self, change: LateChange) -> io::Result<()> {
        let message = match change {
            LateChange::Written(WrittenUrl(url)) => Message::Written { url },
            LateChange::Charged { quota, window, units } => Message::Charged { quota, window, milli: units.milli() },
            LateChange::KeyCharged(LateKeyCharge { quota, has_budgets, window, key, released, charged }) => {
                let [released_milli, charged_milli] = [released, charged].map(Units::milli);
                Message::KeyCharged { quota, has_budgets, window, key, released_milli, charged_milli }
            }
        };
        self.channel.send(&message, &[])
    }

    pub(super) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Ends a process that failed with `error`. Returns the reason.
    fn failure(&mut self, error: &io::Error) -> io::Error {
        // The channel closes while a process ends, when a signal no longer changes its status.
        let _ = self.process.kill();
        let status = self.process.wait();
        match (error.kind(), status) {
            (io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe, Ok(status)) => {
                io::Error::other(format!("the new process ended: {status}"))
            }
            _ => io::Error::other(format!("the new process did not start: {error}")),
        }
    }
}

impl Channel {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let socket = socket2::SockRef::from(&self.0);
        socket.set_read_timeout(Some(timeout))?;
        socket.set_write_timeout(Some(timeout))
    }

    fn send(&self, message: &Message, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_PER_MESSAGE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(sockets)) {
            return Err(io::Error::other("too many sockets in one message"));
        }
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn receive(&self) -> io::Result<(Message, Vec<OwnedFd>)> {
        let mut bytes = vec![0; MESSAGE_SIZE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_PER_MESSAGE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let rights = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        let sockets = rights.flatten().collect();
        Ok((serde_json::from_slice(&bytes[..received.bytes])?, sockets))
    }

    fn expect(&self, is_expected: impl FnOnce(&Message) -> bool) -> io::Result<()> {
        let (message, _) = self.receive()?;
        if is_expected(&message) { Ok(()) } else { Err(unexpected()) }
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "another program, or a version without a common protocol")
}

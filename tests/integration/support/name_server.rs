//! A scripted DNS server on loopback, over UDP and TCP.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses a part")]

use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{PTR, SOA, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reply to a query.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Records, with TTL in seconds.
    Records(Vec<RData>, u32),
    /// NXDOMAIN, with negative TTL in seconds.
    NoSuchName(u32),
    /// NODATA: the name exists without records of this type.
    NothingOfThatType,
    /// Response code without records.
    Failure(ResponseCode),
    /// Truncated over UDP, so that the client retries over TCP; these records over TCP.
    OverTcpOnly(Vec<RData>),
    /// Records of another name than the one in the query.
    OfAnotherName(Vec<RData>),
    /// No reply.
    Silence,
}

/// Replies by name and type, and the queries received.
#[derive(Clone)]
pub struct NameServer {
    address: SocketAddr,
    replies: Arc<Mutex<HashMap<(String, RecordType), Reply>>>,
    queries: Arc<Mutex<Vec<(String, RecordType)>>>,
    /// Directory with a file for each name with texts, one a line.
    texts: Arc<Mutex<Option<PathBuf>>>,
}

impl NameServer {
    /// Starts a server without names.
    pub fn start() -> Self {
        let (udp, tcp) = bind_sockets();
        let address = udp.local_addr().expect("socket is bound");
        let server = Self { address, replies: Arc::default(), queries: Arc::default(), texts: Arc::default() };
        // The threads end with the process. Tests are short, and no other process has the port.
        let udp_server = server.clone();
        std::thread::spawn(move || udp_server.serve_udp(&udp));
        let tcp_server = server.clone();
        std::thread::spawn(move || tcp_server.serve_tcp(&tcp));
        server
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the reply to queries for records of `kind` at `name`.
    pub fn set_reply(&self, name: &str, kind: RecordType, reply: Reply) {
        self.replies.lock().insert((name.to_ascii_lowercase(), kind), reply);
    }

    /// Sets the PTR records of `address`.
    pub fn set_ptr(&self, address: &str, names: &[&str]) {
        self.set_reverse_reply(address, Reply::Records(names.iter().map(|name| ptr(name)).collect(), 3600));
    }

    /// Sets the reply to PTR queries for `address`.
    pub fn set_reverse_reply(&self, address: &str, reply: Reply) {
        self.set_reply(&reverse_name(address), RecordType::PTR, reply);
    }

    /// Sets the addresses of `name`.
    pub fn set_addresses(&self, name: &str, addresses: &[&str]) {
        let parse = |address: &&str| address.parse::<IpAddr>().expect("an address");
        let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = addresses.iter().map(parse).partition(IpAddr::is_ipv4);
        for (kind, ips) in [(RecordType::A, v4), (RecordType::AAAA, v6)] {
            let records: Vec<RData> = ips.into_iter().map(RData::from).collect();
            let reply = if records.is_empty() { Reply::NothingOfThatType } else { Reply::Records(records, 3600) };
            self.set_reply(&format!("{name}."), kind, reply);
        }
    }

    /// Reads the texts of names from files of `directory`, at each query.
    pub fn serve_texts_of(&self, directory: &Path) {
        *self.texts.lock() = Some(directory.to_owned());
    }

    /// Returns the texts of a name, if it has any.
    fn texts(&self, name: &str) -> Option<Reply> {
        let file = self.texts.lock().as_ref()?.join(name.trim_end_matches('.'));
        let lines = fs::read_to_string(file).ok()?;
        let texts = lines.lines().map(|text| RData::TXT(TXT::new(vec![text.to_owned()])));
        Some(Reply::Records(texts.collect(), 0))
    }

    /// Returns the number of PTR queries for `address`.
    pub fn ptr_query_count(&self, address: &str) -> usize {
        let name = reverse_name(address);
        self.queries.lock().iter().filter(|(queried, _)| *queried == name).count()
    }

    /// Returns the number of queries.
    pub fn query_count(&self) -> usize {
        self.queries.lock().len()
    }

    fn serve_udp(&self, socket: &UdpSocket) {
        let mut datagram = [0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut datagram) {
            if let Some(response) = self.handle_query(&datagram[..length], false) {
                let _ = socket.send_to(&response, peer);
            }
        }
    }

    fn serve_tcp(&self, listener: &TcpListener) {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let server = self.clone();
            std::thread::spawn(move || {
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
                    let Some(response) =
                        stream.read_exact(&mut question).ok().and_then(|()| server.handle_query(&question, true))
                    else {
                        return;
                    };
                    let length = u16::try_from(response.len()).expect("reply length fits u16").to_be_bytes();
                    if stream.write_all(&[&length[..], &response].concat()).is_err() {
                        return;
                    }
                }
            });
        }
    }

    fn handle_query(&self, question: &[u8], over_tcp: bool) -> Option<Vec<u8>> {
        let question = Message::from_vec(question).ok()?;
        let query = question.queries.first()?.clone();
        let (name, kind) = (query.name().to_ascii().to_ascii_lowercase(), query.query_type());
        self.queries.lock().push((name.clone(), kind));
        let texts = if kind == RecordType::TXT { self.texts(&name) } else { None };
        let reply = texts.or_else(|| self.replies.lock().get(&(name, kind)).cloned());
        let reply = reply.unwrap_or(Reply::NoSuchName(1800));
        let mut response = Message::response(question.metadata.id, OpCode::Query);
        response.metadata.recursion_available = true;
        response.add_query(query.clone());
        let record = |data: &RData, ttl| Record::from_rdata(query.name().clone(), ttl, data.clone());
        match reply {
            Reply::Records(records, ttl) => {
                response.add_answers(records.iter().map(|data| record(data, ttl)));
            }
            Reply::NoSuchName(ttl) => {
                response.metadata.response_code = ResponseCode::NXDomain;
                response.add_authority(soa_record(ttl));
            }
            Reply::NothingOfThatType => {
                response.add_authority(soa_record(1800));
            }
            Reply::Failure(code) => response.metadata.response_code = code,
            Reply::OverTcpOnly(records) if over_tcp => {
                response.add_answers(records.iter().map(|data| record(data, 3600)));
            }
            Reply::OverTcpOnly(_) => response.metadata.truncation = true,
            Reply::OfAnotherName(records) => {
                let another = Name::from_ascii("another.test.").expect("valid name");
                response
                    .add_answers(records.iter().map(|data| Record::from_rdata(another.clone(), 3600, data.clone())));
            }
            Reply::Silence => return None,
        }
        response.to_vec().ok()
    }
}

pub fn ptr(name: &str) -> RData {
    RData::PTR(PTR(Name::from_ascii(format!("{name}.")).expect("valid name")))
}

fn reverse_name(address: &str) -> String {
    Name::from(address.parse::<IpAddr>().expect("an address")).to_ascii().to_ascii_lowercase()
}

fn soa_record(ttl: u32) -> Record {
    let name = Name::from_ascii("authority.test.").expect("valid name");
    let soa = SOA::new(name.clone(), name, 1, 7200, 900, 86400, ttl);
    Record::from_rdata(Name::root(), ttl, RData::SOA(soa))
}

/// Binds one port for both protocols.
fn bind_sockets() -> (UdpSocket, TcpListener) {
    let pair = || {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let tcp = TcpListener::bind(udp.local_addr().expect("socket is bound")).ok()?;
        Some((udp, tcp))
    };
    (0..100).find_map(|_| pair()).expect("port that is free for UDP and TCP")
}

//! A name server on loopback that answers as a test tells it to, over UDP and TCP.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses a part of it")]

use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{PTR, SOA};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;

/// What it says to a question.
#[derive(Clone, Debug)]
pub enum Reply {
    /// These records, that last so many seconds.
    Records(Vec<RData>, u32),
    /// There is nothing of that name, which lasts so many seconds.
    NoSuchName(u32),
    /// There is that name, but nothing of that type.
    NothingOfThatType,
    /// An answer without records.
    Failure(ResponseCode),
    /// Over UDP: too long, ask over TCP. Over TCP: these records.
    OverTcpOnly(Vec<RData>),
    /// These records, of a name that nobody asked for.
    OfAnotherName(Vec<RData>),
    /// Nothing at all.
    Silence,
}

/// The records of a world, by name and type, and what was asked of them.
#[derive(Clone)]
pub struct NameServer {
    address: SocketAddr,
    world: Arc<Mutex<HashMap<(String, RecordType), Reply>>>,
    asked: Arc<Mutex<Vec<(String, RecordType)>>>,
}

impl NameServer {
    /// A server that knows no name.
    pub fn start() -> Self {
        let (udp, tcp) = sockets();
        let address = udp.local_addr().expect("it is bound");
        let server = Self { address, world: Arc::default(), asked: Arc::default() };
        // The threads end with the process: tests are short, and nothing else knows the port.
        let over_udp = server.clone();
        std::thread::spawn(move || over_udp.serve_udp(&udp));
        let over_tcp = server.clone();
        std::thread::spawn(move || over_tcp.serve_tcp(&tcp));
        server
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on this is said to whoever asks for records of `kind` at `name`.
    pub fn say(&self, name: &str, kind: RecordType, reply: Reply) {
        self.world.lock().insert((name.to_ascii_lowercase(), kind), reply);
    }

    /// The address has these names ...
    pub fn names(&self, address: &str, names: &[&str]) {
        self.reverse(address, Reply::Records(names.iter().map(|name| ptr(name)).collect(), 3600));
    }

    /// ... or this is said to whoever asks for them ...
    pub fn reverse(&self, address: &str, reply: Reply) {
        self.say(&reverse_name(address), RecordType::PTR, reply);
    }

    /// ... and the name has these addresses.
    pub fn addresses(&self, name: &str, addresses: &[&str]) {
        let parse = |address: &&str| address.parse::<IpAddr>().expect("an address");
        let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = addresses.iter().map(parse).partition(IpAddr::is_ipv4);
        for (kind, of_kind) in [(RecordType::A, v4), (RecordType::AAAA, v6)] {
            let records: Vec<RData> = of_kind.into_iter().map(RData::from).collect();
            let reply = if records.is_empty() { Reply::NothingOfThatType } else { Reply::Records(records, 3600) };
            self.say(&format!("{name}."), kind, reply);
        }
    }

    /// How often the names of an address were asked for.
    pub fn asked_about(&self, address: &str) -> usize {
        let name = reverse_name(address);
        self.asked.lock().iter().filter(|(asked, _)| *asked == name).count()
    }

    /// How often anything was asked.
    pub fn questions(&self) -> usize {
        self.asked.lock().len()
    }

    fn serve_udp(&self, socket: &UdpSocket) {
        let mut datagram = [0; 4096];
        while let Ok((length, whose)) = socket.recv_from(&mut datagram) {
            if let Some(answer) = self.answer(&datagram[..length], false) {
                let _ = socket.send_to(&answer, whose);
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
                    let Some(answer) =
                        stream.read_exact(&mut question).ok().and_then(|()| server.answer(&question, true))
                    else {
                        return;
                    };
                    let length = u16::try_from(answer.len()).expect("a short answer").to_be_bytes();
                    if stream.write_all(&[&length[..], &answer].concat()).is_err() {
                        return;
                    }
                }
            });
        }
    }

    fn answer(&self, question: &[u8], over_tcp: bool) -> Option<Vec<u8>> {
        let question = Message::from_vec(question).ok()?;
        let query = question.queries.first()?.clone();
        let (name, kind) = (query.name().to_ascii().to_ascii_lowercase(), query.query_type());
        self.asked.lock().push((name.clone(), kind));
        let reply = self.world.lock().get(&(name, kind)).cloned().unwrap_or(Reply::NoSuchName(1800));
        let mut answer = Message::response(question.metadata.id, OpCode::Query);
        answer.metadata.recursion_available = true;
        answer.add_query(query.clone());
        let record = |data: &RData, ttl| Record::from_rdata(query.name().clone(), ttl, data.clone());
        match reply {
            Reply::Records(records, ttl) => {
                answer.add_answers(records.iter().map(|data| record(data, ttl)));
            }
            Reply::NoSuchName(ttl) => {
                answer.metadata.response_code = ResponseCode::NXDomain;
                answer.add_authority(authority(ttl));
            }
            Reply::NothingOfThatType => {
                answer.add_authority(authority(1800));
            }
            Reply::Failure(code) => answer.metadata.response_code = code,
            Reply::OverTcpOnly(records) if over_tcp => {
                answer.add_answers(records.iter().map(|data| record(data, 3600)));
            }
            Reply::OverTcpOnly(_) => answer.metadata.truncation = true,
            Reply::OfAnotherName(records) => {
                let another = Name::from_ascii("another.test.").expect("a name");
                answer.add_answers(records.iter().map(|data| Record::from_rdata(another.clone(), 3600, data.clone())));
            }
            Reply::Silence => return None,
        }
        answer.to_vec().ok()
    }
}

pub fn ptr(name: &str) -> RData {
    RData::PTR(PTR(Name::from_ascii(format!("{name}.")).expect("a name")))
}

fn reverse_name(address: &str) -> String {
    Name::from(address.parse::<IpAddr>().expect("an address")).to_ascii().to_ascii_lowercase()
}

fn authority(ttl: u32) -> Record {
    let name = Name::from_ascii("authority.test.").expect("a name");
    let soa = SOA::new(name.clone(), name, 1, 7200, 900, 86400, ttl);
    Record::from_rdata(Name::root(), ttl, RData::SOA(soa))
}

/// One port for both.
fn sockets() -> (UdpSocket, TcpListener) {
    let pair = || {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let tcp = TcpListener::bind(udp.local_addr().expect("it is bound")).ok()?;
        Some((udp, tcp))
    };
    (0..100).find_map(|_| pair()).expect("a port that is free for both")
}

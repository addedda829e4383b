//! A peer of the nodes that says what a test likes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use hmac::{Hmac, Mac as _};
use prost::Message;
use sha2::Sha256;
use walrus_broker::proto::peer::{ErrorAnswer, Hello, Proof};

use crate::harness::Cluster;

pub(crate) const HELLO: u8 = 1;
pub(crate) const ANSWER: u8 = 2;
pub(crate) const ERROR: u8 = 3;
pub(crate) const REPLICA: u8 = 10;
pub(crate) const CHALLENGE: u8 = 12;
pub(crate) const PROOF: u8 = 13;

/// A connection whose greetings were exchanged.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
}

impl Peer {
    /// Connects to a node and greets as a node of the cluster should.
    pub(crate) fn greet(cluster: &Cluster, node: u32) -> Self {
        Self::greet_as(cluster, node, &hello(cluster), b"").unwrap()
    }

    /// Connects to a node and greets with any words and any secret; the words of the refusal if it is refused.
    pub(crate) fn greet_as(
        cluster: &Cluster,
        node: u32,
        hello: &Hello,
        secret: &[u8],
    ) -> Result<Self, String> {
        let mut stream = connect_to(cluster, node);
        let hello = hello.encode_to_vec();
        stream.write_all(&frame(HELLO, 0, &hello)).unwrap();
        let challenge = expect(&mut stream, CHALLENGE)?;
        let mac = proof(secret, "dialler", &[&hello, &challenge]).into();
        stream.write_all(&frame(PROOF, 0, &Proof { mac }.encode_to_vec())).unwrap();
        let answer = expect(&mut stream, ANSWER)?;
        let proved = Proof::decode(expect(&mut stream, PROOF)?.as_slice()).unwrap().mac;
        assert_eq!(proved, proof(secret, "acceptor", &[&hello, &challenge, &answer]));
        Ok(Self { stream })
    }

    /// Sends a message, and answers the words of the refusal; `Err` has the answer if it was taken.
    pub(crate) fn refusal_of(&mut self, kind: u8, message: &impl Message) -> Result<String, Vec<u8>> {
        self.stream.write_all(&frame(kind, 7, &message.encode_to_vec())).unwrap();
        let (answered, _, payload) = read_frame(&mut self.stream);
        if answered == ERROR { Ok(words(&payload)) } else { Err(payload) }
    }
}

pub(crate) fn connect_to(cluster: &Cluster, node: u32) -> TcpStream {
    let stream = TcpStream::connect(&cluster.plane(node).addresses()["peer"]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// A greeting that is right in a cluster without a secret.
pub(crate) fn hello(cluster: &Cluster) -> Hello {
    Hello {
        wire_version: 3,
        cluster_id: cluster.cluster_id().as_bytes().to_vec().into(),
        node: 9,
        disk: vec![0; 16].into(),
        process: vec![0; 16].into(),
        oldest_wire_version: 0,
        is_replica_lane: true,
        nonce: vec![7; 32].into(),
    }
}

pub(crate) fn frame(kind: u8, id: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len() + 9).unwrap().to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.extend(id.to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// Reads a frame's kind, id and payload.
pub(crate) fn read_frame(stream: &mut TcpStream) -> (u8, u64, Vec<u8>) {
    let mut head = [0; 13];
    stream.read_exact(&mut head).unwrap();
    let length = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
    let mut payload = vec![0; length - 9];
    stream.read_exact(&mut payload).unwrap();
    (head[4], u64::from_le_bytes(head[5..].try_into().unwrap()), payload)
}

/// The proof of knowing a secret, as `docs/internals/security.md` says.
pub(crate) fn proof(secret: &[u8], role: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    mac.update(format!("walrus 1 peer {role}\n").as_bytes());
    for part in parts {
        mac.update(&u32::try_from(part.len()).unwrap().to_le_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

fn expect(stream: &mut TcpStream, kind: u8) -> Result<Vec<u8>, String> {
    let (came, _, payload) = read_frame(stream);
    if came == kind { Ok(payload) } else { Err(words(&payload)) }
}

fn words(refusal: &[u8]) -> String {
    ErrorAnswer::decode(refusal).unwrap().message
}

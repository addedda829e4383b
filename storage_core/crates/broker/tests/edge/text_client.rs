//! A client of the text protocol that can also misbehave.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::harness::Cluster;

/// Connects to a node of a cluster.
pub(crate) fn connect(cluster: &Cluster, node: u32) -> TextClient {
    TextClient::connect(&cluster.plane(node).addresses()["text"])
}

/// A client with one connection.
pub(crate) struct TextClient {
    stream: TcpStream,
}

impl TextClient {
    pub(crate) fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("a listener");
        stream.set_nodelay(true).expect("a socket option");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket option");
        Self { stream }
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(&mut self, request: &str) -> String {
        self.send(request.as_bytes());
        self.answer().expect("an answer")
    }

    /// Sends one frame.
    pub(crate) fn send(&mut self, text: &[u8]) {
        let mut frame = u32::try_from(text.len()).expect("a short text").to_le_bytes().to_vec();
        frame.extend_from_slice(text);
        self.send_raw(&frame);
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the connection takes bytes");
    }

    /// The next answer; `None` when the node closed the connection.
    pub(crate) fn answer(&mut self) -> Option<String> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).ok()?;
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        self.stream.read_exact(&mut text).ok()?;
        Some(String::from_utf8(text).expect("these tests store text only"))
    }

    /// Says that no request follows.
    pub(crate) fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("an open connection");
    }

    /// Breaks the connection as a host that lost power and came back: with a reset.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("a socket option");
    }
}

//! Limits of listeners: on how many connections they take, and on how long those may be silent.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::harness::{Cluster, PATIENCE, wait_for};
use crate::text_client::TextClient;

fn connect(cluster: &Cluster, listener: &str) -> TcpStream {
    let stream = TcpStream::connect(&cluster.plane(1).addresses()[listener]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// All bytes that come until the node closes the connection.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the connection stays open");
    }
    rest
}

#[test]
fn a_listener_that_is_full_refuses_and_takes_the_next_one_when_another_ends() {
    let cluster = Cluster::start(1, json!({ "connections_max": 3 }));
    for listener in ["grpc", "peer", "text"] {
        let open: Vec<TcpStream> = (0..3).map(|_| connect(&cluster, listener)).collect();
        let refused = rest(connect(&cluster, listener));
        let says_why = refused.windows(8).any(|words| words == b"too many");
        assert_eq!(says_why, listener == "text", "{listener}: {refused:?}");
        drop(open);
    }
    let address = cluster.plane(1).addresses()["text"].clone();
    wait_for("there is a place again", PATIENCE, || {
        let answer = TextClient::connect(&address).ask("TOPICS");
        if answer.starts_with('[') { Ok(()) } else { Err(answer) }
    });
}

#[test]
fn who_says_nothing_or_half_a_header_is_cut_off_at_every_listener() {
    let patience =
        json!({ "first_byte_ms": 100, "header_ms": 100, "idle_ms": 600_000, "text_idle_ms": 600_000 });
    let cluster = Cluster::start(1, json!({ "patience": patience }));
    for listener in ["text", "grpc", "peer"] {
        for sent in [&b""[..], b"PR"] {
            let mut stream = connect(&cluster, listener);
            stream.write_all(sent).unwrap();
            rest(stream);
        }
    }
    // Whoever has asked once has more time.
    let mut client = crate::text_client::connect(&cluster, 1);
    assert_eq!(client.ask("REGISTER t"), "OK");
    std::thread::sleep(Duration::from_millis(300)); // longer than the first byte may take
    assert_eq!(client.ask("PUT t x"), "OK");
}

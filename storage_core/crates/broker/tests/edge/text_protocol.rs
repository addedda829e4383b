//! Tests of the text protocol over real sockets: requests, bad frames, bad requests.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::Cluster;
use crate::text_client::{TextClient, connect};

fn one_node() -> (Cluster, String) {
    let cluster = Cluster::start(1, json!({}));
    let address = cluster.plane(1).addresses()["text"].clone();
    (cluster, address)
}

#[test]
fn what_was_put_comes_out_in_order_to_the_last_byte() {
    let (_cluster, address) = one_node();
    let mut client = TextClient::connect(&address);
    assert_eq!(client.ask("REGISTER logs"), "OK");
    assert_eq!(client.ask("REGISTER logs"), "OK");
    let payloads = ["hello", " leading and trailing  ", "line\r\n", "", "ü€ \u{0}"];
    for payload in payloads {
        assert_eq!(client.ask(&format!("PUT logs {payload}")), "OK");
    }
    for payload in payloads {
        assert_eq!(client.ask("GET logs"), format!("OK {payload}"));
    }
    assert_eq!(client.ask("GET logs"), "EMPTY");
    assert_eq!(client.ask("GETAT logs 1"), "OK  leading and trailing  ");
    assert_eq!(client.ask("GETAT logs 5"), "EMPTY");
    assert_eq!(client.ask("COMMIT"), "OK");
}

#[test]
fn topics_are_made_listed_described_and_dropped() {
    let (_cluster, address) = one_node();
    let mut client = TextClient::connect(&address);
    assert_eq!(client.ask("PUT made-by-put x"), "OK");
    assert_eq!(client.ask("REGISTER registered"), "OK");
    let topics: Vec<String> = serde_json::from_str(&client.ask("TOPICS")).unwrap();
    assert_eq!(topics, ["made-by-put", "registered"], "internal topics are not listed");
    let state: Value = serde_json::from_str(&client.ask("STATE made-by-put")).unwrap();
    for key in
        ["current_segment", "leader_node", "last_sealed_entry_offset", "sealed_segments", "segment_leaders"]
    {
        assert!(state.get(key).is_some(), "{key} in {state}");
    }
    let metrics: Value = serde_json::from_str(&client.ask("METRICS")).unwrap();
    assert!(metrics.is_object());
    assert_eq!(client.ask("DELETE made-by-put"), "OK");
    assert_eq!(client.ask("GET made-by-put"), "ERR unknown topic made-by-put");
    assert_eq!(client.ask("DELETE made-by-put"), "ERR unknown topic made-by-put");
    assert_eq!(client.ask("PUT t x"), "OK");
    assert_eq!(client.ask("GET t"), "OK x");
    assert_eq!(client.ask("COMMIT"), "OK", "there is a topic of Walrus's own, with the place of the cursor");
    for request in ["DELETE __cursors", "GET __cursors", "GETAT __cursors 0", "STATE __cursors"] {
        assert_eq!(client.ask(request), "ERR unknown topic __cursors", "{request}");
    }
    assert!(client.ask("GETAT _walrus/__cursors 0").starts_with("ERR invalid topic name"));
    assert_eq!(client.ask("PUT __cursors mine"), "OK", "the name is the client's");
    assert_eq!(client.ask("GET __cursors"), "OK mine");
}

#[test]
fn a_topic_made_again_has_a_new_cursor() {
    let (_cluster, address) = one_node();
    let mut client = TextClient::connect(&address);
    for payload in ["a", "b"] {
        client.ask(&format!("PUT t {payload}"));
        assert_eq!(client.ask("GET t"), format!("OK {payload}"));
    }
    assert_eq!(client.ask("COMMIT"), "OK");
    assert_eq!(client.ask("DELETE t"), "OK");
    assert_eq!(client.ask("PUT t c"), "OK");
    assert_eq!(client.ask("GET t"), "OK c");
}

#[test]
fn bad_requests_are_answered_and_the_connection_goes_on() {
    let (_cluster, address) = one_node();
    let mut client = TextClient::connect(&address);
    for (request, answer) in [
        ("NOPE", "ERR unknown command"),
        (" ", "ERR unknown command"),
        ("REGISTER", "ERR REGISTER requires a topic"),
        ("PUT", "ERR PUT requires a topic"),
        ("PUT t", "ERR PUT requires a payload"),
        ("GET", "ERR GET requires a topic"),
        ("STATE", "ERR STATE requires a topic"),
        ("GET nothing-here", "ERR unknown topic nothing-here"),
        ("STATE nothing-here", "ERR unknown topic nothing-here"),
        ("GETAT nothing-here 0", "ERR unknown topic nothing-here"),
    ] {
        assert_eq!(client.ask(request), answer, "{request:?}");
    }
    assert!(client.ask("REGISTER a/b").starts_with("ERR invalid topic name"));
    assert_eq!(client.ask("REGISTER t"), "OK");
}

#[test]
fn an_unknown_topic_is_refused_where_puts_do_not_create_topics() {
    let cluster = Cluster::start(1, json!({"auto_create_topics": false}));
    let mut client = connect(&cluster, 1);
    assert_eq!(client.ask("PUT t x"), "ERR unknown topic t");
    assert_eq!(client.ask("REGISTER t"), "OK");
    assert_eq!(client.ask("PUT t x"), "OK");
}

#[test]
fn after_a_bad_frame_comes_its_error_and_then_the_end() {
    let (_cluster, address) = one_node();
    let mut other = TextClient::connect(&address);
    let too_long = [&65_537u32.to_le_bytes()[..], b"GET t"].concat();
    let not_utf8 = [&8u32.to_le_bytes()[..], b"PUT t \xff\xfe"].concat();
    for (bytes, error) in [
        (&[0, 0, 0, 0][..], "ERR invalid frame length"),
        (&too_long[..], "ERR invalid frame length"),
        (&[0xff; 64][..], "ERR invalid frame length"),
        (&not_utf8[..], "ERR invalid utf-8"),
    ] {
        let mut client = TextClient::connect(&address);
        assert_eq!(client.ask("PUT t before"), "OK");
        client.send_raw(bytes);
        assert_eq!(client.answer().as_deref(), Some(error), "{bytes:?}");
        assert_eq!(client.answer(), None, "closed after {bytes:?}");
        assert_eq!(other.ask("PUT t other connections go on"), "OK");
    }
    let mut client = TextClient::connect(&address);
    client.send_raw(&[9, 0, 0, 0, b'G', b'E']);
    client.finish();
    assert_eq!(client.answer().as_deref(), Some("ERR frame cut off after 6 bytes"));
    assert_eq!(client.answer(), None);
}

#[test]
fn connections_requests_and_bad_frames_are_counted() {
    let (cluster, address) = one_node();
    let mut client = TextClient::connect(&address);
    client.ask("PUT t x");
    client.ask("PUT t y");
    client.ask("NOPE");
    let mut bad = TextClient::connect(&address);
    bad.send_raw(&[0; 4]);
    assert!(bad.answer().is_some() && bad.answer().is_none());
    let metrics = cluster.plane(1).prometheus();
    for line in [
        "walrus_text_requests_total{command=\"PUT\"} 2",
        "walrus_text_requests_total{command=\"unknown\"} 1",
        "walrus_text_bad_frames_total 1",
        "walrus_text_connections_refused_total 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[test]
fn a_frame_that_does_not_go_on_is_given_up() {
    let (_cluster, address) = one_node();
    let mut client = TextClient::connect(&address);
    client.send_raw(&[6, 0, 0, 0, b'G']);
    let mut other = TextClient::connect(&address);
    assert_eq!(other.ask("PUT t others go on"), "OK");
    assert_eq!(client.answer().as_deref(), Some("ERR frame came too slowly"));
    assert_eq!(client.answer(), None);
}

#[test]
fn a_request_of_the_largest_size_is_taken() {
    let (_cluster, address) = one_node();
    let mut client = TextClient::connect(&address);
    let payload = "x".repeat(65_536 - "PUT t ".len());
    assert_eq!(client.ask(&format!("PUT t {payload}")), "OK");
    assert_eq!(client.ask("GET t"), format!("OK {payload}"));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (_cluster, address) = one_node();
    let mut client = TextClient::connect(&address);
    for n in 0..200 {
        client.send(format!("PUT t {n}").as_bytes());
    }
    for _ in 0..200 {
        assert_eq!(client.answer().as_deref(), Some("OK"));
    }
    for _ in 0..201 {
        client.send(b"GET t");
    }
    for n in 0..200 {
        assert_eq!(client.answer(), Some(format!("OK {n}")));
    }
    assert_eq!(client.answer().as_deref(), Some("EMPTY"));
}

#[test]
fn a_thousand_bad_connections_leave_memory_and_others_alone() {
    let (_cluster, address) = one_node();
    let mut good = TextClient::connect(&address);
    assert_eq!(good.ask("PUT t x"), "OK");
    let halves: Vec<TextClient> = (0..1_000)
        .map(|n| {
            let mut client = TextClient::connect(&address);
            match n % 4 {
                0 => client.send_raw(&u32::MAX.to_le_bytes()),
                1 => client.send_raw(&[0, 0, 1, 0, b'P']), // 64 KiB announced, one byte sent
                2 => client.send_raw(&[5]),
                _ => client.send(b"\xff\xff\xff"),
            }
            client
        })
        .collect();
    let before = resident_bytes();
    let began = Instant::now();
    for _ in 0..50 {
        assert_eq!(good.ask("PUT t still served"), "OK");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more than before");
    drop(halves);
    assert_eq!(good.ask("PUT t and after"), "OK");
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}

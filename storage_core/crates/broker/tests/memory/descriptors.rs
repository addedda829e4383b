//! Tests that a node answers whether it lives when it can answer nothing else.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use walrus_broker::edge::Front;

use crate::TURN;
use crate::harness::{PATIENCE, wait_for};

/// Answers each request with `ok`, until the test ends.
fn serve(listener: UnixListener) {
    std::thread::spawn(move || {
        loop {
            let Ok((mut stream, _)) = listener.accept() else {
                std::thread::yield_now(); // no descriptor is left
                continue;
            };
            let mut request = [0; 1 << 10];
            drop(stream.read(&mut request));
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"));
        }
    });
}

fn ask(socket: &socket2::Socket, address: SocketAddr) -> String {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut socket = socket;
    socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    let mut answer = String::new();
    drop(socket.read_to_string(&mut answer));
    answer
}

#[test]
fn health_is_answered_with_all_places_and_all_descriptors_taken() {
    let _turn = TURN.lock();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("http");
    serve(UnixListener::bind(&path).unwrap());
    let start = || {
        let config = json!({
            "ports": { "http": { "address": "127.0.0.1:0", "socket": path, "protocol": "http1" } },
            "connections_max": 2,
        });
        let front = Front::start(&config.to_string()).unwrap();
        let address: SocketAddr = front.addresses()["http"].parse().unwrap();
        (front, address)
    };
    let socket = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let (front, address) = start();
    assert!(ask(&socket(), address).ends_with("ok"));
    let mut silent: Vec<socket2::Socket> = Vec::new();
    let mut be_silent = |count| {
        for _ in 0..count {
            silent.push(socket());
            silent[silent.len() - 1].connect(&address.into()).unwrap();
        }
    };
    be_silent(2);
    assert!(ask(&socket(), address).ends_with("ok"), "all places are taken by who says nothing");
    be_silent(2);
    wait_for("those that say nothing on what is spare are cut off", PATIENCE, || {
        let answer = ask(&socket(), address);
        if answer.ends_with("ok") { Ok(()) } else { Err(answer) }
    });
    drop((silent, front));

    let (_front, address) = start();
    let asking = [socket(), socket()];
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let highest = File::open("/dev/null").unwrap();
    let few = std::os::fd::AsRawFd::as_raw_fd(&highest) as u64 + 1;
    setrlimit(Resource::Nofile, Rlimit { current: Some(few), maximum }).unwrap();
    let taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let answers = asking.each_ref().map(|socket| ask(socket, address));
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    drop(taken);
    assert!(answers.iter().all(|answer| answer.ends_with("ok")), "{answers:?}");
}

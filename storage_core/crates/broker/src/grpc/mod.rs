//! The gRPC service `walrus.v1.Log`, with the standard health and reflection services beside it.

mod append;
mod append_stream;
mod counted;
mod groups;
mod offsets;
mod pages;
mod read;
mod service;
mod status;

use futures_util::{Stream, stream};
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::transport::Server;
use tower::util::{MapRequestLayer, MapResponseLayer};

use crate::broker::Broker;
use crate::edge::{Arrival, Door, GuardedStream, Principal};
use crate::node::budget::Purpose;
use crate::node::patience;
use crate::node::proto::DESCRIPTORS;
use crate::node::proto::v1::log_server::LogServer;
use crate::node::strangers::Silence;
use service::LogService;

/// Limit on the length of a message: a batch of 16 MiB and what is around it.
const MESSAGE_BYTES_MAX: usize = (16 << 20) + (64 << 10);
/// Bytes of one stream that a client may send ahead of the broker.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// Bytes of all streams of a connection that a client may send ahead of the broker.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Bytes with which every HTTP/2 connection begins.
const PREFACE_BYTES: usize = 24;
/// Limit on the calls that run at a time on one connection.
const STREAMS_MAX: u32 = 256;

/// Serves the connections of a principal at the listener of that name until the broker's shutdown signal, then lets running
/// requests finish.
pub(crate) async fn serve(door: Door, broker: Broker, principal: Principal, listener: String) {
    let stop = broker.cluster().tasks().shutdown().clone();
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<LogServer<LogService>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptors were made by the build");
    let (appends, reads) =
        (broker.cluster().share(Purpose::Appends).clone(), broker.cluster().share(Purpose::Reads).clone());
    let answered = reads.clone();
    let silence = broker.cluster().config().patience.silence();
    let log = LogServer::new(LogService::new(broker, principal, listener))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(usize::MAX); // a page holds at least one batch, whatever its size
    let server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(patience::GRPC_KEEPALIVE))
        .http2_keepalive_timeout(Some(patience::GRPC_KEEPALIVE))
        .layer(MapRequestLayer::new(move |request: Request<Body>| match Sender::of(request.uri().path()) {
            Sender::Appends => request.map(|body| counted::count_while_received(body, &appends)),
            Sender::Health => request.map(counted::limit_to_small),
            Sender::Rest => request.map(|body| counted::count_while_received(body, &reads)),
        }))
        .layer(MapResponseLayer::new(move |response: Response<Body>| {
            pages::respond(response, answered.clone())
        }))
        .add_service(health_service)
        .add_service(reflection)
        .add_service(log)
        .serve_with_incoming_shutdown(incoming(door, silence), stop.clone().cancelled_owned());
    let stopped = async {
        stop.cancelled().await;
        health.set_not_serving::<LogServer<LogService>>().await;
        tokio::time::sleep(patience::GRPC_STOP).await;
    };
    tokio::select! {
        served = server => if let Err(problem) = served {
            tracing::error!(%problem, "gRPC listener failed");
        },
        () = stopped => {}
    }
}

/// The kind of a request, which says whose room its body takes: whoever appends must not stop those who read, and nobody those
/// who ask for the health.
#[derive(Debug, PartialEq, Eq)]
enum Sender {
    Appends,
    Health,
    Rest,
}

impl Sender {
    fn of(path: &str) -> Self {
        match path.rsplit_once('/') {
            Some(("/walrus.v1.Log", "Append" | "AppendStream")) => Self::Appends,
            Some(("/grpc.health.v1.Health", _)) => Self::Health,
            _ => Self::Rest,
        }
    }
}

/// The connections that come in and have a place; the others are closed.
fn incoming(door: Door, silence: Silence) -> impl Stream<Item = std::io::Result<GuardedStream<TcpStream>>> {
    stream::unfold(door, move |door| async move {
        loop {
            if let Arrival::Admitted(stream, _, place) = door.enter().await {
                let _ = stream.set_nodelay(true); // only a delay is lost
                return Some((Ok(GuardedStream::new(stream, silence, PREFACE_BYTES, Some(place))), door));
            }
        }
    })
}

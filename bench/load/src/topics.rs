//! Many topics: making them, and finding out whether they answer.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use walrus_bench_sample::Sample;
use walrus_log::batch::BatchBuilder;

use crate::Arguments;
use crate::log_service::v1::append_request::Payload;
use crate::log_service::v1::log_client::LogClient;
use crate::log_service::v1::{AppendRequest, ReadRequest};
use crate::log_service::{connect, create_topic};

/// Topics that are asked whether they answer.
const ASKED: u64 = 200;
/// For a broker that starts, and for a topic that nobody leads yet.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two tries.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Makes `--topics` topics of one partition, named `--topic` and a number from `--first` on, until some of them that were
/// picked by chance answer an append and a read: s.
pub(crate) async fn create(arguments: &Arguments) -> Result<Sample> {
    let (topics, first) = (arguments.topics.context("create_topics needs --topics")?, arguments.first);
    let log = connect(arguments.grpc).await?;
    let began = Instant::now();
    let next = Arc::new(AtomicU64::new(first));
    let mut callers = JoinSet::new();
    for _ in 0..arguments.in_flight {
        let (mut log, next, name) = (log.clone(), Arc::clone(&next), arguments.topic.clone());
        callers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= first + topics {
                    return Ok::<_, anyhow::Error>(());
                }
                create_topic(&mut log, &topic(&name, number)).await?;
            }
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    let created_s = began.elapsed().as_secs_f64();
    ask_some(&log, arguments, first + topics).await?;
    Ok(Sample::new(began.elapsed().as_secs_f64(), "s").with("topics", topics).with("created_s", created_s))
}

/// Waits until a broker that starts has some of the `--topics` topics answer an append and a read: s from now on.
pub(crate) async fn answers(arguments: &Arguments) -> Result<Sample> {
    let topics = arguments.topics.context("topics_answer needs --topics")?;
    let began = Instant::now();
    let log = loop {
        match connect(arguments.grpc).await {
            Ok(log) => break log,
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(_) => tokio::time::sleep(TRY_AGAIN).await,
        }
    };
    let connected_s = began.elapsed().as_secs_f64();
    ask_some(&log, arguments, topics).await?;
    Ok(Sample::new(began.elapsed().as_secs_f64(), "s").with("connected_s", connected_s).with("asked", ASKED))
}

/// Asks topics of the numbers below `end`, picked by chance, all at the same time.
async fn ask_some(log: &LogClient<Channel>, arguments: &Arguments, end: u64) -> Result<()> {
    let chance = RandomState::new();
    let mut asked = JoinSet::new();
    for number in 0..ASKED {
        let picked = chance.hash_one(number) % end;
        let (log, name) = (log.clone(), topic(&arguments.topic, picked));
        asked.spawn(async move { answer(log, &name).await.with_context(|| format!("topic {name}")) });
    }
    while let Some(answered) = asked.join_next().await {
        answered??;
    }
    Ok(())
}

/// Appends a record to a topic and reads one from it, as often as a client would that is told to try again.
async fn answer(mut log: LogClient<Channel>, name: &str) -> Result<()> {
    let batch = one_record()?;
    let until = Instant::now() + PATIENCE;
    let end = loop {
        let payload = Some(Payload::Batch(batch.clone()));
        let request = AppendRequest { topic: name.to_owned(), payload, ..Default::default() };
        match log.append(request).await {
            Ok(answered) => break answered.into_inner().end_offset,
            Err(status) if Instant::now() > until => return Err(status).context("no append"),
            Err(_) => tokio::time::sleep(TRY_AGAIN).await,
        }
    };
    let request = ReadRequest {
        topic: name.to_owned(),
        offset: end - 1,
        end_offset: Some(end),
        wait_ms: 1_000,
        ..ReadRequest::default()
    };
    let mut answers = log.read(request).await.context("no read")?.into_inner();
    let mut records = 0;
    while let Some(page) = answers.message().await.context("no page")? {
        records += page.records.len();
    }
    ensure!(records == 1, "one record was acknowledged at its end and {records} were read there");
    Ok(())
}

fn one_record() -> Result<Bytes> {
    let mut bytes = Vec::new();
    BatchBuilder::new().push(None, Some(b"walrus"), 1, &[]).build(&mut bytes)?;
    Ok(bytes.into())
}

fn topic(name: &str, number: u64) -> String {
    format!("{name}-{number}")
}

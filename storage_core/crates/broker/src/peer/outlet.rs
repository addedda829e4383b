//! The writing side of a connection. Frames leave in the order in which they are sent. One that is alone is written by its
//! sender: to wake a task for it takes longer than the write. Those that come while others wait are written by the
//! connection's task, many at once.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, BufMut, BytesMut};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;

use super::frame::Frame;
use crate::node::locks::Lock;

/// Payloads up to this size are copied together into one write.
const COALESCE_BYTES: usize = 16 << 10;
/// Limit on the frames that wait for the socket; at it nothing is read from whoever causes more, until the task has taken some.
const FRAMES_MAX: usize = 4_096;
/// Limit on the frames that the task takes at once.
const AT_ONCE: usize = 64;

/// The writing side of one connection: the frames that wait, and who writes them.
pub(crate) struct Outlet {
    queue: Lock<Queue>,
    /// Rings when the task has something to write.
    bell: Notify,
    /// Rings when the task took frames.
    taken: Notify,
    /// Id of the last frame that was given to the socket.
    written: AtomicU64,
}

struct Queue {
    /// `None`: closed.
    socket: Option<Arc<OwnedWriteHalf>>,
    frames: VecDeque<Frame>,
    /// The part of a frame that its sender wrote for which the socket had no room. It goes before the others.
    rest: BytesMut,
    /// Size of the payloads that are queued or being written.
    waiting_bytes: usize,
    /// Whether the task writes what it took, or has yet to see whether there is more.
    is_writing: bool,
}

impl Outlet {
    pub(crate) fn new(socket: OwnedWriteHalf) -> Self {
        let queue = Queue {
            socket: Some(Arc::new(socket)),
            frames: VecDeque::new(),
            rest: BytesMut::new(),
            waiting_bytes: 0,
            is_writing: false,
        };
        Self {
            queue: Lock::new(queue),
            bell: Notify::new(),
            taken: Notify::new(),
            written: AtomicU64::new(0),
        }
    }

    /// Queues a frame for the task. After [`Outlet::close`] it is dropped.
    pub(crate) fn send(&self, frame: Frame) {
        self.queue.lock().push(frame);
        self.bell.notify_one();
    }

    /// Sends a frame that nothing is expected to follow soon: it is written here and now if nothing waits and the socket has
    /// room, else queued for the task.
    pub(crate) fn send_alone(&self, frame: Frame) {
        let mut queue = self.queue.lock();
        if queue.is_busy() || frame.payload.len() > COALESCE_BYTES {
            queue.push(frame);
        } else {
            self.note(&frame);
            queue.write_now(&frame);
            if queue.rest.is_empty() {
                return;
            }
        }
        drop(queue);
        self.bell.notify_one();
    }

    /// Does the task's work: writes what waits until the future is dropped. Ends with the socket's error, after which nothing
    /// more can be written, or when the outlet is closed already.
    pub(crate) async fn write_waiting(&self) -> io::Result<()> {
        let Some(socket) = self.queue.lock().socket.clone() else { return Ok(()) };
        let socket: &TcpStream = (*socket).as_ref();
        let mut bytes = BytesMut::new();
        let mut frames = Vec::with_capacity(AT_ONCE);
        loop {
            if !self.queue.lock().take(&mut bytes, &mut frames) {
                self.bell.notified().await;
                continue;
            }
            self.taken.notify_one();
            for frame in frames.drain(..) {
                self.note(&frame);
                frame.put_head(&mut bytes);
                if frame.payload.len() <= COALESCE_BYTES {
                    bytes.put_slice(&frame.payload);
                } else {
                    // A large payload is written in one call with what stands before it.
                    write_all(socket, (&mut bytes).chain(frame.payload)).await?;
                }
            }
            write_all(socket, &mut bytes).await?;
        }
    }

    /// Waits until few enough frames wait for the socket, for the one who adds to them.
    pub(crate) async fn has_room(&self) {
        while self.queue.lock().frames.len() >= FRAMES_MAX {
            self.taken.notified().await;
        }
    }

    /// Id of the last frame that was given to the socket; where ids count up, all before it were, too.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Bytes of payloads that wait for the socket.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.queue.lock().waiting_bytes
    }

    /// Drops what waits and, once its task has ended, the socket.
    pub(crate) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.socket = None;
        queue.frames = VecDeque::new();
        queue.waiting_bytes = 0;
    }

    /// Notes a frame before it is written: of what was tried the other side may have seen something.
    fn note(&self, frame: &Frame) {
        self.written.store(frame.id, Ordering::Relaxed);
    }
}

impl Queue {
    fn is_busy(&self) -> bool {
        self.is_writing || !self.frames.is_empty() || !self.rest.is_empty()
    }

    fn push(&mut self, frame: Frame) {
        if self.socket.is_some() {
            self.waiting_bytes += frame.payload.len();
            self.frames.push_back(frame);
        }
    }

    /// Writes a frame, and leaves in `rest` what the socket does not take. A broken one takes nothing: the task meets the same
    /// error, and tells.
    fn write_now(&mut self, frame: &Frame) {
        let Some(socket) = &self.socket else { return };
        frame.put_head(&mut self.rest);
        self.rest.put_slice(&frame.payload);
        let written = socket.try_write(&self.rest).unwrap_or(0);
        self.rest.advance(written);
    }

    /// Gives what waits to the task; `false` if nothing does.
    fn take(&mut self, bytes: &mut BytesMut, frames: &mut Vec<Frame>) -> bool {
        bytes.put_slice(&self.rest);
        self.rest.clear();
        let count = self.frames.len().min(AT_ONCE);
        frames.extend(self.frames.drain(..count));
        self.waiting_bytes -= frames.iter().map(|frame| frame.payload.len()).sum::<usize>();
        self.is_writing = !bytes.is_empty() || !frames.is_empty();
        self.is_writing
    }
}

/// Writes all of it, in as few calls as the socket takes.
pub(crate) async fn write_all(socket: &TcpStream, mut bytes: impl Buf) -> io::Result<()> {
    while bytes.has_remaining() {
        let mut slices = [IoSlice::new(&[]); 2];
        let count = bytes.chunks_vectored(&mut slices);
        match socket.try_write_vectored(&slices[..count]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes.advance(written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // ids are small, and a payload's bytes any of theirs
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::time::timeout;

    use super::super::frame::{FRAME_BYTES_MAX, FrameReader};
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// An outlet with little room behind it, and the other side. Of the outlet's side what would be read is dropped.
    async fn pair() -> (Arc<Outlet>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(4 << 10).unwrap();
        let connecting = socket.connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(connecting, listener.accept());
        let (_, writer) = near.unwrap().into_split();
        writer.writable().await.unwrap();
        (Arc::new(Outlet::new(writer)), far.unwrap().0)
    }

    /// Frames of all sizes that are treated in different ways.
    fn frame(id: u64) -> Frame {
        let length = [0, 1, 700, COALESCE_BYTES, COALESCE_BYTES + 1, 100 << 10][id as usize % 6];
        Frame { kind: 4, id, payload: vec![id as u8; length].into() }
    }

    async fn expect_frames(far: TcpStream, ids: impl Iterator<Item = u64>) {
        let mut reader = FrameReader::new(far);
        for id in ids {
            let read = timeout(PATIENCE, reader.next(FRAME_BYTES_MAX)).await;
            assert_eq!(read.expect("in time").unwrap(), Some(frame(id)));
        }
    }

    #[tokio::test]
    async fn a_frame_that_is_alone_is_written_by_its_sender() {
        let (outlet, far) = pair().await;
        outlet.send_alone(frame(1));
        outlet.send_alone(frame(2));
        assert_eq!((outlet.written(), outlet.waiting_bytes()), (2, 0));
        expect_frames(far, 1..=2).await; // nobody has run the task
    }

    #[tokio::test]
    async fn frames_leave_in_the_order_of_sending_whoever_writes_them() {
        let (outlet, far) = pair().await;
        // Nobody reads and nobody writes: what is sent alone fills the socket, and is cut where it is full.
        let mut ids = 1..=180_u64;
        for id in ids.by_ref().take(60) {
            if id % 2 == 0 { outlet.send(frame(id)) } else { outlet.send_alone(frame(id)) }
        }
        assert!(outlet.written() < 60 && outlet.waiting_bytes() > 0);
        let sender = async {
            for id in ids {
                if id % 3 == 0 {
                    outlet.send(frame(id))
                } else {
                    outlet.send_alone(frame(id))
                }
                if id % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        };
        let received = async { tokio::join!(expect_frames(far, 1..=180), sender) };
        tokio::select! {
            ended = outlet.write_waiting() => panic!("{ended:?}"),
            ((), ()) = received => {}
        }
        assert_eq!((outlet.written(), outlet.waiting_bytes()), (180, 0));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn frames_of_many_threads_stay_whole_and_each_thread_s_own_in_order() {
        const THREADS: u64 = 4;
        const EACH: u64 = 3_000;
        let (outlet, far) = pair().await;
        let task = tokio::spawn({
            let outlet = outlet.clone();
            async move { outlet.write_waiting().await }
        });
        let senders: Vec<_> = (0..THREADS)
            .map(|sender| {
                let outlet = outlet.clone();
                std::thread::spawn(move || {
                    for number in 0..EACH {
                        let id = number * THREADS + sender;
                        let payload = Bytes::from(vec![id as u8; (id % 300) as usize]);
                        outlet.send_alone(Frame { kind: 4, id, payload });
                    }
                })
            })
            .collect();
        let mut reader = FrameReader::new(far);
        let mut next = [0; THREADS as usize];
        for _ in 0..THREADS * EACH {
            let read = timeout(PATIENCE, reader.next(FRAME_BYTES_MAX)).await;
            let Frame { id, payload, .. } = read.expect("in time").unwrap().unwrap();
            let (number, sender) = (id / THREADS, id % THREADS);
            assert_eq!(std::mem::replace(&mut next[sender as usize], number + 1), number);
            assert_eq!(payload, vec![id as u8; (id % 300) as usize]);
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        task.abort();
    }

    #[tokio::test]
    async fn a_socket_that_is_gone_is_an_error_of_the_task_however_it_is_met() {
        let (outlet, far) = pair().await;
        far.set_zero_linger().unwrap();
        drop(far); // a reset
        outlet.send_alone(frame(2));
        outlet.send(frame(3));
        let writing = async {
            let ended = outlet.write_waiting();
            let mut ended = std::pin::pin!(ended);
            loop {
                tokio::select! {
                    ended = &mut ended => return ended,
                    () = tokio::task::yield_now() => outlet.send_alone(frame(2)),
                }
            }
        };
        assert!(timeout(PATIENCE, writing).await.expect("in time").is_err());
    }

    #[tokio::test]
    async fn closing_drops_what_waits_and_the_socket() {
        let (outlet, mut far) = pair().await;
        (0..100).for_each(|id| outlet.send(frame(id)));
        outlet.close();
        outlet.send(frame(1));
        outlet.send_alone(frame(1));
        assert_eq!(outlet.waiting_bytes(), 0);
        outlet.write_waiting().await.unwrap();
        let mut rest = Vec::new();
        let read = timeout(PATIENCE, tokio::io::AsyncReadExt::read_to_end(&mut far, &mut rest)).await;
        assert_eq!(read.expect("in time").unwrap(), 0);
    }
}

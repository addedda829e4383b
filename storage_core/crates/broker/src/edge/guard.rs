//! Guards a connection against silence: there are limits on the time until its first byte, from that to its whole header, and
//! between any two signs of life later.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tonic::transport::server::{Connected, TcpConnectInfo};

use super::door::Place;
use crate::node::strangers::Silence;

/// A connection with limits on its silence. Reading fails with `TimedOut` when one of them is over.
pub(crate) struct GuardedStream<S> {
    stream: S,
    silence: Silence,
    /// Bytes of the protocol's header that have yet to come.
    header_left: usize,
    has_begun: bool,
    deadline: Pin<Box<Sleep>>,
    _place: Option<Place>,
}

impl<S> GuardedStream<S> {
    /// Guards a stream whose protocol has a header of `header_bytes`. The place is given back with the connection.
    pub(crate) fn new(stream: S, silence: Silence, header_bytes: usize, place: Option<Place>) -> Self {
        let deadline = Box::pin(tokio::time::sleep(silence.first_byte));
        Self { stream, silence, header_left: header_bytes, has_begun: false, deadline, _place: place }
    }

    fn heard(&mut self, bytes: usize) {
        let now = Instant::now();
        let was_header = self.header_left > 0;
        self.header_left = self.header_left.saturating_sub(bytes);
        if !std::mem::replace(&mut self.has_begun, true) && self.header_left > 0 {
            self.deadline.as_mut().reset(now + self.silence.header);
        } else if self.header_left == 0 {
            // The timer is not moved for each of many small reads: a quarter of a second more or less does not matter here.
            let until = now + self.silence.idle;
            if was_header || until.duration_since(self.deadline.deadline()) > Duration::from_millis(250) {
                self.deadline.as_mut().reset(until);
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(read) => {
                let bytes = buffer.filled().len() - before;
                if bytes > 0 {
                    self.heard(bytes);
                }
                Poll::Ready(read)
            }
            Poll::Pending => match self.deadline.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

impl<S: AsyncWrite + Unpin> GuardedStream<S> {
    fn wrote(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(1..)) = written
            && self.header_left == 0
        {
            self.heard(0);
        }
        written
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GuardedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for GuardedStream<TcpStream> {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    const SILENCE: Silence = Silence {
        first_byte: Duration::from_secs(60),
        header: Duration::from_secs(5),
        idle: Duration::from_secs(600),
    };

    fn guarded() -> (DuplexStream, GuardedStream<DuplexStream>) {
        let (near, far) = duplex(1 << 10);
        (near, GuardedStream::new(far, SILENCE, 4, None))
    }

    /// Reads until nothing comes; says how long that took.
    async fn read_on(guarded: &mut GuardedStream<DuplexStream>) -> Duration {
        let began = Instant::now();
        let mut buffer = Vec::new();
        let error = guarded.read_to_end(&mut buffer).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn each_silence_has_its_own_end() {
        for (sent, seconds) in [(&b""[..], 60), (b"abc", 5), (b"abcd", 600), (b"abcdefgh", 600)] {
            let (mut near, mut guarded) = guarded();
            near.write_all(sent).await.unwrap();
            assert_eq!(read_on(&mut guarded).await.as_secs(), seconds, "{sent:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_that_trickles_in_has_no_more_time_than_another() {
        let (mut near, mut guarded) = guarded();
        let trickle = tokio::spawn(async move {
            for byte in b"abc" {
                near.write_all(&[*byte]).await.unwrap();
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            std::future::pending::<()>().await;
        });
        assert_eq!(read_on(&mut guarded).await.as_secs(), 5);
        trickle.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_signs_of_life() {
        let (mut near, mut guarded) = guarded();
        near.write_all(b"abcd").await.unwrap();
        let mut header = [0; 4];
        guarded.read_exact(&mut header).await.unwrap();
        tokio::time::sleep(Duration::from_secs(599)).await;
        guarded.write_all(b"answer").await.unwrap();
        assert_eq!(read_on(&mut guarded).await.as_secs(), 600);
    }
}

//! The canary: one thread, one epoll instance, one canned answer to every request.
//!
//! Its CPU time per request is almost all kernel: what a request over loopback costs before a server
//! does anything. It is known for a quiet machine, so a higher figure in a run says that the
//! machine was busy, and that only the ratios of that run mean something.
//!
//! It deliberately lacks HTTP: a read that holds the end of a head is taken for one whole
//! request, which is how `wrk` sends them (one write each, never two in flight on a connection).
//!
//! Usage: `echo 127.0.0.1:4361`

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4361".to_owned());
    canary::Canary::bind(&address)?.run()
}

#[cfg(not(target_os = "linux"))]
fn main() -> anyhow::Result<()> {
    anyhow::bail!("the canary is built on epoll, which is there on Linux only")
}

#[cfg(target_os = "linux")]
mod canary {
    use std::{
        collections::HashMap,
        io::{self, ErrorKind, Read, Write},
        net::{TcpListener, TcpStream},
        os::fd::AsRawFd,
    };

    use nix::{
        errno::Errno,
        sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    };

    /// The token of the listening socket; connections use their descriptor, which is never negative.
    const LISTENER: u64 = u64::MAX;
    const END_OF_HEAD: &[u8] = b"\r\n\r\n";
    const BODY: &str = concat!(
        r#"{"output":{"parameters":[{"#,
        r#""digestFront":"sha256:1111111111111111111111111111111111111111111111111111111111111111","#,
        r#""digestBack":"sha256:2222222222222222222222222222222222222222222222222222222222222222""#,
        "}]}}",
    );

    pub(crate) struct Canary {
        epoll: Epoll,
        listener: TcpListener,
        connections: HashMap<u64, TcpStream>,
        answer: Vec<u8>,
    }

    impl Canary {
        pub(crate) fn bind(address: &str) -> anyhow::Result<Self> {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
                BODY.len(),
            );
            Ok(Self { epoll, listener, connections: HashMap::new(), answer: answer.into_bytes() })
        }

        pub(crate) fn run(mut self) -> anyhow::Result<()> {
            let mut events = [EpollEvent::empty(); 128];
            let mut buffer = [0_u8; 16 * 1024];
            loop {
                let ready = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                    Ok(ready) => ready,
                    Err(Errno::EINTR) => continue,
                    Err(error) => return Err(error.into()),
                };
                for event in &events[..ready] {
                    match event.data() {
                        LISTENER => self.accept()?,
                        token => self.serve(token, &mut buffer),
                    }
                }
            }
        }

        fn accept(&mut self) -> anyhow::Result<()> {
            loop {
                let stream = match self.listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error.into()),
                };
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                let token = u64::try_from(stream.as_raw_fd())?;
                self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, token))?;
                self.connections.insert(token, stream);
            }
        }

        /// Answers one read; a connection that ended or failed is closed by dropping it.
        fn serve(&mut self, token: u64, buffer: &mut [u8]) {
            let Some(stream) = self.connections.get_mut(&token) else {
                return;
            };
            if !answer_one(stream, &self.answer, buffer).unwrap_or(false) {
                self.connections.remove(&token);
            }
        }
    }

    /// Whether the connection is still open.
    fn answer_one(stream: &mut TcpStream, answer: &[u8], buffer: &mut [u8]) -> io::Result<bool> {
        let length = match stream.read(buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
        };
        if holds_end_of_head(&buffer[..length]) {
            stream.write_all(answer)?;
        }
        Ok(length > 0)
    }

    fn holds_end_of_head(request: &[u8]) -> bool {
        request.windows(END_OF_HEAD.len()).any(|window| window == END_OF_HEAD)
    }
}

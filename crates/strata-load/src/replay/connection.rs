//! Connections: opened with waiting, then used without. The messages are those of the crate postgres-protocol.

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Where the server is, and as whom to connect.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub database: String,
    pub password: Option<String>,
}

pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

macro_rules! either {
    ($stream:expr, $inner:ident => $what:expr) => {
        match $stream {
            Stream::Unix($inner) => $what,
            Stream::Tcp($inner) => $what,
        }
    };
}

impl Stream {
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        either!(self, inner => inner.read(buffer))
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, inner => inner.write(bytes))
    }

    fn prepare(&self, waiting: Option<Duration>) -> io::Result<()> {
        if let Stream::Tcp(inner) = self {
            inner.set_nodelay(true)?;
        }
        either!(self, inner => {
            inner.set_read_timeout(waiting)?;
            inner.set_nonblocking(waiting.is_none())
        })
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        either!(self, inner => inner.as_fd())
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

impl Target {
    /// Opens a connection that is ready for statements and does not wait any more.
    pub(super) fn connect(&self) -> io::Result<Stream> {
        let mut stream = if self.host.starts_with('/') {
            Stream::Unix(UnixStream::connect(format!("{}/.s.PGSQL.{}", self.host, self.port))?)
        } else {
            Stream::Tcp(TcpStream::connect((self.host.as_str(), self.port))?)
        };
        stream.prepare(Some(PATIENCE))?;
        let mut out = BytesMut::new();
        let parameters = [
            ("user", self.user.as_str()),
            ("database", self.database.as_str()),
            ("application_name", "strata-load"),
            ("client_encoding", "UTF8"),
        ];
        frontend::startup_message(parameters, &mut out)?;
        send(&mut stream, &mut out)?;
        self.authenticate(&mut stream, &mut out)?;
        stream.prepare(None)?;
        Ok(stream)
    }

    fn authenticate(&self, stream: &mut Stream, out: &mut BytesMut) -> io::Result<()> {
        let mut input = BytesMut::new();
        let mut scram: Option<ScramSha256> = None;
        let password = || {
            let missing = || {
                io::Error::other(
                    "the server asks for a password, and neither PGPASSWORD nor PGPASSFILE has one",
                )
            };
            self.password.as_deref().ok_or_else(missing)
        };
        loop {
            match receive(stream, &mut input)? {
                Message::AuthenticationOk => {}
                Message::AuthenticationCleartextPassword => {
                    frontend::password_message(password()?.as_bytes(), out)?
                }
                Message::AuthenticationMd5Password(body) => {
                    let hash = md5_hash(self.user.as_bytes(), password()?.as_bytes(), body.salt());
                    frontend::password_message(hash.as_bytes(), out)?;
                }
                Message::AuthenticationSasl(_) => {
                    let state = ScramSha256::new(password()?.as_bytes(), ChannelBinding::unsupported());
                    frontend::sasl_initial_response(SCRAM_SHA_256, state.message(), out)?;
                    scram = Some(state);
                }
                Message::AuthenticationSaslContinue(body) => {
                    let state = scram.as_mut().ok_or_else(|| io::Error::other("SCRAM out of order"))?;
                    state.update(body.data())?;
                    frontend::sasl_response(state.message(), out)?;
                }
                Message::AuthenticationSaslFinal(body) => {
                    scram
                        .as_mut()
                        .ok_or_else(|| io::Error::other("SCRAM out of order"))?
                        .finish(body.data())?;
                }
                Message::ReadyForQuery(_) => return Ok(()),
                Message::ErrorResponse(body) => {
                    let fields = body.fields().filter(|field| Ok(field.type_() == b'M')).next()?;
                    let why = fields.map(|field| String::from_utf8_lossy(field.value_bytes()).into_owned());
                    return Err(io::Error::other(why.unwrap_or_default()));
                }
                Message::ParameterStatus(_) | Message::BackendKeyData(_) | Message::NoticeResponse(_) => {}
                _ => return Err(io::Error::other("an authentication that is not supported")),
            }
            send(stream, out)?;
        }
    }
}

fn send(stream: &mut Stream, out: &mut BytesMut) -> io::Result<()> {
    while !out.is_empty() {
        let sent = stream.write(out)?;
        let _ = out.split_to(sent);
    }
    Ok(())
}

fn receive(stream: &mut Stream, input: &mut BytesMut) -> io::Result<Message> {
    let mut buffer = [0; 4096];
    loop {
        if let Some(message) = Message::parse(input)? {
            return Ok(message);
        }
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => input.extend_from_slice(&buffer[..count]),
        }
    }
}

/// The password of PGPASSWORD, else of the first line of PGPASSFILE that fits.
pub(super) fn password(host: &str, port: u16, user: &str, database: &str) -> Option<String> {
    std::env::var("PGPASSWORD").ok().or_else(|| {
        let text = std::fs::read_to_string(std::env::var_os("PGPASSFILE")?).ok()?;
        let wanted = [host, &port.to_string(), database, user];
        text.lines().find_map(|line| {
            let mut fields = line.splitn(5, ':');
            let fits =
                wanted.iter().all(|want| fields.next().is_some_and(|field| field == "*" || field == *want));
            if fits { fields.next().map(str::to_owned) } else { None }
        })
    })
}

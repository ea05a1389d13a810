//! Connections that are made on a thread of their own: whoever drives a client is not held up by a server that does not answer.
//!
//! A [`Connect`] is asked from time to time ([`ClientOptions::retry_ns`]). The first time it begins and says that it is at it; later it
//! gives what has come of that. A server that could not be reached is left alone for a while.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use thermocline_base::clock::Clock;

#[cfg(doc)]
use crate::client::ClientOptions;
use crate::transport::{Connect, LinkError, Transport};

/// A server that was not reached is tried again after this time.
const AGAIN: Duration = Duration::from_secs(1);

/// The result that a thread gives back.
type Made = (Box<dyn Connect>, Result<Box<dyn Transport>, LinkError>);

/// See the module.
#[derive(Debug)]
pub struct Connecting {
    address: String,
    clock: Arc<dyn Clock>,
    /// `None`: a thread has it.
    inner: Option<Box<dyn Connect>>,
    under_way: Option<Receiver<Made>>,
    not_before_ns: u64,
    last: String,
}

impl Connecting {
    /// Over the connections of `inner`.
    #[must_use]
    pub fn new(inner: Box<dyn Connect>, clock: Arc<dyn Clock>) -> Self {
        let last = "it is being connected to".to_owned();
        Self { address: inner.address(), clock, inner: Some(inner), under_way: None, not_before_ns: 0, last }
    }

    fn begin(&mut self) -> std::io::Result<()> {
        let (sender, receiver) = channel();
        let mut inner = self.inner.take().expect("no thread has it");
        let thread = std::thread::Builder::new().name("thermocline-connect".to_owned());
        // What is moved into a thread that cannot be had is gone; so it goes by a second channel once the thread is there.
        let (give, take) = channel::<Box<dyn Connect>>();
        let spawned = thread.spawn(move || {
            if let Ok(mut inner) = take.recv() {
                let made = inner.connect();
                // The client that waits for it may have ended.
                let _ = sender.send((inner, made));
            }
        });
        match spawned {
            Ok(_) => {
                if let Err(back) = give.send(inner) {
                    inner = back.0;
                    self.inner = Some(inner);
                } else {
                    self.under_way = Some(receiver);
                }
                Ok(())
            }
            Err(error) => {
                self.inner = Some(inner);
                Err(error)
            }
        }
    }
}

impl Connect for Connecting {
    fn connect(&mut self) -> Result<Box<dyn Transport>, LinkError> {
        if let Some(receiver) = &self.under_way {
            match receiver.try_recv() {
                Ok((inner, made)) => {
                    (self.inner, self.under_way) = (Some(inner), None);
                    return made.inspect_err(|error| {
                        self.last = error.to_string();
                        self.not_before_ns = self.clock.now_ns() + AGAIN.as_nanos() as u64;
                    });
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => panic!("a thread that connects gives its result back"),
            }
        } else if self.clock.now_ns() >= self.not_before_ns {
            self.begin()?;
        }
        // As it was last time, as long as nothing else is known.
        Err(LinkError::Io(std::io::Error::new(std::io::ErrorKind::WouldBlock, self.last.clone())))
    }

    fn address(&self) -> String {
        self.address.clone()
    }
}

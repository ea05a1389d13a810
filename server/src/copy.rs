//! COPY: rows as text in CopyData messages, both ways.

use std::cell::RefCell;
use std::pin::pin;

use bytes::{BufMut, BytesMut};
use thermocline_sql::{Cause, Column, CopyFormat, Datum, Error, Outlet, Prepared, Rows, Zone};
use tokio::time::Instant;

use crate::connection::{Connection, End, ended_by, interruptible, running};
use crate::message::Message;
use crate::out::{Out, Way};
use crate::wire;

/// Rows that a COPY TO sends.
pub(crate) struct CopySink<'s> {
    pub(crate) out: &'s RefCell<Out>,
    pub(crate) outlet: &'s Outlet,
    pub(crate) columns: &'s [Column],
    pub(crate) format: &'s CopyFormat,
    /// The zone in which times are shown.
    pub(crate) zone: Zone,
    pub(crate) start: usize,
    pub(crate) text: String,
    pub(crate) line: Vec<u8>,
}

impl CopySink<'_> {
    fn put_line(&mut self) -> usize {
        let bytes = self.line.len() + 5;
        let mut out = self.out.borrow_mut();
        out.put_u8(b'd');
        out.put_i32(self.line.len() as i32 + 4);
        out.put_slice(&self.line);
        self.line.clear();
        out.cut();
        bytes
    }

    /// Writes the names of the columns, if they are wanted.
    pub(crate) fn header(&mut self) {
        self.format.header(self.columns, &mut self.line);
        if !self.line.is_empty() {
            self.put_line();
        }
        self.start = self.out.borrow().end();
    }
}

impl Rows for CopySink<'_> {
    fn row(&mut self, row: &[Datum]) -> usize {
        self.format.line(self.columns, row, &self.zone, &mut self.text, &mut self.line);
        self.put_line()
    }

    fn restart(&mut self) {
        self.out.borrow_mut().shorten(self.start);
    }

    fn outlet(&self) -> Option<&Outlet> {
        Some(self.outlet)
    }
}

/// Writes a CopyInResponse (`G`) or CopyOutResponse (`H`): text in all columns.
pub(crate) fn put_response(out: &mut BytesMut, kind: u8, columns: usize) {
    out.put_u8(kind);
    out.put_i32(7 + 2 * columns as i32);
    out.put_u8(0);
    out.put_i16(columns as i16);
    (0..columns).for_each(|_| out.put_i16(0));
}

impl Connection {
    /// Takes rows from the client until it has no more; returns the tag.
    pub(crate) async fn copy_in(
        &mut self,
        statement: &Prepared,
        columns: usize,
    ) -> Result<Result<String, Error>, End> {
        let mut copy = match self.session.copy_begin(statement) {
            Ok(copy) => copy,
            Err(error) => return Ok(Err(error)),
        };
        // A request to cancel may come as soon as the client hears that the COPY has begun.
        if self.peer.interrupt.raised() != Some(Cause::Shutdown) {
            self.peer.interrupt.clear();
        }
        put_response(&mut self.out, b'G', columns);
        self.flush().await?;
        // The time that a statement may take is that of the whole COPY.
        let late = self.session.statement_timeout().map(|limit| Instant::now() + limit);
        loop {
            let Some(message) = self.message()? else {
                if let Some(cause) = self.read_until(late).await? {
                    return Ok(Err(cause.error()));
                }
                continue;
            };
            match message {
                Message::CopyData(data) => {
                    let work = self.session.copy_data(&mut copy, &data);
                    let left = late.map(|late| late.saturating_duration_since(Instant::now()));
                    let ran = running((&self.peer, &self.stream), left, None, pin!(work)).await;
                    if let Err(error) = ran {
                        return ended_by(error).map(Err);
                    }
                }
                Message::CopyDone => {
                    let left = late.map(|late| late.saturating_duration_since(Instant::now()));
                    let work = self.session.copy_end(copy);
                    let ran = running((&self.peer, &self.stream), left, None, pin!(work)).await;
                    return match ran {
                        Ok(answer) => Ok(Ok(answer.tag)),
                        Err(error) => ended_by(error).map(Err),
                    };
                }
                Message::CopyFail(why) => {
                    let message = format!("COPY from stdin failed: {why}");
                    return Ok(Err(Error::new("57014", message)));
                }
                // A client sends these behind the COPY without waiting for it.
                Message::Flush | Message::Sync => {}
                Message::NoText(_, error) => return Ok(Err(error)),
                _ => return Err(Error::new("08P01", "unexpected message during COPY from stdin").into()),
            }
        }
    }

    /// Sends the rows of a COPY TO; returns the tag.
    pub(crate) async fn copy_out(
        &mut self,
        statement: &mut Prepared,
        format: &CopyFormat,
    ) -> Result<Result<String, Error>, End> {
        let columns = statement.columns().to_vec();
        let start = self.out.end();
        put_response(&mut self.out, b'H', columns.len());
        let (text, line) = (String::new(), Vec::new());
        let zone = self.session.local().zone;
        let out = RefCell::new(std::mem::take(&mut self.out));
        let (outlet, columns) = (&self.outlet, &columns);
        let mut sink = CopySink { out: &out, outlet, columns, format, zone, start: 0, text, line };
        sink.header();
        let limit = self.session.statement_timeout();
        let ran = {
            let work = self.session.execute_to(statement, Vec::new(), &mut sink);
            let way = Way { outlet, out: &out, counts: &self.shared.counts, is_amid: &self.is_amid };
            interruptible((&self.peer, &self.stream), limit, Some(&way), pin!(work)).await
        };
        self.out = out.into_inner();
        match ran {
            Ok(answer) => {
                self.held.extend(answer.held);
                wire::put_bare(&mut self.out, b'c');
                Ok(Ok(answer.tag))
            }
            Err(error) => {
                self.out.shorten(start);
                ended_by(error).map(Err)
            }
        }
    }
}

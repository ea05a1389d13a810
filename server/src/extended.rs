//! The extended protocol: statements and portals by name.

use std::cell::RefCell;
use std::rc::Rc;

use pgwire::messages::data::ParameterDescription;
use thermocline_sql::{Column, Datum, Error, Prepared, Remainder, Type};

use crate::connection::{Connection, End};
use crate::message::{Bind, Target};
use crate::wire::{self, Formats};

/// A statement that was parsed.
pub(crate) struct Statement {
    /// Taken out while it runs; none for an empty text.
    prepared: RefCell<Option<Box<Prepared>>>,
    parameters: Vec<Type>,
    columns: Rc<[Column]>,
    returns_rows: bool,
    only_reads: bool,
    is_boundary: bool,
    is_empty: bool,
}

/// A statement with values.
pub(crate) struct Portal {
    statement: Rc<Statement>,
    columns: Rc<[Column]>,
    parameters: Vec<Datum>,
    formats: Formats,
    progress: Progress,
    /// The tag of the statement, once it has run.
    tag: String,
}

enum Progress {
    Ready,
    /// Some rows were sent, these are left.
    Suspended(Remainder),
    Done,
}

/// Greatest number of parameters; their count has 16 bits.
const MAX_PARAMETERS: usize = u16::MAX as usize;

impl Connection {
    pub(crate) fn parse(&mut self, name: String, text: &str, oids: &[u32]) -> Result<(), Error> {
        if !name.is_empty() && self.statements.contains_key(&name) {
            return Err(Error::new("42P05", format!("prepared statement \"{name}\" already exists")));
        }
        let mut types = Vec::with_capacity(oids.len());
        for (place, oid) in oids.iter().enumerate() {
            types.push(match oid {
                0 => Type::Unknown,
                oid => Type::from_oid(*oid).ok_or_else(|| {
                    let message =
                        format!("the type with OID {oid} of parameter ${} is not supported yet", place + 1);
                    Error::new("0A000", message)
                })?,
            });
        }
        let mut all = self.session.parse(text)?;
        if all.len() > 1 {
            return Err(Error::new("42601", "cannot insert multiple commands into a prepared statement"));
        }
        let mut prepared = all.pop();
        if let Some(prepared) = &mut prepared {
            self.session.describe(prepared, &types)?;
        }
        let known = prepared.as_ref();
        let statement = Statement {
            parameters: known.map_or(Vec::new(), |it| it.parameters().to_vec()),
            columns: known.map_or(Rc::from([]), |it| it.columns().into()),
            returns_rows: known.is_some_and(Prepared::returns_rows),
            only_reads: known.is_some_and(Prepared::only_reads),
            is_boundary: known.is_some_and(Prepared::is_boundary),
            is_empty: known.is_none(),
            prepared: RefCell::new(prepared.map(Box::new)),
        };
        if statement.parameters.len() > MAX_PARAMETERS {
            return Err(Error::new("54023", format!("a statement has at most {MAX_PARAMETERS} parameters")));
        }
        self.statements.insert(name, Rc::new(statement));
        wire::put_bare(&mut self.out, b'1');
        Ok(())
    }

    pub(crate) fn bind(&mut self, bind: Bind) -> Result<(), Error> {
        let (name, portal) = (bind.statement, bind.portal);
        let statement = self.statement(&name)?;
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            return Err(Error::new("42P03", format!("cursor \"{portal}\" already exists")));
        }
        let (given, needed) = (bind.values.len(), statement.parameters.len());
        if given != needed {
            let message = format!(
                "bind message supplies {given} parameters, but prepared statement \"{name}\" requires {needed}"
            );
            return Err(Error::new("08P01", message));
        }
        let Some(formats) = Formats::new(&bind.formats, given) else {
            return Err(Error::new("08P01", "bind message has wrong parameter formats"));
        };
        let local = self.session.local();
        let mut parameters = Vec::with_capacity(given);
        for (place, (value, ty)) in bind.values.iter().zip(&statement.parameters).enumerate() {
            parameters.push(match value {
                None => Datum::Null,
                Some(bytes) if formats.is_binary(place) => Datum::read_binary(bytes, *ty)?,
                Some(bytes) => {
                    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
                    let wrong = || {
                        let message = format!(
                            "invalid byte sequence for encoding \"UTF8\" in parameter ${}",
                            place + 1
                        );
                        Error::new("22021", message)
                    };
                    Datum::read(text.ok_or_else(wrong)?, *ty, &local)?
                }
            });
        }
        let columns = self.columns_now(&statement)?;
        let Some(formats) = Formats::new(&bind.results, columns.len()) else {
            let (given, has) = (bind.results.len(), columns.len());
            let message = format!("bind message has {given} result formats but query has {has} columns");
            return Err(Error::new("08P01", message));
        };
        let (progress, tag) = (Progress::Ready, String::new());
        self.portals.insert(portal, Portal { statement, columns, parameters, formats, progress, tag });
        wire::put_bare(&mut self.out, b'2');
        Ok(())
    }

    /// The columns that a statement returns: what it says of others (a cursor, SQL's prepared statement) may have changed.
    fn columns_now(&mut self, statement: &Statement) -> Result<Rc<[Column]>, Error> {
        if let Some(prepared) = &mut *statement.prepared.borrow_mut()
            && prepared.names_another()
        {
            self.session.describe(prepared, &statement.parameters)?;
            return Ok(prepared.columns().into());
        }
        Ok(statement.columns.clone())
    }

    fn statement(&self, name: &str) -> Result<Rc<Statement>, Error> {
        self.statements.get(name).cloned().ok_or_else(|| {
            let shown = if name.is_empty() {
                "unnamed prepared statement does not exist".to_owned()
            } else {
                format!("prepared statement \"{name}\" does not exist")
            };
            Error::new("26000", shown)
        })
    }

    pub(crate) fn describe(&mut self, target: &Target) -> Result<(), Error> {
        let (statement, columns, formats) = match target {
            Target::Statement(name) => {
                let statement = self.statement(name)?;
                let types = statement.parameters.iter().map(|ty| ty.oid()).collect();
                wire::put(&mut self.out, &ParameterDescription::new(types));
                (statement.clone(), statement.columns.clone(), Formats::TEXT)
            }
            Target::Portal(name) => {
                // A cursor is a portal, too.
                if let Some(columns) = self.session.cursor_columns(name) {
                    wire::put_columns(&mut self.out, &columns, &Formats::TEXT);
                    return Ok(());
                }
                let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
                (portal.statement.clone(), portal.columns.clone(), portal.formats.clone())
            }
        };
        if statement.returns_rows {
            wire::put_columns(&mut self.out, &columns, &formats);
        } else {
            wire::put_bare(&mut self.out, b'n');
        }
        Ok(())
    }

    pub(crate) async fn execute(&mut self, name: &str, max_rows: i32) -> Result<Result<(), Error>, End> {
        let Some(mut portal) = self.portals.remove(name) else { return Ok(Err(no_portal(name))) };
        let statement = portal.statement.clone();
        if statement.is_empty {
            wire::put_bare(&mut self.out, b'I');
            self.portals.insert(name.to_owned(), portal);
            return Ok(Ok(()));
        }
        // Sync at once: the statement is its own transaction, unless its rows are fetched in one that lasts.
        let is_fetched = max_rows > 0 && statement.returns_rows && statement.only_reads;
        let alone = self.input.first() == Some(&b'S') && !is_fetched;
        if !alone
            && !statement.is_boundary
            && let Err(error) = self.session.begin_implicit()
        {
            return Ok(Err(error));
        }
        let ran = self.advance(&mut portal, max_rows).await?;
        self.portals.insert(name.to_owned(), portal);
        Ok(ran)
    }

    /// Runs a portal, or goes on with it.
    async fn advance(&mut self, portal: &mut Portal, max_rows: i32) -> Result<Result<(), Error>, End> {
        let statement = portal.statement.clone();
        let most = usize::try_from(max_rows).unwrap_or(0);
        let progress = std::mem::replace(&mut portal.progress, Progress::Done);
        let remainder = match progress {
            Progress::Ready => {
                let Some(mut prepared) = statement.prepared.take() else {
                    return Ok(Err(Error::new("55000", "the prepared statement is running already")));
                };
                let parameters = std::mem::take(&mut portal.parameters);
                let ran = if most == 0 || !statement.returns_rows {
                    let ran =
                        self.run_statement(&mut prepared, &portal.columns, &portal.formats, parameters).await;
                    ran.map(|ran| ran.map(|tag| (tag, None)))
                } else {
                    let ran = self.open_portal(&mut prepared, parameters).await;
                    ran.map(|ran| ran.map(|(tag, remainder)| (tag, Some(remainder))))
                };
                statement.prepared.replace(Some(prepared));
                match ran? {
                    Err(error) => return Ok(Err(error)),
                    Ok((tag, None)) => {
                        portal.tag.clone_from(&tag);
                        wire::put_complete(&mut self.out, &tag);
                        return Ok(Ok(()));
                    }
                    Ok((tag, Some(remainder))) => {
                        portal.tag = tag;
                        Some(remainder)
                    }
                }
            }
            Progress::Suspended(remainder) => Some(remainder),
            Progress::Done if statement.returns_rows => None,
            Progress::Done => {
                return Ok(Err(Error::new("55000", "portal cannot be run")));
            }
        };
        self.fetch(portal, remainder, most).await
    }

    /// Sends this number of a portal's rows (0: all), and what is to be said behind them. The client's socket decides how fast.
    async fn fetch(
        &mut self,
        portal: &mut Portal,
        remainder: Option<Remainder>,
        most: usize,
    ) -> Result<Result<(), Error>, End> {
        let count = match &remainder {
            Some(remainder) => {
                let columns = portal.columns.clone();
                match self.fetch_portal(remainder, most, (&columns, &portal.formats)).await? {
                    Ok(count) => count,
                    Err(error) => return Ok(Err(error)),
                }
            }
            None => 0,
        };
        match remainder {
            Some(remainder) if most > 0 && count == most as u64 => {
                portal.progress = Progress::Suspended(remainder);
                wire::put_bare(&mut self.out, b's');
            }
            _ => {
                // A query counts what is sent now; a change what it has changed, whenever its rows are fetched.
                let is_query = portal.tag.is_empty() || portal.tag.starts_with("SELECT ");
                let tag = if is_query { format!("SELECT {count}") } else { portal.tag.clone() };
                wire::put_complete(&mut self.out, &tag);
            }
        }
        Ok(Ok(()))
    }

    pub(crate) fn close(&mut self, target: &Target) {
        match target {
            Target::Statement(name) => drop(self.statements.remove(name)),
            Target::Portal(name) => drop(self.portals.remove(name)),
        }
        wire::put_bare(&mut self.out, b'3');
    }
}

fn no_portal(name: &str) -> Error {
    Error::new("34000", format!("portal \"{name}\" does not exist"))
}

//! SQL's PREPARE, EXECUTE and DEALLOCATE. Clients' own prepared statements are theirs (the protocol's), under names of their own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::{Answer, Prepared, Session};
use crate::bind::Binder;
use crate::error::{Error, Result};
use crate::exec::Rows;
use crate::expr::{Context, Env};
use crate::parser::ast::{Expr, TypeName};
use crate::types::Column;
use crate::types::Type;

#[derive(Default)]
pub(super) struct Prepares(HashMap<String, Slot>);

/// A statement, which is taken out while it runs.
type Slot = Rc<RefCell<Option<Prepared>>>;

/// A statement that runs. It goes back into its slot however that ends: a future that is dropped ends nothing but its run.
struct Running(Slot, Option<Prepared>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.replace(self.1.take());
    }
}

impl Prepares {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

fn missing(name: &str) -> Error {
    Error::new("26000", format!("prepared statement \"{name}\" does not exist"))
}

impl Session {
    pub(super) fn prepare_named(
        &mut self,
        name: &str,
        types: &[TypeName],
        statement: &str,
    ) -> Result<Answer> {
        if self.prepares.0.contains_key(name) {
            return Err(Error::new("42P05", format!("prepared statement \"{name}\" already exists")));
        }
        let types =
            types.iter().map(|ty| Binder::type_of(ty).map(|(ty, _)| ty)).collect::<Result<Vec<Type>>>()?;
        let prepared = self.prepare(statement, &types)?;
        self.prepares.0.insert(name.to_owned(), Rc::new(RefCell::new(Some(prepared))));
        Ok(Answer::tagged("PREPARE"))
    }

    pub(super) fn named_columns(&self, name: &str) -> Result<Vec<Column>> {
        let slot = self.prepares.0.get(name).ok_or_else(|| missing(name))?;
        Ok(slot.borrow().as_ref().map_or(Vec::new(), |prepared| prepared.columns().to_vec()))
    }

    pub(super) async fn execute_named(
        &mut self,
        name: &str,
        args: &[Expr],
        rows: &mut dyn Rows,
    ) -> Result<Answer> {
        let slot = self.prepares.0.get(name).ok_or_else(|| missing(name))?.clone();
        let types = slot.borrow().as_ref().map_or(Vec::new(), |prepared| prepared.parameters().to_vec());
        if types.len() != args.len() {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            let detail = format!("Expected {} parameters but got {}.", types.len(), args.len());
            return Err(Error::new("42601", message).detail(detail));
        }
        let mut values = Vec::with_capacity(args.len());
        let context =
            Context { now: self.now_us(), sequences: Some(self.sequences.clone()), ..Context::default() };
        for (arg, ty) in args.iter().zip(types) {
            let catalog = self.catalog();
            let mut binder = Binder::new(&catalog, Vec::new(), self.now_us());
            let bound = binder.argument(arg, ty)?;
            values.push(bound.eval(&Env { row: &[], outer: &[], context: &context })?);
        }
        let taken = slot.take();
        let mut running = Running(slot, taken);
        let Some(prepared) = &mut running.1 else {
            return Err(Error::new("55000", "the prepared statement is running already"));
        };
        let ran = Box::pin(self.rows_statement(prepared, values, rows, true)).await;
        ran.map_err(Error::nowhere)
    }

    pub(super) fn deallocate(&mut self, name: Option<&str>) -> Result<Answer> {
        match name {
            Some(name) => {
                self.prepares.0.remove(name).ok_or_else(|| missing(name))?;
                Ok(Answer::tagged("DEALLOCATE"))
            }
            None => {
                self.prepares.clear();
                Ok(Answer::tagged("DEALLOCATE ALL"))
            }
        }
    }
}

//! `thermocline sql DIR`: statements from the command line or standard input, answers as tables.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use thermocline_engine::{Database, Options};
use thermocline_sql::{Answer, Session, Type};

use crate::opened;
use thermocline_bench::command_line::Failure;
use thermocline_bench::command_line::paging::PagingArguments;
use thermocline_bench::command_line::values;

/// Options of `sql`.
#[derive(Debug, Args)]
pub(crate) struct Sql {
    /// The directory of a database that no process has open; a new one is made in an empty directory with --create
    dir: PathBuf,
    /// Statements, separated by semicolons; without them, standard input is read
    #[arg(short, long, value_name = "STATEMENTS")]
    command: Vec<String>,
    /// Makes a database if the directory is empty or missing
    #[arg(long)]
    create: bool,
    /// Most memory for the database's rows and indexes
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory_limit: Option<u64>,
    #[command(flatten)]
    paging: PagingArguments,
}

/// Runs the statements in order, until one fails.
pub(crate) fn run(arguments: &Sql) -> Result<(), Failure> {
    let dir = &arguments.dir;
    if !arguments.create {
        opened::is_there(dir)?;
    }
    let options = Options::default().with_memory_limit(arguments.memory_limit);
    let (options, _servers) = arguments.paging.options(options)?;
    let database = if arguments.create {
        Database::open(dir, options)
            .map_err(|error| Failure::Failed(format!("cannot open {}: {error}", dir.display())))?
    } else {
        opened::with(dir, options)?
    };
    let mut texts = arguments.command.clone();
    if texts.is_empty() {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| Failure::Failed(format!("cannot read standard input: {error}")))?;
        texts.push(text);
    }
    let mut session = Session::new(&database);
    let mut outcome = Ok(());
    for text in &texts {
        outcome =
            session.run(text, |answer| print!("{}", table(&answer))).map_err(|error| located(&error, text));
        if outcome.is_err() {
            break;
        }
    }
    drop(session);
    // What was committed stays, whatever comes then.
    database.close().map_err(|error| Failure::Failed(error.to_string()))?;
    outcome
}

/// An error with the line that it is about, as psql shows it.
fn located(error: &thermocline_sql::Error, text: &str) -> Failure {
    let mut shown = format!("{} (SQLSTATE {})", error.message, error.code);
    if let Some(position) = error.position {
        let before: String = text.chars().take(position - 1).collect();
        let number = before.matches('\n').count() + 1;
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let line = text[begin..].lines().next().unwrap_or("");
        let column = before[begin..].chars().count();
        let label = format!("LINE {number}: ");
        let indent = " ".repeat(label.chars().count() + column);
        shown += &format!("\n{label}{line}\n{indent}^");
    }
    for (label, more) in [("DETAIL", &error.detail), ("HINT", &error.hint)] {
        if let Some(more) = more {
            shown += &format!("\n{label}:  {more}");
        }
    }
    Failure::Failed(shown)
}

/// The answer as psql prints it.
fn table(answer: &Answer) -> String {
    let mut out = String::new();
    for notice in &answer.notices {
        out += &format!("{}:  {}\n", notice.severity, notice.message);
    }
    if answer.columns.is_empty() {
        if !answer.tag.is_empty() {
            out += &format!("{}\n", answer.tag);
        }
        return out;
    }
    let rows: Vec<Vec<String>> = (0..answer.rows.len())
        .map(|row| {
            (0..answer.columns.len()).map(|column| answer.text(row, column).unwrap_or_default()).collect()
        })
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([answer.columns[column].name.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..answer.columns.len()).map(width).collect();
    let line = |cells: Vec<String>| format!(" {}", cells.join(" | ")).trim_end().to_owned() + "\n";
    let centred = |name: &str, width: usize| format!("{name:^width$}");
    out += &line(
        answer.columns.iter().zip(&widths).map(|(column, width)| centred(&column.name, *width)).collect(),
    );
    out += &(widths.iter().map(|width| "-".repeat(width + 2)).collect::<Vec<_>>().join("+") + "\n");
    for row in rows {
        let cells = row.into_iter().zip(&widths).zip(&answer.columns).map(|((cell, width), column)| {
            if is_number(column.ty) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        out += &line(cells.collect());
    }
    let plural = if answer.rows.len() == 1 { "" } else { "s" };
    out + &format!("({} row{plural})\n", answer.rows.len())
}

fn is_number(ty: Type) -> bool {
    matches!(ty, Type::Int2 | Type::Int4 | Type::Int8 | Type::Float4 | Type::Float8 | Type::Numeric)
}

#[cfg(test)]
mod tests {
    use super::{located, table};
    use thermocline_bench::command_line::Failure;
    use thermocline_engine::{Database, Options};
    use thermocline_sql::Session;

    #[test]
    fn answers_look_like_those_of_psql() {
        let database = Database::open_in_memory(Options::default()).expect("it opens");
        let mut session = Session::new(&database);
        let answer = session.execute("select 1 as n, 'é' as name union select 200, null order by n", &[]);
        let expected = "  n  | name\n-----+------\n   1 | é\n 200 |\n(2 rows)\n";
        assert_eq!(table(&answer.expect("it runs")), expected);
        let text = "select 1,\n  nam";
        let error = session.execute(text, &[]).expect_err("no such column");
        let Failure::Failed(shown) = located(&error, text) else { panic!("it failed") };
        let expected = "column \"nam\" does not exist (SQLSTATE 42703)\nLINE 2:   nam\n          ^";
        assert_eq!(shown, expected);
    }
}

//! Definitions that wait for other sessions' transactions, and are ended meanwhile.

use std::time::Duration;

use thermocline_engine::{Database, Options};

use crate::Running;
use crate::client::{Client, until};

/// The end of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The client asks for it.
    Cancel,
    /// `pg_cancel_backend`, called by the session that is waited for.
    ByNumber,
    StatementTimeout,
}

const DEFINITIONS: [(&str, &str, &str); 6] = [
    ("drop table t", "DROP TABLE; I", "42P01; I"),
    ("drop table other, t", "DROP TABLE; I", "42P01; I"),
    ("truncate t", "TRUNCATE TABLE; I", "0; SELECT 1; I"),
    ("alter table t add column m int default 1", "ALTER TABLE; I", "1; SELECT 1; I"),
    ("alter table t drop column n", "ALTER TABLE; I", "1; SELECT 1; I"),
    ("create index t_n on t (n)", "CREATE INDEX; I", "1; SELECT 1; I"),
];

/// Everything that there is, and its columns.
const STATE: &str = "select relname, relnatts from pg_class c join pg_namespace n on n.oid = relnamespace \
                     where nspname = 'public' order by 1";

/// Begins a definition, ends it while it waits for the holder, and checks what the client is told.
fn wait_in_vain(server: &Running, holder: &mut Client, waiter: &mut Client, definition: &str, end: End) {
    if end == End::StatementTimeout {
        waiter.say("set statement_timeout = '20ms'");
    }
    waiter.send('Q', format!("{definition}\0").as_bytes());
    let number = waiter.key.0;
    if end != End::StatementTimeout {
        // All sessions share a thread: one that is at work while another one asks waits.
        let active =
            format!("select count(*) from pg_stat_activity where pid = {number} and state = 'active'");
        until(holder, &active, "1; SELECT 1; T");
    }
    let message = match end {
        End::Cancel => {
            server.cancel(waiter.key);
            "canceling statement due to user request"
        }
        End::ByNumber => {
            assert_eq!(holder.say(&format!("select pg_cancel_backend({number})")), "t; SELECT 1; T");
            "canceling statement due to user request"
        }
        End::StatementTimeout => "canceling statement due to statement timeout",
    };
    let told = waiter.until_ready();
    let error = told.iter().find(|it| it.0 == 'E').expect("it was cancelled");
    let (code, text) = (error.field('C'), error.field('M'));
    assert_eq!((code.as_deref(), text.as_deref()), (Some("57014"), Some(message)), "{definition}, {end:?}");
}

/// A definition that is ended while it waits leaves nothing: others use the table at once, the catalogs are as they were, and the
/// session does the same again when nothing is in the way.
#[test]
fn a_definition_that_waits_is_cancelled() {
    for (definition, done, count) in DEFINITIONS {
        for end in [End::Cancel, End::ByNumber, End::StatementTimeout] {
            for uses in ["select * from t", "update t set n = n + 1"] {
                let case = format!("{definition} beside {uses}, {end:?}");
                // However busy the machine is, the wait's end is the one that is asked for.
                let options = Options::default().with_definition_wait(Duration::from_secs(3600));
                let db = Database::open_in_memory(options).expect("it opens");
                let server = Running::of(db, |config| config);
                let (mut holder, mut waiter, mut third) =
                    (server.connect(), server.connect(), server.connect());
                holder.say("create table t (id int primary key, n int); insert into t values (1, 0)");
                holder.say("create table other (id int)");
                let before = third.say(STATE);
                holder.say(&format!("begin; {uses}"));
                wait_in_vain(&server, &mut holder, &mut waiter, definition, end);
                assert_eq!(waiter.say("set statement_timeout = 0"), "SET; I", "{case}");
                assert_eq!(third.say(STATE), before, "{case}");
                let made = waiter.say("begin; create table beside (n int)");
                assert_eq!(made, "BEGIN; CREATE TABLE; T", "{case}");
                wait_in_vain(&server, &mut holder, &mut waiter, definition, end);
                // Others use the table, even before its transaction has ended.
                assert_eq!(third.say("select id from t"), "1; SELECT 1; I", "{case}");
                assert_eq!(third.say("insert into t values (2, 0)"), "INSERT 0 1; I", "{case}");
                assert_eq!(third.say("delete from t where id = 2"), "DELETE 1; I", "{case}");
                assert_eq!(waiter.say("rollback"), "ROLLBACK; I", "{case}");
                assert_eq!(third.say(STATE), before, "{case}");
                assert_eq!(holder.say("commit"), "COMMIT; I", "{case}");
                assert_eq!(waiter.say(definition), done, "{case}");
                assert_eq!(third.say("select count(*) from t"), count, "{case}");
            }
        }
    }
}

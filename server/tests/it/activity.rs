//! What clients see of each other, and how one ends what another does.

use crate::Running;
use crate::client::until;

#[test]
fn clients_see_what_others_do() {
    let server = Running::new();
    let (mut one, mut two) = (server.connect(), server.connect());
    let (first, second) = (one.key.0, two.key.0);
    two.say("begin; select 1");
    let text = "select pid, application_name, state, query, wait_event, backend_type, client_addr, xact_start is null \
                from pg_stat_activity order by pid";
    let mine = format!("{first}|it|active|{text}|null|client backend|127.0.0.1|f");
    let other =
        format!("{second}|it|idle in transaction|begin; select 1|ClientRead|client backend|127.0.0.1|f");
    assert_eq!(one.say(text), format!("{mine}; {other}; SELECT 2; I"));
    assert_eq!(two.say("select 1 / 0"), "22012; E");
    let state = format!("select state, query from pg_stat_activity where pid = {second}");
    assert_eq!(one.say(&state), "idle in transaction (aborted)|select 1 / 0; SELECT 1; I");
    two.say("rollback; set application_name = 'other'");
    assert_eq!(two.say("select 2"), "2; SELECT 1; I");
    let state =
        format!("select state, application_name, xact_start from pg_stat_activity where pid = {second}");
    assert_eq!(one.say(&state), "idle|other|null; SELECT 1; I");
    // A statement that is prepared tells of now each time.
    drop(two);
    until(&mut one, "select count(*) from pg_stat_activity", "1; SELECT 1; I");
}

#[test]
fn a_statement_is_cancelled_and_a_client_ended_by_its_number() {
    let server = Running::new();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.say("create table t (id int primary key, n int)");
    holder.say("insert into t values (1, 0)");
    holder.say("begin; update t set n = 1");
    let number = waiter.key.0;
    let active = format!("select count(*) from pg_stat_activity where pid = {number} and state = 'active'");
    waiter.send('Q', b"update t set n = 2\0");
    until(&mut holder, &active, "1; SELECT 1; T");
    assert_eq!(holder.say(&format!("select pg_cancel_backend({number})")), "t; SELECT 1; T");
    let messages = waiter.until_ready();
    assert_eq!(messages[0].field('C').as_deref(), Some("57014"));
    assert_eq!(waiter.say("select 1"), "1; SELECT 1; I");
    // Once more, to the end.
    waiter.send('Q', b"update t set n = 2\0");
    until(&mut holder, &active, "1; SELECT 1; T");
    assert_eq!(holder.say(&format!("select pg_terminate_backend({number})")), "t; SELECT 1; T");
    let messages = waiter.until_end();
    assert_eq!(messages[0].field('C').as_deref(), Some("57P01"));
    assert_eq!(messages[0].field('S').as_deref(), Some("FATAL"));
    until(&mut holder, "select count(*) from pg_stat_activity", "1; SELECT 1; T");
    // One that does nothing is ended, too; one that is not there is told of.
    let idle = server.connect();
    assert_eq!(holder.say(&format!("select pg_terminate_backend({})", idle.key.0)), "t; SELECT 1; T");
    assert_eq!(holder.say("select pg_cancel_backend(999999)"), "f; notice 01000; SELECT 1; T");
    assert_eq!(holder.say("commit; select n from t"), "COMMIT; 1; SELECT 1; I");
}

#[test]
fn advisory_locks_stand_in_pg_locks() {
    let server = Running::new();
    let (mut one, mut two) = (server.connect(), server.connect());
    one.say("select pg_advisory_lock(4294967298), pg_advisory_lock_shared(7, 8)");
    let locks = "select classid, objid, objsubid, mode, granted, pid = pg_backend_pid() from pg_locks \
                 where locktype = 'advisory' order by objsubid, granted desc";
    assert_eq!(one.say(locks), "1|2|1|ExclusiveLock|t|t; 7|8|2|ShareLock|t|t; SELECT 2; I");
    two.send('Q', b"select pg_advisory_lock(4294967298)\0");
    let wanted = "1|2|1|ExclusiveLock|t|t; 1|2|1|ExclusiveLock|f|f; 7|8|2|ShareLock|t|t; SELECT 3; I";
    until(&mut one, locks, wanted);
    let event = format!("select wait_event from pg_stat_activity where pid = {}", two.key.0);
    assert_eq!(one.say(&event), "advisory; SELECT 1; I");
    one.say("select pg_advisory_unlock_all()");
    two.until_ready();
    assert_eq!(one.say(locks), "1|2|1|ExclusiveLock|t|f; SELECT 1; I");
}

#[test]
fn tables_have_their_rows_in_the_statistics() {
    let server = Running::new();
    let mut client = server.connect();
    client.say("create schema s; create table s.t (id int primary key)");
    client.say("insert into s.t select * from generate_series(1, 10)");
    let text = "select schemaname, relname, n_live_tup, seq_scan from pg_stat_user_tables";
    assert_eq!(client.say(text), "s|t|10|null; SELECT 1; I");
}

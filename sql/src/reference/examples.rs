//! What stands in no registry: statements, and functions that the binder knows by name, each with an example.

/// Statements; each example parses.
pub(super) const STATEMENTS: &[(&str, &str)] = &[
    (
        "SELECT",
        "select a.x, count(*) from t a left join u using (id) where a.x > 1 group by a.x having count(*) > 2 order by 2 desc limit 10",
    ),
    ("SELECT DISTINCT [ON]", "select distinct on (a) a, b from t order by a, b"),
    ("UNION, INTERSECT, EXCEPT", "select a from t union all select b from u"),
    ("VALUES, TABLE", "values (1, 'one'), (2, 'two')"),
    (
        "WITH [RECURSIVE]",
        "with recursive up (n) as (select 1 union all select n + 1 from up where n < 9) select * from up",
    ),
    (
        "LATERAL, sub-queries",
        "select * from t, lateral (select max(b) from u where u.a = t.a) m where exists (select 1 from v)",
    ),
    (
        "windows",
        "select sum(a) over (partition by b order by c rows between 1 preceding and current row) from t",
    ),
    (
        "FOR UPDATE, SHARE, NO KEY UPDATE, KEY SHARE",
        "select * from t where id = 1 for update of t skip locked",
    ),
    (
        "INSERT",
        "insert into t (a, b) values (1, default) on conflict (a) do update set b = excluded.b returning *",
    ),
    ("UPDATE", "update t set a = u.a from u where u.id = t.id returning t.a"),
    ("DELETE", "delete from t using u where u.id = t.id"),
    ("COPY … FROM STDIN, TO STDOUT", "copy t (a, b) from stdin with (format csv, header)"),
    (
        "CREATE TABLE",
        "create table t (id bigint generated always as identity primary key, a int not null default 1 check (a > 0), b text unique references u (b) on delete cascade) with (tiering = auto)",
    ),
    ("ALTER TABLE", "alter table t add column c int, drop column d, rename to u"),
    (
        "ALTER TABLE … constraints",
        "alter table t add constraint c check (a > 0), drop constraint d, alter column a set not null",
    ),
    (
        "ALTER TABLE … columns",
        "alter table t alter column a type bigint using a * 2, alter b drop not null, alter c set default 1",
    ),
    (
        "ALTER TABLE … identity columns",
        "alter table t alter a add generated always as identity (start with 10), alter b drop identity if exists",
    ),
    ("ALTER TABLE, VIEW, SEQUENCE … SET SCHEMA", "alter table t set schema app"),
    ("CREATE TABLE … LIKE", "create table t (like u including all, more text)"),
    ("CREATE TABLE AS", "create table if not exists t (a, b) as select 1, 'one' with no data"),
    ("SELECT … INTO", "select a, b into t from u where a > 1"),
    ("DROP TABLE", "drop table if exists t, u cascade"),
    ("TRUNCATE", "truncate t, u restart identity cascade"),
    ("CREATE INDEX", "create unique index concurrently if not exists i on t using btree (a desc, b)"),
    ("DROP INDEX", "drop index if exists i"),
    ("CREATE SCHEMA, DROP SCHEMA", "create schema if not exists app"),
    ("CREATE SEQUENCE", "create sequence s increment by 2 start 10 owned by t.a"),
    ("ALTER SEQUENCE", "alter sequence s restart with 1"),
    ("DROP SEQUENCE", "drop sequence s"),
    ("CREATE VIEW", "create or replace view v (a) as select 1"),
    ("ALTER VIEW", "alter view v rename to w"),
    ("DROP VIEW", "drop view v"),
    ("COMMENT", "comment on column t.a is 'what it is'"),
    ("BEGIN, COMMIT, ROLLBACK", "begin isolation level repeatable read, read only"),
    ("SAVEPOINT, RELEASE, ROLLBACK TO", "rollback to savepoint a"),
    ("SET TRANSACTION", "set transaction isolation level serializable"),
    ("SET CONSTRAINTS", "set constraints all deferred"),
    ("LOCK TABLE", "lock table t in access share mode"),
    ("SET, SHOW, RESET", "set local search_path = app, public"),
    ("SET TIME ZONE", "set time zone 'Europe/Paris'"),
    ("SET ROLE NONE, SET SESSION AUTHORIZATION DEFAULT", "set session authorization default"),
    ("DISCARD ALL", "discard all"),
    ("PREPARE, EXECUTE, DEALLOCATE", "prepare p (int) as select $1 + 1"),
    ("DECLARE, FETCH, MOVE, CLOSE", "declare c scroll cursor with hold for select * from t"),
    ("EXPLAIN [ANALYZE]", "explain (analyze, format json) select * from t"),
    ("VACUUM, ANALYZE (nothing is to be done)", "vacuum analyze t"),
];

/// Groups of functions by title: name and example.
type Groups = &'static [(&'static str, &'static [(&'static str, &'static str)])];

/// Functions that no registry has, since they take any type, or know of definitions; each example runs.
pub(super) const FUNCTIONS: Groups = &[
    (
        "Of any type",
        &[
            ("concat", "concat('a', 1, true)"),
            ("concat_ws", "concat_ws(', ', 'a', null, 2)"),
            ("format", "format('%I has %s of %L', 'Table', 3, 'it''s')"),
            ("pg_typeof", "pg_typeof(1.5)"),
        ],
    ),
    (
        "Arrays",
        &[
            ("array_length", "array_length(array[1, 2, 3], 1)"),
            ("cardinality", "cardinality(array[1, 2, 3])"),
            ("array_append", "array_append(array[1, 2], 3)"),
            ("array_prepend", "array_prepend(0, array[1, 2])"),
            ("array_cat", "array_cat(array[1], array[2])"),
            ("array_remove", "array_remove(array[1, 2, 1], 1)"),
            ("array_replace", "array_replace(array[1, 2, 1], 1, 9)"),
            ("array_position", "array_position(array['a', 'b'], 'b')"),
            ("array_positions", "array_positions(array[1, 2, 1], 1)"),
            ("array_fill", "array_fill(7, array[3])"),
            ("array_to_string", "array_to_string(array[1, null, 3], ',', '-')"),
            ("string_to_array", "string_to_array('a,b', ',')"),
        ],
    ),
    (
        "That make rows",
        &[
            ("generate_series", "generate_series(1, 3)"),
            ("unnest", "unnest(array['a', 'b'])"),
            ("pg_get_keywords", "word from pg_get_keywords() where word = 'select'"),
        ],
    ),
    (
        "Sequences",
        &[
            ("nextval", "nextval('numbers_s_seq')"),
            ("currval", "currval('numbers_s_seq')"),
            ("lastval", "lastval()"),
            ("setval", "setval('numbers_s_seq', 10)"),
            ("pg_get_serial_sequence", "pg_get_serial_sequence('numbers', 's')"),
        ],
    ),
    (
        "JSON of any type",
        &[
            ("to_json", "to_json('a \"b\"'::text)"),
            ("to_jsonb", "to_jsonb(array[1, 2])"),
            ("json_build_object", "json_build_object('a', 1, 'b', null)"),
            ("jsonb_build_array", "jsonb_build_array(1, 'a', true)"),
            ("row_to_json", "row_to_json(numbers) from numbers where n = 1"),
        ],
    ),
    (
        "Definitions",
        &[
            ("current_schema", "current_schema()"),
            ("current_schemas", "current_schemas(true)"),
            ("to_regclass", "to_regclass('numbers')"),
            ("to_regtype", "to_regtype('int')"),
            ("format_type", "format_type(1043, 14)"),
            ("pg_get_indexdef", "pg_get_indexdef('numbers_pkey'::regclass)"),
            (
                "pg_get_constraintdef",
                "pg_get_constraintdef(oid) from pg_constraint where conname = 'numbers_pkey'",
            ),
            ("pg_table_is_visible", "pg_table_is_visible('numbers'::regclass)"),
            ("obj_description", "obj_description('numbers'::regclass)"),
            ("pg_get_userbyid", "pg_get_userbyid(10)"),
        ],
    ),
];

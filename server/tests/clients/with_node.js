// node-postgres against the server that PGHOST names: what an application does.
const assert = require('assert');
const { Client, Pool } = require('pg');

async function main() {
  const client = new Client({ host: process.env.PGHOST, port: Number(process.env.PGPORT), user: 'postgres', database: 'postgres' });
  await client.connect();
  await client.query(`create table items (id serial primary key, name text not null, price numeric(8, 2) check (price > 0),
    tags text[] default '{}', made timestamptz default now(), n bigint, ok boolean)`);
  await client.query('create table lines (id serial primary key, item int references items, count int default 1)');
  const made = await client.query(
    'insert into items (name, price, tags, n, ok) values ($1, $2, $3, $4, $5) returning *',
    ['pen', '1.50', ['blue', 'a "b"'], '9007199254740993', true],
  );
  assert.strictEqual(made.rows[0].id, 1);
  assert.deepStrictEqual(made.rows[0].tags, ['blue', 'a "b"']);
  assert.strictEqual(made.rows[0].n, '9007199254740993');
  assert.ok(made.rows[0].made instanceof Date);
  for (let n = 2; n <= 5; n++) await client.query({ name: 'add', text: 'insert into items (name, price) values ($1, $2)', values: [`i${n}`, n] });
  const some = await client.query('select id from items where id = any($1::int[]) order by id', [[1, 4, 77]]);
  assert.deepStrictEqual(some.rows.map((row) => row.id), [1, 4]);
  await assert.rejects(client.query('insert into lines (item) values (99)'), (error) =>
    error.code === '23503' && error.constraint === 'lines_item_fkey' && error.detail.includes('is not present in table "items"'));
  await assert.rejects(client.query('insert into items (name, price) values ($1, $2)', ['x', -1]), (error) =>
    error.code === '23514' && error.constraint === 'items_price_check');
  await client.query('begin');
  await client.query('insert into lines (item, count) values (1, 5)');
  await client.query('savepoint s');
  await assert.rejects(client.query('delete from items where id = 1'), (error) => error.code === '23503');
  await client.query('rollback to savepoint s');
  await client.query('commit');
  const sum = await client.query('select i.name, sum(l.count)::int as total from items i join lines l on l.item = i.id group by i.name');
  assert.deepStrictEqual(sum.rows, [{ name: 'pen', total: 5 }]);
  await client.query('drop table lines, items');
  await client.end();
  const pool = new Pool({ host: process.env.PGHOST, port: Number(process.env.PGPORT), user: 'postgres', database: 'postgres', max: 3 });
  const answers = await Promise.all([...Array(10).keys()].map((n) => pool.query('select $1::int * 2 as twice', [n])));
  assert.deepStrictEqual(answers.map((answer) => answer.rows[0].twice), [...Array(10).keys()].map((n) => n * 2));
  await pool.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

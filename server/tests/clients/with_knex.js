// Knex against the server that PGHOST names: its schema builder, migrations, and its queries.
const assert = require('assert');
const { ended, step } = require('./steps');
const knex = require('knex')({
  client: 'pg',
  connection: { host: process.env.PGHOST, port: Number(process.env.PGPORT), user: 'postgres', database: 'postgres' },
});

const migrations = {
  '1_authors': {
    up: (db) => db.schema.createTable('knex_authors', (t) => {
      t.increments('id');
      t.string('name', 40).notNullable().unique();
      t.date('born');
      t.timestamps(true, true);
    }),
    down: (db) => db.schema.dropTable('knex_authors'),
  },
  '2_books': {
    up: (db) => db.schema.createTable('knex_books', (t) => {
      t.bigIncrements('id');
      t.integer('author').unsigned().references('id').inTable('knex_authors').onDelete('cascade').index();
      t.string('title').notNullable();
      t.decimal('price', 10, 2).defaultTo(0);
      t.enu('state', ['new', 'used']).defaultTo('new');
      t.uuid('key');
      t.jsonb('data');
      t.boolean('sold').notNullable().defaultTo(false);
      t.unique(['author', 'title']);
    }),
    down: (db) => db.schema.dropTable('knex_books'),
  },
  '3_more': {
    up: (db) => db.schema.alterTable('knex_books', (t) => {
      t.text('note');
      t.renameColumn('sold', 'gone');
      t.string('title', 200).notNullable().alter();
      t.index(['price'], 'knex_books_by_price');
      t.dropColumn('key');
    }),
    down: (db) => db.schema.alterTable('knex_books', (t) => {
      t.dropColumn('note');
      t.renameColumn('gone', 'sold');
      t.dropIndex(['price'], 'knex_books_by_price');
    }),
  },
};
const migrationSource = {
  getMigrations: async () => Object.keys(migrations),
  getMigrationName: (name) => name,
  getMigration: async (name) => migrations[name],
};

async function main() {
  let id;
  await step('migrate', async () => {
    const [, ran] = await knex.migrate.latest({ migrationSource });
    assert.deepStrictEqual(ran, Object.keys(migrations));
    assert.deepStrictEqual((await knex.migrate.list({ migrationSource }))[1], []);
  });
  await step('introspection', async () => {
    assert.ok(await knex.schema.hasTable('knex_books'));
    assert.ok(await knex.schema.hasColumn('knex_books', 'gone'));
    assert.strictEqual((await knex('knex_books').columnInfo()).title.maxLength, 200);
  });
  await step('insert returning', async () => {
    [{ id }] = await knex('knex_authors').insert({ name: 'Ada', born: '1815-12-10' }).returning('id');
    await knex('knex_authors').insert([{ name: 'Grace' }, { name: 'Alan' }]);
  });
  await step('batch insert', () => knex.batchInsert('knex_books', [1, 2, 3].map((n) => ({ author: id, title: `b${n}`, price: n, data: { n } })), 2));
  await step('upsert', async () => {
    await knex('knex_authors').insert({ name: 'Ada' }).onConflict('name').ignore();
    await knex('knex_authors').insert({ name: 'Grace', born: '1906-12-09' }).onConflict('name').merge(['born']);
  });
  await step('join and group', async () => {
    const counted = await knex('knex_authors as a').leftJoin('knex_books as b', 'b.author', 'a.id').groupBy('a.name')
      .orderBy('a.name').select('a.name').count('b.id as n').sum('b.price as total');
    assert.deepStrictEqual(counted.map((row) => [row.name, row.n, row.total]), [['Ada', '3', '6.00'], ['Alan', '0', null], ['Grace', '0', null]]);
  });
  await step('where', async () => {
    assert.deepStrictEqual(await knex('knex_books').whereIn('id', [1, 2]).andWhere('price', '>', 1).whereNotNull('author').pluck('title'), ['b2']);
  });
  await step('jsonb', async () => {
    assert.strictEqual((await knex('knex_books').whereJsonSupersetOf('data', { n: 3 }))[0].title, 'b3');
    assert.strictEqual((await knex('knex_books').whereRaw("data ->> 'n' = ?", ['3']).first()).title, 'b3');
  });
  await step('union', async () => {
    const union = await knex.select('title').from('knex_books').where('price', 1).union(knex.select('name').from('knex_authors'));
    assert.strictEqual(union.length, 4);
  });
  await step('with', async () => {
    const cte = await knex.with('dear', knex('knex_books').where('price', '>=', 2)).select().from('dear').orderBy('id', 'desc').limit(1).offset(1);
    assert.strictEqual(cte[0].title, 'b2');
  });
  await step('errors', async () => {
    await assert.rejects(knex('knex_books').insert({ author: 99, title: 'x' }), { code: '23503' });
    await assert.rejects(knex('knex_books').insert({ author: id, title: 'x', state: 'old' }), { code: '23514' });
  });
  await step('transaction', () => knex.transaction(async (tx) => {
    await tx('knex_books').where({ title: 'b1' }).forUpdate().first();
    await tx('knex_books').where({ title: 'b1' }).increment('price', 5).update({ gone: true });
  }));
  await step('rollback', async () => {
    await assert.rejects(knex.transaction(async (tx) => {
      await tx('knex_books').del();
      throw new Error('back');
    }), /back/);
    assert.deepStrictEqual(await knex('knex_books').where('gone', true).select('title', 'price'), [{ title: 'b1', price: '6.00' }]);
  });
  await step('window', async () => {
    const rank = await knex('knex_books').select('title').rank('r', (w) => w.orderBy('price', 'desc')).orderBy('title');
    assert.deepStrictEqual(rank.map((row) => row.r), ['1', '3', '2']);
  });
  await step('delete', async () => {
    assert.strictEqual(await knex('knex_books').where('title', 'like', 'b%').whereExists(knex('knex_authors').whereRaw('knex_authors.id = author')).del(), 3);
  });
  await step('migrate back', async () => {
    await knex.migrate.rollback({ migrationSource }, true);
    assert.ok(!await knex.schema.hasTable('knex_books'));
    await knex.schema.dropTable('knex_migrations').dropTable('knex_migrations_lock');
  });
  await knex.destroy();
  ended('knex');
}

main();

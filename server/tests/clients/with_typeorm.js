// TypeORM against the server that PGHOST names: synchronize, migrations by its query runner, and its repositories.
require('reflect-metadata');
const assert = require('assert');
const { DataSource, EntitySchema, In, IsNull, Like, MoreThan, Table, TableColumn, TableForeignKey, TableIndex } = require('typeorm');

const Author = new EntitySchema({
  name: 'OrmAuthor',
  columns: {
    id: { type: 'int', primary: true, generated: 'increment' },
    name: { type: 'varchar', length: 40, unique: true },
    born: { type: 'date', nullable: true },
    made: { type: 'timestamptz', createDate: true },
    version: { type: 'int', version: true },
  },
  relations: { books: { type: 'one-to-many', target: 'OrmBook', inverseSide: 'author', cascade: true } },
});
const Book = new EntitySchema({
  name: 'OrmBook',
  columns: {
    id: { type: 'bigint', primary: true, generated: 'identity' },
    title: { type: 'text' },
    price: { type: 'numeric', precision: 10, scale: 2, nullable: true },
    data: { type: 'jsonb', nullable: true },
    tags: { type: 'text', array: true, default: '{}' },
    sold: { type: 'boolean', default: false },
  },
  relations: { author: { type: 'many-to-one', target: 'OrmAuthor', inverseSide: 'books', onDelete: 'CASCADE', nullable: false } },
  indices: [{ columns: ['title', 'price'] }],
  checks: [{ expression: '"price" >= 0' }],
});

async function main() {
  const source = await new DataSource({
    type: 'postgres', host: process.env.PGHOST, port: Number(process.env.PGPORT), username: 'postgres', database: 'postgres',
    entities: [Author, Book], synchronize: false, installExtensions: false,
  }).initialize();
  await source.synchronize();
  // Once more: it finds nothing to do.
  const left = await source.driver.createSchemaBuilder().log();
  assert.deepStrictEqual(left.upQueries.map((query) => query.query), []);
  const authors = source.getRepository('OrmAuthor');
  const books = source.getRepository('OrmBook');
  const ada = await authors.save({ name: 'Ada', born: '1815-12-10', books: [{ title: 'Notes', price: 10.5, data: { pages: 3 }, tags: ['a'] }, { title: 'Sketch', price: 3 }] });
  assert.ok(ada.id && ada.books[0].id && ada.made instanceof Date);
  await authors.insert([{ name: 'Grace' }, { name: 'Alan' }]);
  await authors.upsert({ name: 'Grace', born: '1906-12-09' }, ['name']);
  assert.strictEqual((await authors.findOneBy({ name: 'Grace' })).born, '1906-12-09');
  assert.deepStrictEqual((await authors.find({ relations: { books: true }, order: { name: 'ASC', books: { title: 'ASC' } } })).map((author) => author.books.map((book) => book.title)), [['Notes', 'Sketch'], [], []]);
  assert.strictEqual((await books.findOneBy({ price: MoreThan(5), title: Like('N%') })).data.pages, 3);
  assert.strictEqual(await authors.countBy({ name: In(['Ada', 'Alan']), born: IsNull() }), 1);
  const [page, count] = await books.findAndCount({ relations: { author: true }, order: { price: 'DESC' }, take: 1 });
  assert.deepStrictEqual([page[0].title, page[0].author.name, count], ['Notes', 'Ada', 2]);
  const counted = await authors.createQueryBuilder('a').leftJoin('a.books', 'b').select('a.name', 'name').addSelect('count(b.id)', 'n').groupBy('a.name').having('count(b.id) >= :n', { n: 0 }).orderBy('a.name').getRawMany();
  assert.deepStrictEqual(counted, [{ name: 'Ada', n: '2' }, { name: 'Alan', n: '0' }, { name: 'Grace', n: '0' }]);
  const sub = books.createQueryBuilder('b').where((qb) => `b."authorId" in ${qb.subQuery().select('a.id').from('OrmAuthor', 'a').where('a.name = :name').getQuery()}`).setParameter('name', 'Ada');
  assert.strictEqual(await sub.getCount(), 2);
  await source.transaction(async (manager) => {
    const book = await manager.findOne('OrmBook', { where: { title: 'Sketch' }, lock: { mode: 'pessimistic_write' } });
    await manager.increment('OrmBook', { id: book.id }, 'price', 5);
  });
  await assert.rejects(source.transaction('SERIALIZABLE', async (manager) => {
    await manager.delete('OrmBook', {});
    throw new Error('back');
  }));
  assert.strictEqual((await books.createQueryBuilder().update().set({ sold: true }).where('price > 9').returning('*').execute()).affected, 1);
  await assert.rejects(authors.insert({ name: 'Ada' }), { code: '23505' });
  await assert.rejects(books.insert({ title: 'x', author: { id: 99 } }), { code: '23503' });
  await assert.rejects(books.insert({ title: 'x', author: ada, price: -1 }), { code: '23514' });
  const runner = source.createQueryRunner();
  await runner.createTable(new Table({
    name: 'orm_loans',
    columns: [{ name: 'id', type: 'uuid', isPrimary: true }, { name: 'at', type: 'timestamp', default: 'now()' }, { name: 'book', type: 'bigint', isNullable: true }],
  }), true);
  await runner.addColumn('orm_loans', new TableColumn({ name: 'note', type: 'varchar', length: '20', isNullable: true }));
  await runner.changeColumn('orm_loans', 'note', new TableColumn({ name: 'remark', type: 'varchar', length: '20', isNullable: false, default: "''" }));
  await runner.createIndex('orm_loans', new TableIndex({ name: 'orm_loans_at', columnNames: ['at'] }));
  await runner.createForeignKey('orm_loans', new TableForeignKey({ name: 'orm_loans_book', columnNames: ['book'], referencedTableName: 'orm_book', referencedColumnNames: ['id'], onDelete: 'SET NULL' }));
  const found = await runner.getTable('orm_loans');
  assert.deepStrictEqual([found.columns.length, found.indices.length, found.foreignKeys[0].onDelete], [4, 1, 'SET NULL']);
  await runner.dropForeignKey('orm_loans', 'orm_loans_book');
  await runner.dropIndex('orm_loans', 'orm_loans_at');
  await runner.dropColumn('orm_loans', 'remark');
  await runner.renameTable('orm_loans', 'orm_lent');
  await runner.dropTable('orm_lent');
  await runner.release();
  await authors.remove(await authors.findOneBy({ name: 'Ada' }));
  assert.strictEqual(await books.count(), 0);
  await source.dropDatabase();
  await source.destroy();
  console.log('  typeorm: ok');
}

main().catch((error) => {
  console.error(error.query || '', error);
  process.exit(1);
});

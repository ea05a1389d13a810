// TypeORM against the server that PGHOST names: synchronize, migrations by its query runner, and its repositories.
require('reflect-metadata');
const assert = require('assert');
const { ended, refused, step } = require('./steps');
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
    price: { type: 'numeric', precision: 10, scale: 2, default: 0 },
    data: { type: 'jsonb', nullable: true },
    tags: { type: 'text', array: true, default: '{}' },
    sold: { type: 'boolean', default: false },
  },
  relations: { author: { type: 'many-to-one', target: 'OrmAuthor', inverseSide: 'books', onDelete: 'CASCADE', nullable: false } },
  indices: [{ columns: ['title', 'price'] }],
  checks: [{ expression: '"price" >= 0' }],
});

async function main() {
  const source = new DataSource({
    type: 'postgres', host: process.env.PGHOST, port: Number(process.env.PGPORT), username: 'postgres', database: 'postgres',
    entities: [Author, Book], synchronize: false, installExtensions: false,
  });
  let authors, books, ada;
  await step('initialize', async () => {
    await source.initialize();
    authors = source.getRepository('OrmAuthor');
    books = source.getRepository('OrmBook');
  });
  await step('synchronize', () => source.synchronize());
  await step('synchronize finds nothing to do', async () => {
    const left = await source.driver.createSchemaBuilder().log();
    assert.deepStrictEqual(left.upQueries.map((query) => query.query), []);
  });
  await step('save with children', async () => {
    ada = await authors.save({ name: 'Ada', born: '1815-12-10', books: [{ title: 'Notes', price: 10.5, data: { pages: 3 }, tags: ['a'] }, { title: 'Sketch', price: 3 }] });
    assert.ok(ada.id && ada.books[0].id && ada.made instanceof Date);
  });
  await step('insert', () => authors.insert([{ name: 'Grace' }, { name: 'Alan' }]));
  await step('upsert', async () => {
    await authors.upsert({ name: 'Grace', born: '1906-12-09' }, ['name']);
    assert.strictEqual((await authors.findOneBy({ name: 'Grace' })).born, '1906-12-09');
  });
  await step('find with relations', async () => {
    const found = await authors.find({ relations: { books: true }, order: { name: 'ASC', books: { title: 'ASC' } } });
    assert.deepStrictEqual(found.map((author) => author.books.map((book) => book.title)), [['Notes', 'Sketch'], [], []]);
  });
  await step('find by operators', async () => {
    assert.strictEqual((await books.findOneBy({ price: MoreThan(5), title: Like('N%') })).data.pages, 3);
    assert.strictEqual(await authors.countBy({ name: In(['Ada', 'Alan']), born: IsNull() }), 1);
  });
  await step('find a page', async () => {
    const [page, count] = await books.findAndCount({ relations: { author: true }, order: { price: 'DESC' }, take: 1 });
    assert.deepStrictEqual([page[0].title, page[0].author.name, count], ['Notes', 'Ada', 2]);
  });
  await step('group', async () => {
    const counted = await authors.createQueryBuilder('a').leftJoin('a.books', 'b').select('a.name', 'name').addSelect('count(b.id)', 'n').groupBy('a.name').having('count(b.id) >= :n', { n: 0 }).orderBy('a.name').getRawMany();
    assert.deepStrictEqual(counted, [{ name: 'Ada', n: '2' }, { name: 'Alan', n: '0' }, { name: 'Grace', n: '0' }]);
  });
  await step('sub-query', async () => {
    const sub = books.createQueryBuilder('b').where((qb) => `b."authorId" in ${qb.subQuery().select('a.id').from('OrmAuthor', 'a').where('a.name = :name').getQuery()}`).setParameter('name', 'Ada');
    assert.strictEqual(await sub.getCount(), 2);
  });
  await step('lock', () => source.transaction(async (manager) => {
    const book = await manager.findOne('OrmBook', { where: { title: 'Sketch' }, lock: { mode: 'pessimistic_write' } });
    await manager.increment('OrmBook', { id: book.id }, 'price', 5);
  }));
  await step('rollback', () => assert.rejects(source.transaction('SERIALIZABLE', async (manager) => {
    await manager.createQueryBuilder().delete().from('OrmBook').execute();
    throw new Error('back');
  }), /back/));
  await step('update returning', async () => {
    assert.strictEqual((await books.createQueryBuilder().update().set({ sold: true }).where('price > 9').returning('*').execute()).affected, 1);
  });
  await step('errors', async () => {
    await assert.rejects(authors.insert({ name: 'Ada' }), { code: '23505' });
    await assert.rejects(books.insert({ title: 'x', author: { id: 99 } }), { code: '23503' });
    await assert.rejects(books.insert({ title: 'x', author: ada, price: -1 }), { code: '23514' });
  });
  const runner = source.createQueryRunner();
  await step('create a table', () => runner.createTable(new Table({
    name: 'orm_loans',
    columns: [
      { name: 'id', type: 'uuid', isPrimary: true }, { name: 'at', type: 'timestamp', default: 'now()' },
      { name: 'book', type: 'bigint', isNullable: true }, { name: 'fee', type: 'numeric', precision: 10, scale: 2, default: 0 },
    ],
  }), true));
  await step('columns', async () => {
    await runner.addColumn('orm_loans', new TableColumn({ name: 'note', type: 'varchar', length: '20', isNullable: true }));
    await runner.changeColumn('orm_loans', 'note', new TableColumn({ name: 'remark', type: 'varchar', length: '20', isNullable: false, default: "''" }));
  });
  await step('index and foreign key', async () => {
    await runner.createIndex('orm_loans', new TableIndex({ name: 'orm_loans_at', columnNames: ['at'] }));
    await runner.createForeignKey('orm_loans', new TableForeignKey({ name: 'orm_loans_book', columnNames: ['book'], referencedTableName: 'orm_book', referencedColumnNames: ['id'], onDelete: 'SET NULL' }));
  });
  await step('introspection', async () => {
    const found = await runner.getTable('orm_loans');
    assert.deepStrictEqual([found.columns.length, found.indices.length, found.foreignKeys[0].onDelete], [5, 1, 'SET NULL']);
    assert.strictEqual(found.findColumnByName('fee').default, "'0'");
  });
  await step('taken back', async () => {
    await runner.dropForeignKey('orm_loans', 'orm_loans_book');
    await runner.dropIndex('orm_loans', 'orm_loans_at');
    await runner.dropColumn('orm_loans', 'remark');
  });
  // It renames the primary key as well.
  await refused('rename a table', 'RENAME CONSTRAINT is not supported', () => runner.renameTable('orm_loans', 'orm_lent'));
  await step('drop a table', async () => {
    await runner.dropTable(await runner.hasTable('orm_lent') ? 'orm_lent' : 'orm_loans');
  });
  await runner.release();
  await step('remove', async () => {
    await authors.remove(await authors.findOneBy({ name: 'Ada' }));
    assert.strictEqual(await books.count(), 0);
  });
  await step('drop all', () => source.dropDatabase());
  await source.destroy();
  ended('typeorm');
}

main();

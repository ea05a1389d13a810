// Sequelize against the server that PGHOST names: sync, its query interface, and its models.
const assert = require('assert');
const { ended, refused, step } = require('./steps');
const { DataTypes, Op, Sequelize, col, fn, literal } = require('sequelize');

const sequelize = new Sequelize('postgres', 'postgres', '', {
  dialect: 'postgres', host: process.env.PGHOST, port: Number(process.env.PGPORT), logging: false,
});
const Author = sequelize.define('SeqAuthor', {
  name: { type: DataTypes.STRING(40), allowNull: false, unique: true },
  born: DataTypes.DATEONLY,
  tags: DataTypes.ARRAY(DataTypes.TEXT),
});
const Book = sequelize.define('SeqBook', {
  title: { type: DataTypes.STRING, allowNull: false },
  price: { type: DataTypes.DECIMAL(10, 2), defaultValue: 0 },
  exact: DataTypes.DECIMAL,
  data: DataTypes.JSONB,
  key: { type: DataTypes.UUID, defaultValue: DataTypes.UUIDV4 },
  sold: { type: DataTypes.BOOLEAN, defaultValue: false },
}, { indexes: [{ fields: ['title', 'price'] }, { unique: true, fields: ['key'] }], paranoid: true });
Author.hasMany(Book, { foreignKey: { name: 'authorId', allowNull: false }, onDelete: 'CASCADE', as: 'books' });
Book.belongsTo(Author, { foreignKey: 'authorId', as: 'author' });
const Tag = sequelize.define('SeqTag', { name: DataTypes.STRING });
Book.belongsToMany(Tag, { through: 'SeqBookTags', as: 'tags' });
Tag.belongsToMany(Book, { through: 'SeqBookTags', as: 'books' });

async function main() {
  const queries = sequelize.getQueryInterface();
  let ada;
  await step('authenticate', () => sequelize.authenticate());
  await step('sync', () => sequelize.sync());
  await step('sync that changes', () => sequelize.sync({ alter: true }));
  await step('sync by force', () => sequelize.sync({ force: true }));
  await step('columns', async () => {
    await queries.addColumn('SeqBooks', 'note', { type: DataTypes.TEXT });
    await queries.changeColumn('SeqBooks', 'note', { type: DataTypes.STRING(200), allowNull: false, defaultValue: '' });
    await queries.renameColumn('SeqBooks', 'note', 'remark');
  });
  await step('indexes', async () => {
    await queries.addIndex('SeqBooks', ['remark'], { name: 'seq_books_remark' });
    await queries.removeIndex('SeqBooks', 'seq_books_remark');
  });
  await step('constraints', async () => {
    await queries.addConstraint('SeqBooks', { type: 'check', fields: ['price'], where: { price: { [Op.gte]: 0 } }, name: 'seq_books_price' });
    await queries.removeColumn('SeqBooks', 'remark');
  });
  await step('introspection', async () => {
    assert.ok((await queries.showAllTables()).includes('SeqBooks'));
    assert.strictEqual((await queries.describeTable('SeqBooks')).title.type, 'CHARACTER VARYING(255)');
    assert.ok((await queries.showIndex('SeqBooks')).some((index) => index.unique));
  });
  await step('create', async () => {
    ada = await Author.create({ name: 'Ada', born: '1815-12-10', tags: ['a', 'b'], books: [{ title: 'Notes', price: '10.50', exact: '1.234', data: { pages: 3 } }] }, { include: 'books' });
    await Book.bulkCreate([2, 3].map((n) => ({ title: `b${n}`, price: n, authorId: ada.id, data: { pages: n } })));
  });
  // Sequelize catches the error of a key that is there in a function in PL/pgSQL.
  await refused('find or create', 'CREATE FUNCTION is not supported', () => Author.findOrCreate({ where: { name: 'Grace' } }));
  await step('find, create, find', async () => {
    const [grace, made] = await Author.findCreateFind({ where: { name: 'Grace' } });
    assert.ok(made && grace.id);
  });
  await step('upsert', () => Author.upsert({ name: 'Grace', born: '1906-12-09' }));
  await step('count', async () => {
    assert.strictEqual(await Book.count({ where: { price: { [Op.between]: [2, 3] }, title: { [Op.iLike]: 'B%' } } }), 2);
  });
  await step('find and count', async () => {
    const { rows, count } = await Book.findAndCountAll({ include: 'author', order: [['price', 'DESC']], limit: 2, distinct: true });
    assert.deepStrictEqual([count, rows.map((book) => book.title), rows[0].author.name, rows[0].exact], [3, ['Notes', 'b3'], 'Ada', '1.234']);
  });
  await step('group', async () => {
    const counted = await Author.findAll({
      attributes: ['name', [fn('count', col('books.id')), 'n']], include: { model: Book, as: 'books', attributes: [] },
      group: ['SeqAuthor.name'], order: ['name'], raw: true,
    });
    assert.deepStrictEqual(counted, [{ name: 'Ada', n: '3' }, { name: 'Grace', n: '0' }]);
  });
  await step('jsonb', async () => {
    assert.strictEqual((await Book.findOne({ where: { data: { pages: 3 } }, order: ['id'] })).title, 'Notes');
  });
  await step('arrays', async () => {
    assert.strictEqual((await Author.findAll({ where: { tags: { [Op.contains]: ['a'] } } })).length, 1);
  });
  await step('include with a limit', async () => {
    assert.strictEqual((await Author.findAll({ include: { model: Book, as: 'books', where: { price: { [Op.gt]: 5 } } }, limit: 1 })).length, 1);
  });
  await step('sum', async () => assert.strictEqual(await Book.sum('price'), 15.5));
  await step('many to many', async () => {
    const tag = await Tag.create({ name: 'old' });
    await (await Book.findOne({ where: { title: 'Notes' } })).addTag(tag);
    assert.deepStrictEqual((await Tag.findByPk(tag.id, { include: 'books' })).books.map((book) => book.title), ['Notes']);
  });
  await step('errors', async () => {
    await assert.rejects(Author.create({ name: 'Ada' }), { name: 'SequelizeUniqueConstraintError' });
    await assert.rejects(Book.create({ title: 'x', authorId: 99 }), { name: 'SequelizeForeignKeyConstraintError' });
    await assert.rejects(Book.create({ title: 'x', authorId: ada.id, price: -1 }), /seq_books_price/);
  });
  await step('transaction', () => sequelize.transaction(async (transaction) => {
    const book = await Book.findOne({ where: { title: 'b2' }, lock: true, transaction });
    await book.increment('price', { by: 5, transaction });
  }));
  await step('rollback', () => assert.rejects(sequelize.transaction({ isolationLevel: 'SERIALIZABLE' }, async (transaction) => {
    await Book.destroy({ where: {}, transaction });
    throw new Error('back');
  }), /back/));
  await step('update', async () => {
    await Book.update({ sold: true }, { where: { price: { [Op.gt]: literal('(select avg(price) from "SeqBooks")') } } });
    assert.strictEqual(await Book.count({ where: { sold: true } }), 2);
  });
  await step('paranoid delete', async () => {
    await Book.destroy({ where: { title: 'b3' } });
    assert.strictEqual(await Book.count(), 2);
  });
  await step('delete', () => ada.destroy());
  await step('truncate', () => Book.truncate({ cascade: true, restartIdentity: true }));
  await step('drop', () => sequelize.drop());
  await sequelize.close();
  ended('sequelize');
}

main();

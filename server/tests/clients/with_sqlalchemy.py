"""SQLAlchemy 2 over psycopg and over asyncpg: create_all, the ORM (insert, select, update, delete, upsert), JSONB and arrays, and
what reflection finds of tables, keys, indexes and constraints.

Needs sqlalchemy, psycopg, asyncpg and greenlet; PGHOST and PGPORT name the server. Definitions are made outside of transactions.
"""
import asyncio
import datetime
import decimal
import os

from sqlalchemy import (
    ARRAY, BigInteger, CheckConstraint, DateTime, ForeignKey, Index, MetaData, Numeric, String, Text, UniqueConstraint,
    create_engine, func, inspect, select,
)
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

WHERE = f"postgres@/postgres?host={os.environ['PGHOST']}&port={os.environ['PGPORT']}"


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "authors"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(40), unique=True)
    born: Mapped[datetime.date | None]
    books: Mapped[list["Book"]] = relationship(back_populates="author", cascade="all, delete-orphan")


class Book(Base):
    __tablename__ = "books"
    __table_args__ = (
        UniqueConstraint("author_id", "title", name="books_once"),
        CheckConstraint("price > 0", name="books_price"),
        Index("books_at", "at"),
        Index("books_unique", "title", "id", unique=True),
    )
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    author_id: Mapped[int] = mapped_column(ForeignKey("authors.id", ondelete="CASCADE"))
    title: Mapped[str] = mapped_column(Text)
    price: Mapped[decimal.Decimal] = mapped_column(Numeric(10, 2))
    at: Mapped[datetime.datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    data: Mapped[dict | None] = mapped_column(JSONB)
    tags: Mapped[list[str]] = mapped_column(ARRAY(Text), default=list)
    author: Mapped[Author] = relationship(back_populates="books")


def fill(session):
    notes = Book(title="Notes", price=decimal.Decimal("10.50"), data={"pages": 30, "of": {"x": [1]}}, tags=["a", "b"])
    ada = Author(name="Ada", born=datetime.date(1815, 12, 10), books=[notes, Book(title="Sketch", price=decimal.Decimal(3))])
    session.add_all([ada, Author(name="Grace")])


COUNTED = select(Author.name, func.count(Book.id)).outerjoin(Book).group_by(Author.name).order_by(Author.name)
RANKED = select(Book.title, func.rank().over(order_by=Book.price.desc())).order_by(Book.title)
PAGES = select(Book.title).where(Book.data["pages"].as_integer() == 30, Book.data.contains({"of": {"x": [1]}}))
UPSERT = insert(Author).values(id=1, name="Ada").on_conflict_do_update(index_elements=["id"], set_={"name": "Ada L."})


def psycopg():
    engine = create_engine(f"postgresql+psycopg://{WHERE}")
    definitions = engine.execution_options(isolation_level="AUTOCOMMIT")
    Base.metadata.create_all(definitions)
    with Session(engine) as session:
        fill(session)
        session.commit()
        assert session.execute(COUNTED).all() == [("Ada", 2), ("Grace", 0)]
        assert session.execute(RANKED).all() == [("Notes", 1), ("Sketch", 2)]
        assert session.scalars(PAGES).all() == ["Notes"]
        ada = session.scalars(select(Author).where(Author.name == "Ada")).one()
        ada.books[0].price = decimal.Decimal(11)
        session.commit()
        assert session.scalar(select(func.sum(Book.price))) == decimal.Decimal("14.00")
        session.execute(UPSERT)
        session.delete(ada)
        session.commit()
        assert session.scalar(select(func.count()).select_from(Book)) == 0
    seen = inspect(engine)
    assert {"authors", "books"} <= set(seen.get_table_names()) and seen.has_table("books") and not seen.has_table("nothing")
    columns = {column["name"]: column for column in seen.get_columns("books")}
    assert str(columns["price"]["type"]) == "NUMERIC(10, 2)" and columns["at"]["default"] == "now()", columns
    assert columns["id"]["autoincrement"] and str(columns["tags"]["type"]) == "ARRAY", columns
    assert seen.get_pk_constraint("books")["constrained_columns"] == ["id"]
    [key] = seen.get_foreign_keys("books")
    assert (key["referred_table"], key["referred_columns"], key["options"]) == ("authors", ["id"], {"ondelete": "CASCADE"})
    assert [it["name"] for it in seen.get_unique_constraints("books")] == ["books_once"]
    indexes = {it["name"]: (it["column_names"], it["unique"], "duplicates_constraint" in it) for it in seen.get_indexes("books")}
    assert indexes == {
        "books_at": (["at"], False, False),
        "books_once": (["author_id", "title"], True, True),
        "books_unique": (["title", "id"], True, False),
    }, indexes
    assert [it["name"] for it in seen.get_check_constraints("books")] == ["books_price"]
    found = MetaData()
    found.reflect(engine, only=["authors", "books"])
    assert sorted(found.tables) == ["authors", "books"]
    found.drop_all(definitions)


async def by_asyncpg():
    engine = create_async_engine(f"postgresql+asyncpg://{WHERE}")
    definitions = engine.execution_options(isolation_level="AUTOCOMMIT")
    async with definitions.connect() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with async_sessionmaker(engine)() as session:
        fill(session)
        await session.commit()
        assert (await session.execute(COUNTED)).all() == [("Ada", 2), ("Grace", 0)]
        assert (await session.scalars(PAGES)).all() == ["Notes"]
        tags = await session.scalars(select(Book.tags).order_by(Book.title))
        assert tags.all() == [["a", "b"], []]
        await session.execute(UPSERT)
        await session.commit()
        assert (await session.scalars(select(Author.name).order_by(Author.id))).all() == ["Ada L.", "Grace"]
    async with definitions.connect() as connection:
        await connection.run_sync(Base.metadata.drop_all)
    await engine.dispose()


psycopg()
asyncio.run(by_asyncpg())
print("  sqlalchemy: ok")

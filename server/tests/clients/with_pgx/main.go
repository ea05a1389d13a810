// pgx against the server that PGHOST names: what an application does, values in the binary format.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func check(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func expect(holds bool, what string) {
	if !holds {
		check(errors.New("not as expected"), what)
	}
}

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, "user=postgres database=postgres")
	check(err, "connect")
	defer connection.Close(ctx)
	_, err = connection.Exec(ctx, "create table shops (id bigserial primary key, name text not null, opened date, tags text[] not null default '{}', numbers bigint[], at timestamptz default now())")
	check(err, "create")
	_, err = connection.Exec(ctx, "create table sales (id serial primary key, shop bigint not null references shops on delete cascade, amount numeric(10,2) check (amount > 0))")
	check(err, "create")
	var id int64
	var at time.Time
	err = connection.QueryRow(ctx, "insert into shops (name, opened, tags, numbers) values ($1, $2, $3, $4) returning id, at",
		"one", time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC), []string{"a", "b"}, []int64{1, 2, 3}).Scan(&id, &at)
	check(err, "insert")
	expect(id == 1 && !at.IsZero(), "the row that was inserted")
	batch := &pgx.Batch{}
	for n := 0; n < 20; n++ {
		batch.Queue("insert into sales (shop, amount) values ($1, $2)", id, float64(n)+0.5)
	}
	check(connection.SendBatch(ctx, batch).Close(), "batch")
	rows, err := connection.Query(ctx, "select id from sales where id = any($1) order by id", []int32{3, 1, 900})
	check(err, "any")
	found, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	check(err, "collect")
	expect(len(found) == 2 && found[0] == 1 && found[1] == 3, "rows of a list")
	var tags []string
	var numbers []int64
	check(connection.QueryRow(ctx, "select tags, numbers from shops where id = $1", id).Scan(&tags, &numbers), "arrays")
	expect(len(tags) == 2 && len(numbers) == 3 && numbers[2] == 3, "arrays")
	_, err = connection.Exec(ctx, "insert into sales (shop, amount) values (77, 1)")
	var refused *pgconn.PgError
	expect(errors.As(err, &refused) && refused.Code == "23503" && refused.ConstraintName == "sales_shop_fkey", "a foreign key")
	transaction, err := connection.Begin(ctx)
	check(err, "begin")
	_, err = transaction.Exec(ctx, "delete from shops where id = $1", id)
	check(err, "delete")
	var count int
	check(transaction.QueryRow(ctx, "select count(*) from sales").Scan(&count), "count")
	expect(count == 0, "children go with their parent")
	check(transaction.Rollback(ctx), "rollback")
	check(connection.QueryRow(ctx, "select count(*) from sales").Scan(&count), "count")
	expect(count == 20, "a rollback brings them back")
	copied, err := connection.CopyFrom(ctx, pgx.Identifier{"sales"}, []string{"shop", "amount"}, pgx.CopyFromRows([][]any{{id, 5}}))
	// The binary format of COPY is not there yet.
	expect(err != nil && copied == 0, "COPY in binary is refused")
	_, err = connection.Exec(ctx, "drop table sales, shops")
	check(err, "drop")
}

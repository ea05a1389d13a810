// pgjdbc against the server at PGJDBC_URL: what an application does, and what tools ask of DatabaseMetaData.
import java.math.BigDecimal;
import java.sql.*;
import java.time.LocalDate;
import java.util.*;

public class WithPgjdbc {
    static void expect(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> all = new ArrayList<>();
        while (rows.next()) all.add(rows.getString(name));
        return all;
    }

    public static void main(String[] args) throws Exception {
        try (Connection c = DriverManager.getConnection(System.getenv("PGJDBC_URL"), "postgres", "")) {
            try (Statement s = c.createStatement()) {
                s.execute("create table stock (id serial primary key, name varchar(40) not null unique, price numeric(8, 2) check (price > 0),"
                    + " since date, tags text[], at timestamptz default now(), data jsonb)");
                s.execute("create table moves (id bigint generated always as identity primary key, stock int not null references stock on delete cascade, n int)");
                s.execute("create index moves_n on moves (n desc)");
            }
            try (PreparedStatement p = c.prepareStatement("insert into stock (name, price, since, tags, data) values (?, ?, ?, ?, ?::jsonb)", Statement.RETURN_GENERATED_KEYS)) {
                p.setString(1, "pen");
                p.setBigDecimal(2, new BigDecimal("1.50"));
                p.setObject(3, LocalDate.of(2024, 2, 29));
                p.setArray(4, c.createArrayOf("text", new String[] {"a", "b c"}));
                p.setString(5, "{\"n\": [1, 2]}");
                expect(p.executeUpdate() == 1, "one row");
                ResultSet keys = p.getGeneratedKeys();
                expect(keys.next() && keys.getInt("id") == 1, "its key");
            }
            // Batches, and enough executions that the driver prepares on the server and changes to the binary format.
            try (PreparedStatement p = c.prepareStatement("insert into moves (stock, n) values (1, ?)")) {
                for (int n = 0; n < 100; n++) {
                    p.setInt(1, n);
                    p.addBatch();
                }
                expect(Arrays.stream(p.executeBatch()).sum() == 100, "a batch");
            }
            try (PreparedStatement p = c.prepareStatement("select price, since, tags, data ->> 'n', at from stock where id = ? and price < ?")) {
                for (int round = 0; round < 10; round++) {
                    p.setInt(1, 1);
                    p.setBigDecimal(2, new BigDecimal("2"));
                    ResultSet r = p.executeQuery();
                    expect(r.next(), "a row");
                    expect(r.getBigDecimal(1).equals(new BigDecimal("1.50")), "numeric");
                    expect(r.getObject(2, LocalDate.class).equals(LocalDate.of(2024, 2, 29)), "date");
                    expect(Arrays.equals((String[]) r.getArray(3).getArray(), new String[] {"a", "b c"}), "array");
                    expect(r.getString(4).equals("[1, 2]") && r.getTimestamp(5) != null, "json and time");
                }
            }
            // A transaction with a savepoint, an error within, and rows read a few at a time.
            c.setAutoCommit(false);
            try (Statement s = c.createStatement()) {
                s.executeUpdate("update stock set price = 3");
                Savepoint before = c.setSavepoint("before");
                try {
                    s.executeUpdate("insert into stock (name) values ('pen')");
                    expect(false, "the name is there twice");
                } catch (SQLException e) {
                    expect(e.getSQLState().equals("23505"), e.getSQLState());
                }
                c.rollback(before);
                s.setFetchSize(7);
                long sum = 0;
                ResultSet r = s.executeQuery("select n from moves order by id");
                while (r.next()) sum += r.getInt(1);
                expect(sum == 4950, "portals");
            }
            c.rollback();
            c.setAutoCommit(true);
            DatabaseMetaData m = c.getMetaData();
            expect(column(m.getTables(null, "public", "stock", new String[] {"TABLE"}), "TABLE_NAME").equals(List.of("stock")), "getTables");
            expect(column(m.getColumns(null, "public", "stock", "%"), "COLUMN_NAME").equals(List.of("id", "name", "price", "since", "tags", "at", "data")), "getColumns");
            expect(column(m.getColumns(null, "public", "stock", "price"), "DECIMAL_DIGITS").equals(List.of("2")), "a scale");
            expect(column(m.getPrimaryKeys(null, "public", "moves"), "COLUMN_NAME").equals(List.of("id")), "getPrimaryKeys");
            expect(column(m.getImportedKeys(null, "public", "moves"), "PKTABLE_NAME").equals(List.of("stock")), "getImportedKeys");
            expect(new HashSet<>(column(m.getIndexInfo(null, "public", "moves", false, false), "INDEX_NAME")).equals(Set.of("moves_pkey", "moves_n")), "getIndexInfo");
            expect(column(m.getSchemas(), "TABLE_SCHEM").contains("public"), "getSchemas");
            expect(column(m.getTypeInfo(), "TYPE_NAME").contains("jsonb"), "getTypeInfo");
            try (Statement s = c.createStatement()) {
                s.execute("drop table moves");
                s.execute("drop table stock");
            }
        }
        System.out.println("  pgjdbc: ok");
    }
}

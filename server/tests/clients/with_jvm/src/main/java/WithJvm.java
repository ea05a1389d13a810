// Flyway, Liquibase or Hibernate, as the argument says, over pgjdbc, against the server at PGJDBC_URL.
import jakarta.persistence.*;
import java.math.BigDecimal;
import java.sql.*;
import java.time.*;
import java.util.*;
import liquibase.Liquibase;
import liquibase.database.DatabaseFactory;
import liquibase.database.jvm.JdbcConnection;
import liquibase.resource.ClassLoaderResourceAccessor;
import org.flywaydb.core.Flyway;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;

public class WithJvm {
    static final String URL = System.getenv("PGJDBC_URL");
    static int passed = 0, count = 0;

    static void expect(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    interface Part {
        void run() throws Exception;
    }

    /** Runs and counts a step; those after a failed one are run as well. */
    static void step(String name, Part part) {
        count++;
        try {
            part.run();
            passed++;
        } catch (Throwable error) {
            System.out.println("    FAILED " + name + ": " + error);
            for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) System.out.println("      " + cause);
        }
    }

    static void flyway() {
        Flyway flyway = Flyway.configure().dataSource(URL, "postgres", "").locations("classpath:migrations").cleanDisabled(false).load();
        step("migrate", () -> expect(flyway.migrate().migrationsExecuted == 3, "three migrations"));
        step("validate", flyway::validate);
        step("migrate again", () -> expect(flyway.migrate().migrationsExecuted == 0, "none is left"));
        step("info", () -> expect(flyway.info().applied().length == 3, "three are known"));
        step("repair", flyway::repair);
    }

    static void liquibase() throws Exception {
        try (Connection connection = DriverManager.getConnection(URL, "postgres", "")) {
            var database = DatabaseFactory.getInstance().findCorrectDatabaseImplementation(new JdbcConnection(connection));
            Liquibase liquibase = new Liquibase("changes.xml", new ClassLoaderResourceAccessor(), database);
            step("update", () -> liquibase.update(""));
            step("nothing is left", () -> expect(liquibase.listUnrunChangeSets(null, null).isEmpty(), "all have run"));
            step("validate", liquibase::validate);
            step("tag", () -> liquibase.tag("here"));
            step("roll back", () -> liquibase.rollback(1, ""));
            step("update again", () -> liquibase.update(""));
        }
    }

    @Entity(name = "Author")
    @Table(name = "hib_authors")
    public static class Author {
        @Id @GeneratedValue(strategy = GenerationType.SEQUENCE) Long id;
        @Column(length = 40, nullable = false, unique = true) String name;
        LocalDate born;
        @Version int version;
        @OneToMany(mappedBy = "author", cascade = CascadeType.ALL, orphanRemoval = true) List<Book> books = new ArrayList<>();
    }

    @Entity(name = "Book")
    @Table(name = "hib_books", indexes = @Index(name = "hib_books_title", columnList = "title"))
    public static class Book {
        @Id @GeneratedValue(strategy = GenerationType.IDENTITY) Long id;
        String title;
        @Column(precision = 10, scale = 2) BigDecimal price;
        Instant at;
        UUID key;
        boolean sold;
        @ElementCollection @CollectionTable(name = "hib_tags") Set<String> tags = new HashSet<>();
        @ManyToOne(optional = false) Author author;
    }

    static SessionFactory factory(String action) {
        return new Configuration().addAnnotatedClass(Author.class).addAnnotatedClass(Book.class)
            .setProperty("hibernate.connection.url", URL).setProperty("hibernate.connection.username", "postgres")
            .setProperty("hibernate.connection.password", "").setProperty("hibernate.hbm2ddl.auto", action)
            .setProperty("hibernate.hbm2ddl.halt_on_error", "true").buildSessionFactory();
    }

    static Book book(Author author, String title, String price) {
        Book book = new Book();
        book.author = author;
        book.title = title;
        book.price = new BigDecimal(price);
        book.at = Instant.now();
        book.key = UUID.randomUUID();
        book.tags.add("a");
        author.books.add(book);
        return book;
    }

    /** A step in a transaction of its own. */
    static void inTransaction(String name, SessionFactory factory, java.util.function.Consumer<Session> body) {
        step(name, () -> factory.inTransaction(body));
    }

    static void hibernate() {
        step("hbm2ddl update", () -> factory("update").close());
        step("hbm2ddl validate", () -> factory("validate").close());
        try (SessionFactory factory = factory("update")) {
            inTransaction("persist", factory, session -> {
                Author ada = new Author();
                ada.name = "Ada";
                ada.born = LocalDate.of(1815, 12, 10);
                book(ada, "Notes", "10.50");
                book(ada, "Sketch", "3");
                session.persist(ada);
                Author grace = new Author();
                grace.name = "Grace";
                session.persist(grace);
            });
            inTransaction("group", factory, session -> {
                List<Object[]> counted = session.createQuery("select a.name, count(b), sum(b.price) from Author a left join a.books b group by a.name order by a.name", Object[].class).list();
                expect(counted.size() == 2 && counted.get(0)[1].equals(2L) && counted.get(1)[2] == null, "counts");
            });
            inTransaction("fetched join", factory, session -> {
                List<Author> some = session.createQuery("from Author a join fetch a.books b where b.price > :price and a.born < current_date", Author.class).setParameter("price", BigDecimal.ONE).list();
                expect(some.size() == 1 && some.get(0).books.size() == 2, "a fetched join");
            });
            inTransaction("element of a collection", factory, session ->
                expect(session.createQuery("from Book b where lower(b.title) like 'no%' and 'a' member of b.tags", Book.class).getSingleResult().tags.size() == 1, "an element"));
            inTransaction("sub-query", factory, session ->
                expect(session.createQuery("select b.title from Book b where b.price = (select max(c.price) from Book c where c.author = b.author)", String.class).getSingleResult().equals("Notes"), "a sub-query"));
            inTransaction("page", factory, session ->
                expect(session.createQuery("select b.title, rank() over (order by b.price desc) from Book b order by b.title", Object[].class).setFirstResult(1).setMaxResults(1).list().size() == 1, "a page"));
            inTransaction("lock", factory, session -> {
                Book locked = session.createQuery("from Book b where b.title = 'Sketch'", Book.class).setLockMode(LockModeType.PESSIMISTIC_WRITE).getSingleResult();
                locked.price = locked.price.add(BigDecimal.ONE);
            });
            inTransaction("update", factory, session ->
                expect(session.createMutationQuery("update Book b set b.sold = true where extract(year from b.at) > 2000").executeUpdate() == 2, "two are sold"));
            inTransaction("sum", factory, session ->
                expect(session.createQuery("select sum(price) from Book", BigDecimal.class).getSingleResult().equals(new BigDecimal("14.50")), "the sum"));
            step("error", () -> {
                try {
                    factory.inTransaction(session -> {
                        Author again = new Author();
                        again.name = "Ada";
                        session.persist(again);
                    });
                    throw new AssertionError("the name is there twice");
                } catch (org.hibernate.exception.ConstraintViolationException error) {
                    expect(error.getSQLState().equals("23505"), "a unique key");
                }
            });
            inTransaction("remove", factory, session -> session.remove(session.createQuery("from Author where name = 'Ada'", Author.class).getSingleResult()));
            inTransaction("no book is left", factory, session ->
                expect(session.createQuery("select count(*) from Book", Long.class).getSingleResult() == 0, "no book is left"));
        }
        step("hbm2ddl create-drop", () -> factory("create-drop").close());
    }

    public static void main(String[] args) throws Exception {
        java.util.logging.LogManager.getLogManager().reset();
        switch (args[0]) {
            case "flyway" -> flyway();
            case "liquibase" -> liquibase();
            case "hibernate" -> hibernate();
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.out.println("  " + args[0] + ": " + passed + " of " + count + " steps");
        System.exit(passed == count ? 0 : 1);
    }
}

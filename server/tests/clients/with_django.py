"""Django over psycopg: `migrate` of the applications that come with it, migrations of an application of ours, and its ORM.

Needs django and psycopg; PGHOST and PGPORT name the server.
"""
import datetime
import decimal
import os

import django
from django.conf import settings

DATABASE = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": "postgres",
    "USER": "postgres",
    "HOST": os.environ["PGHOST"],
    "PORT": os.environ["PGPORT"],
}
CONTRIB = ["admin", "auth", "contenttypes", "messages", "sessions", "sites"]
settings.configure(
    DATABASES={"default": DATABASE},
    INSTALLED_APPS=[f"django.contrib.{name}" for name in CONTRIB],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    SECRET_KEY="secret",
    SITE_ID=1,
    USE_TZ=True,
)
django.setup()

from django.contrib.auth.models import Group, User  # noqa: E402
from django.contrib.sessions.backends.db import SessionStore  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, connection, migrations, models, transaction  # noqa: E402
from django.db.migrations.state import ProjectState  # noqa: E402
from django.db.models import Avg, Count, Exists, F, OuterRef, Q, Subquery, Sum, Window  # noqa: E402
from django.db.models.functions import Coalesce, Lower, Rank, TruncMonth  # noqa: E402

from steps import ended, step  # noqa: E402

AUTHOR = [
    ("id", models.BigAutoField(primary_key=True)),
    ("name", models.CharField(max_length=40, unique=True)),
    ("born", models.DateField(null=True)),
]
BOOK = [
    ("id", models.BigAutoField(primary_key=True)),
    ("title", models.CharField(max_length=100)),
    ("author", models.ForeignKey("shop.Author", models.CASCADE, related_name="books")),
    ("price", models.DecimalField(max_digits=10, decimal_places=2)),
    ("at", models.DateTimeField(auto_now_add=True)),
    ("data", models.JSONField(default=dict)),
]


def rename(apps, editor):
    apps.get_model("shop", "Book").objects.filter(title="").update(title="untitled")


OPERATIONS = [
    migrations.CreateModel("Author", AUTHOR),
    migrations.CreateModel("Book", BOOK, options={"ordering": ["title"]}),
    migrations.AddField("Book", "pages", models.PositiveIntegerField(default=0)),
    migrations.AddField("Book", "note", models.TextField(null=True)),
    migrations.AddField("Book", "readers", models.ManyToManyField("shop.Author", related_name="read")),
    migrations.AlterField("Book", "note", models.CharField(max_length=200, default="", blank=True)),
    migrations.AlterField("Book", "title", models.CharField(max_length=200, db_index=True)),
    migrations.RenameField("Book", "pages", "length"),
    migrations.AddIndex("Book", models.Index(fields=["author", "-at"], name="shop_book_at")),
    migrations.AddConstraint("Book", models.UniqueConstraint(fields=["author", "title"], name="shop_book_once")),
    migrations.AddConstraint("Book", models.CheckConstraint(condition=Q(price__gt=0), name="shop_book_price")),
    migrations.RunPython(rename, migrations.RunPython.noop),
    migrations.RemoveIndex("Book", "shop_book_at"),
    migrations.CreateModel("Draft", [("id", models.BigAutoField(primary_key=True)), ("text", models.TextField())]),
    migrations.RenameModel("Draft", "Sketch"),
    migrations.AlterModelTable("Sketch", "sketches"),
    migrations.AddField("Sketch", "uuid", models.UUIDField(null=True, unique=True)),
    migrations.RemoveField("Sketch", "text"),
    migrations.DeleteModel("Sketch"),
]


def migrate():
    """One migration for each operation, as an application has them after some years."""
    state = ProjectState(real_apps={name.removeprefix("django.contrib.") for name in settings.INSTALLED_APPS})
    for number, operation in enumerate(OPERATIONS):
        migration = migrations.Migration(f"{number:04}", "shop")
        migration.operations = [operation]
        before = state.clone()
        state = migration.mutate_state(before)
        with step(operation.describe()), connection.schema_editor(atomic=migration.atomic) as editor:
            migration.apply(before, editor)
    return state.apps


def contrib():
    with step("migrate"):
        call_command("migrate", verbosity=0)
    with step("migrate finds nothing to do"):
        call_command("migrate", "--check", verbosity=0)
    with step("users and groups"):
        ada = User.objects.create_user("ada", "ada@example.org", "secret")
        ada.groups.add(Group.objects.create(name="readers"))
        assert User.objects.filter(groups__name="readers").get() == ada
        assert ada.check_password("secret") and not ada.has_perm("auth.add_user")
    with step("sessions"):
        session = SessionStore()
        session["n"] = 1
        session.save()
        assert SessionStore(session.session_key)["n"] == 1
    with step("inspectdb"), open(os.devnull, "w") as nothing:
        call_command("inspectdb", "auth_user", stdout=nothing)


def orm(apps):
    Author, Book = apps.get_model("shop", "Author"), apps.get_model("shop", "Book")
    with step("create"):
        ada = Author.objects.create(name="Ada", born=datetime.date(1815, 12, 10))
        grace, created = Author.objects.get_or_create(name="Grace")
        assert created and not Author.objects.get_or_create(name="Grace")[1]
    with step("bulk_create"):
        prices = [("Notes", "10.50"), ("Sketch", "3"), ("Engine", "7.25")]
        Book.objects.bulk_create(
            Book(title=title, author=ada, price=decimal.Decimal(price), data={"pages": len(title), "tags": ["a"]})
            for title, price in prices
        )
    with step("many to many"):
        Book.objects.get(title="Notes").readers.add(grace)
        assert Book.objects.filter(readers__isnull=True).count() == 2
    with step("filter and order"):
        assert [book.title for book in Book.objects.filter(price__lt=10)] == ["Engine", "Sketch"]
        assert Book.objects.filter(Q(title="Notes") | ~Q(price__lt=4)).distinct().count() == 2
    with step("annotate"):
        counted = Author.objects.annotate(n=Count("books"), total=Coalesce(Sum("books__price"), decimal.Decimal(0)))
        expected = [("Ada", 3, decimal.Decimal("20.75")), ("Grace", 0, 0)]
        assert list(counted.order_by("name").values_list("name", "n", "total")) == expected
    with step("aggregate"):
        assert Book.objects.aggregate(mean=Avg("price"))["mean"].quantize(decimal.Decimal("0.01")) == decimal.Decimal("6.92")
    with step("sub-queries"):
        assert Author.objects.filter(Exists(Book.objects.filter(author=OuterRef("pk"), price__gt=10))).get() == ada
        newest = Book.objects.filter(author=OuterRef("pk")).order_by("-price").values("title")[:1]
        assert Author.objects.annotate(best=Subquery(newest)).get(name="Ada").best == "Notes"
    with step("windows"):
        ranked = Book.objects.annotate(rank=Window(Rank(), order_by=F("price").desc())).order_by("title")
        assert [book.rank for book in ranked] == [2, 1, 3]
    with step("jsonb"):
        assert Book.objects.filter(data__pages=5).get().title == "Notes"
        assert Book.objects.filter(data__tags__contains=["a"], data__has_key="pages").count() == 3
    with step("text"):
        assert Book.objects.annotate(low=Lower("title")).filter(low__startswith="sk").exists()
        assert Book.objects.filter(title__icontains="OTE", author__name__iexact="ada").count() == 1
        assert Book.objects.filter(title__regex="^N.*s$").count() == 1
    with step("times"):
        assert Book.objects.annotate(month=TruncMonth("at")).values("month").annotate(n=Count("id")).get()["n"] == 3
        assert Book.objects.filter(at__year=datetime.datetime.now(datetime.UTC).year).count() == 3
    with step("union"):
        one = Book.objects.filter(title="Notes").values("title")
        assert one.union(Book.objects.filter(title="Engine").values("title")).count() == 2
    with step("update"):
        assert Book.objects.filter(title="Notes").update(price=F("price") + 1) == 1
    with step("upserts"):
        Author.objects.update_or_create(name="Grace", defaults={"born": datetime.date(1906, 12, 9)})
        Author.objects.bulk_create([Author(name="Ada")], ignore_conflicts=True)
        rows = [Author(name="Ada", born=None), Author(name="Alan", born=None)]
        Author.objects.bulk_create(rows, update_conflicts=True, unique_fields=["name"], update_fields=["born"])
        assert Author.objects.get(name="Ada").born is None and Author.objects.count() == 3
    for wrong in ({"title": "Notes", "price": 1}, {"title": "New", "price": -1}):
        with step(f"refused: {wrong}"):
            try:
                with transaction.atomic():
                    Book.objects.create(author=ada, **wrong)
                raise AssertionError("it is taken")
            except IntegrityError:
                pass
    with step("select_for_update"), transaction.atomic():
        locked = Book.objects.select_for_update().get(title="Engine")
        locked.price += 1
        locked.save()
    with step("related rows"):
        assert list(Book.objects.select_related("author").values_list("author__name", flat=True)) == ["Ada"] * 3
        assert len(Author.objects.prefetch_related("books", "read").get(name="Ada").books.all()) == 3
    with step("raw"):
        found = Book.objects.raw('select * from "shop_book" where "price" > %s order by "price"', [4])
        assert [str(book.price) for book in found] == ["8.25", "11.50"]
    with step("delete"):
        ada.delete()
        assert Book.objects.count() == 0
    with step("introspection"):
        assert "migrations" in "".join(connection.introspection.table_names())
        assert connection.introspection.get_constraints(connection.cursor(), "shop_book")["shop_book_once"]["unique"]


contrib()
orm(migrate())
ended("django")

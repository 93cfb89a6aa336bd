"""What the generated databases are about: six domains of four tables each, of one shape.

Persons, makers, the things that makers make, and events between a person and a thing. One shape
lets every family of questions be asked of every domain.
"""

from dataclasses import dataclass

__all__ = ["DOMAINS", "Domain", "Noun"]


@dataclass(frozen=True, slots=True)
class Noun:
    """A word for one, and for several; the second is the table's name."""

    one: str
    many: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The names of tables and columns, and what stands in them."""

    name: str
    person: Noun
    group: Noun
    """The persons' column of few values."""
    groups: tuple[str, ...]
    maker: Noun
    origin: Noun
    """The makers' column of few values."""
    origins: tuple[str, ...]
    thing: Noun
    kind: Noun
    """The things' column of few values."""
    kinds: tuple[str, ...]
    measure: str
    """The things' column of numbers."""
    measures: tuple[int, int]
    title_words: tuple[tuple[str, ...], tuple[str, ...]]
    event: Noun
    amount: str
    """The events' column of numbers."""
    amounts: tuple[int, int]
    day: str
    """The events' column of dates."""


_CITIES = ("Bergen", "Cork", "Graz", "Lyon", "Porto", "Turku")
_COUNTRIES = ("Chile", "Ghana", "Iceland", "Japan", "Latvia")

DOMAINS = (
    Domain(
        name="shop",
        person=Noun("customer", "customers"),
        group=Noun("city", "cities"),
        groups=_CITIES,
        maker=Noun("supplier", "suppliers"),
        origin=Noun("country", "countries"),
        origins=_COUNTRIES,
        thing=Noun("product", "products"),
        kind=Noun("kind", "kinds"),
        kinds=("furniture", "kitchen", "office", "tool", "toy"),
        measure="price",
        measures=(3, 400),
        title_words=(
            ("Ash", "Brass", "Canvas", "Glass", "Oak", "Steel", "Wool"),
            ("Basket", "Bench", "Box", "Clock", "Hammer", "Lamp", "Stool", "Tray"),
        ),
        event=Noun("order", "orders"),
        amount="quantity",
        amounts=(1, 12),
        day="ordered_on",
    ),
    Domain(
        name="library",
        person=Noun("member", "members"),
        group=Noun("town", "towns"),
        groups=("Ashby", "Crewe", "Dover", "Ely", "Perth"),
        maker=Noun("author", "authors"),
        origin=Noun("country", "countries"),
        origins=_COUNTRIES,
        thing=Noun("book", "books"),
        kind=Noun("genre", "genres"),
        kinds=("crime", "drama", "history", "poetry", "travel"),
        measure="pages",
        measures=(60, 900),
        title_words=(
            ("Last", "Hidden", "Northern", "Quiet", "Red", "Second", "Slow"),
            ("Bridge", "Garden", "Harbour", "Letter", "Mountain", "River", "Winter", "Word"),
        ),
        event=Noun("loan", "loans"),
        amount="days",
        amounts=(1, 60),
        day="lent_on",
    ),
    Domain(
        name="school",
        person=Noun("student", "students"),
        group=Noun("house", "houses"),
        groups=("Birch", "Cedar", "Elm", "Maple"),
        maker=Noun("teacher", "teachers"),
        origin=Noun("department", "departments"),
        origins=("Arts", "Languages", "Mathematics", "Sciences"),
        thing=Noun("course", "courses"),
        kind=Noun("level", "levels"),
        kinds=("basic", "higher", "introductory", "research"),
        measure="hours",
        measures=(10, 120),
        title_words=(
            ("Applied", "Classical", "Modern", "Practical", "Pure", "World"),
            ("Algebra", "Biology", "Drawing", "French", "Logic", "Music", "Physics", "Writing"),
        ),
        event=Noun("result", "results"),
        amount="points",
        amounts=(0, 100),
        day="taken_on",
    ),
    Domain(
        name="clinic",
        person=Noun("patient", "patients"),
        group=Noun("city", "cities"),
        groups=_CITIES,
        maker=Noun("doctor", "doctors"),
        origin=Noun("speciality", "specialities"),
        origins=("cardiology", "dermatology", "neurology", "surgery"),
        thing=Noun("treatment", "treatments"),
        kind=Noun("ward", "wards"),
        kinds=("day", "east", "north", "west"),
        measure="cost",
        measures=(20, 2000),
        title_words=(
            ("Deep", "Gentle", "Light", "Long", "Short", "Warm"),
            ("Bath", "Check", "Massage", "Scan", "Session", "Test", "Therapy", "Wrap"),
        ),
        event=Noun("visit", "visits"),
        amount="minutes",
        amounts=(5, 180),
        day="visited_on",
    ),
    Domain(
        name="radio",
        person=Noun("listener", "listeners"),
        group=Noun("region", "regions"),
        groups=("coast", "hills", "lakes", "plain", "valley"),
        maker=Noun("band", "bands"),
        origin=Noun("country", "countries"),
        origins=_COUNTRIES,
        thing=Noun("song", "songs"),
        kind=Noun("style", "styles"),
        kinds=("blues", "folk", "jazz", "rock", "soul"),
        measure="seconds",
        measures=(90, 600),
        title_words=(
            ("Blue", "Electric", "Golden", "Lonely", "Paper", "Silver", "Wild"),
            ("Engine", "Highway", "Morning", "Rain", "Road", "Sky", "Train", "Wave"),
        ),
        event=Noun("vote", "votes"),
        amount="stars",
        amounts=(1, 10),
        day="voted_on",
    ),
    Domain(
        name="restaurant",
        person=Noun("guest", "guests"),
        group=Noun("town", "towns"),
        groups=("Ashby", "Crewe", "Dover", "Ely", "Perth"),
        maker=Noun("cook", "cooks"),
        origin=Noun("country", "countries"),
        origins=_COUNTRIES,
        thing=Noun("dish", "dishes"),
        kind=Noun("course", "courses"),
        kinds=("dessert", "main", "side", "starter"),
        measure="calories",
        measures=(80, 1200),
        title_words=(
            ("Baked", "Cold", "Crisp", "Roast", "Smoked", "Spiced", "Sweet"),
            ("Beans", "Bread", "Cabbage", "Fish", "Lentils", "Pears", "Rice", "Soup"),
        ),
        event=Noun("booking", "bookings"),
        amount="seats",
        amounts=(1, 14),
        day="booked_for",
    ),
)

"""Replay as a reader meets it: in a real browser, by keys, pointer and address."""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Dialog, Page, Route, ViewportSize, WebSocketRoute, expect

from apps.browser import patient_page, write
from apps.conftest import HOSTILE, ProgramStore, SampleStore, write_program_store
from apps.long_episode import EPISODE_ID, PROMPT_TOKENS, SCRIPTS, write_long_store
from apps.viewer.conftest import Workshop
from longhaul_core.store import StoreWriter, TokenPieces, maintenance, open_store
from longhaul_core.store.retention import Retention
from longhaul_core.types import Continuation, Message, ToolCall
from longhaul_viewer import links
from steps import with_call
from store_samples import (
    first_reply,
    make_credit,
    make_decisions,
    make_record,
    make_trajectory,
    measured,
    run_started,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def long_chat(workshop: Workshop) -> str:
    """A viewer over an episode of 50 steps, its prompts up to 15,000 tokens long."""
    with ThreadPoolExecutor(1) as writer:
        writer.submit(write_long_store, workshop.url).result()
    return workshop.viewer


@pytest.fixture(scope="module")
def program(workshop: Workshop) -> ProgramStore:
    with ThreadPoolExecutor(1) as writer:
        return writer.submit(write_program_store, workshop.url, run_id="program").result()


@pytest.fixture
def programs(workshop: Workshop, program: ProgramStore) -> str:
    return workshop.viewer


def open_replay(page: Page, viewer: str, episode_id: str, **query: str | int) -> None:
    page.goto(f"{viewer}/{links.address(links.REPLAY, episode=episode_id, **query)}")
    expect_step(page, int(query.get("step", 0)), episode_id=episode_id)


@pytest.fixture(scope="module")
def phone(browser: Browser) -> Iterator[Page]:
    size: ViewportSize = {"width": 390, "height": 844}
    with browser.new_context(viewport=size, has_touch=True, is_mobile=True) as context:
        yield patient_page(context)


def expect_step(page: Page, step: int, *, episode_id: str = EPISODE_ID) -> None:
    drawn = page.locator(".replay")
    expect(drawn).to_have_attribute("data-drawn", f"{episode_id}#{step}")


def expect_address(page: Page, *parts: str) -> None:
    for part in parts:
        expect(page).to_have_url(re.compile(re.escape(part)))


def test_the_truth_of_measured_steps_is_a_strip_under_the_advantages(
    page: Page, long_chat: str, workshop: Workshop
) -> None:
    episode = f"{EPISODE_ID[:-4]}/1/0"
    with ThreadPoolExecutor(1) as thread:
        thread.submit(write_measured, workshop.url, episode).result()

    open_replay(page, long_chat, episode, step=1)

    expect(page.locator(".strip .axes")).to_contain_text("truth (random)")
    ticks = page.locator(".tick")
    expect(ticks.nth(0).locator(".unmeasured")).to_have_count(1)
    expect(ticks.nth(1).locator(".half:not(.unsure) u")).to_have_count(1)
    expect(ticks.nth(2).locator(".half.unsure u")).to_have_count(1)
    expect(ticks.nth(1)).to_have_attribute("title", re.compile(r"truth \(random\) \+1 \["))
    expect(ticks.nth(1)).to_have_class(re.compile("here"))
    facts = page.locator(".facts", has_text="continued by random")
    expect(facts).to_contain_text("Q − V")
    expect(facts).to_contain_text("80")
    page.keyboard.press("Home")
    expect(page.locator(".facts", has_text="continued by random")).to_have_count(0)


def write_measured(store: str, episode: str) -> None:
    none = (0.0,)
    with StoreWriter(store) as writer:
        writer.write(
            [
                *measured(episode, choice=[none * 2] * 40, taken=[(0.0, 1.0)] * 40),
                *measured(
                    episode, step=2, choice=[none * 3, (0.0, 0.0, 1.0)], taken=[none * 3] * 2
                ),
            ]
        )


def test_every_key_moves_what_it_says(page: Page, long_chat: str) -> None:
    open_replay(page, long_chat, EPISODE_ID, step=10)
    for key, step in [
        ("ArrowRight", 11), ("l", 12), ("ArrowLeft", 11), ("h", 10),
        ("Home", 0), ("End", 49), ("i", 0), ("i", 9), ("i", 18),
    ]:  # fmt: skip
        page.keyboard.press(key)
        expect_step(page, step)
    expect_address(page, "step=18")

    page.keyboard.press("j")
    expect_step(page, 0, episode_id=f"{EPISODE_ID[:-4]}/1/0")
    page.keyboard.press("k")
    expect_step(page, 0)

    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_have_count(0)

    page.keyboard.press("t")
    expect(page.locator(".transcript article")).to_have_count(50)
    page.keyboard.press("t")
    page.keyboard.press("m")
    expect_address(page, "prompt=messages")
    page.keyboard.press("m")
    page.keyboard.press("m")
    page.keyboard.press("C")
    expect_address(page, "colour=gap")
    page.keyboard.press("]")
    expect(page.locator(".inspector").first).to_contain_text("logprob")

    page.keyboard.press("/")
    page.keyboard.type("Room 31:")
    expect(page.locator(".hits")).to_have_text("1 step")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect_step(page, 31)

    page.keyboard.press(">")
    page.keyboard.press(">")
    page.keyboard.press(">")
    page.keyboard.press(">")
    expect(page.locator(".speed")).to_have_text("16×")
    page.keyboard.press(" ")
    expect_step(page, 49)
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()


LIT = """() => [...CSS.highlights.get("found")].map((range) => [
    range.toString(),
    range.startContainer.parentElement.closest(".tokens")?.className ?? "",
    range.startContainer === range.endContainer,
])"""  # what is lit, where, and whether it is in one text node


def test_words_that_are_looked_for_are_lit_and_stand_in_the_address(
    page: Page, other: Page, long_chat: str
) -> None:
    word = SCRIPTS.split()[1]
    page.goto(f"{long_chat}/{links.address(links.REPLAY, episode=EPISODE_ID, search=word)}")
    expect_step(page, 2)  # the first that has it: the address names no step
    expect(page.get_by_role("searchbox")).to_have_value(word)
    expect(page.locator(".hits")).to_have_text("1 step")
    page.wait_for_function(f"() => ({LIT})().length > 0")
    lit = page.evaluate(LIT)
    assert {text for text, _, _ in lit} == {word}
    assert any("tokens" in where and not alone for _, where, alone in lit)  # across two spans

    page.keyboard.press("/")
    page.keyboard.type('31: "room 31" ROÓM')  # all of them, in any order
    expect(page.locator(".hits")).to_have_text("1 step")
    page.keyboard.press("Enter")
    expect_step(page, 31)
    page.wait_for_function(f"() => ({LIT})().some(([text]) => text === 'Room')")
    expect_address(page, "search=31%3A+%22room+31%22+RO%C3%93M", "step=31")
    other.goto(page.url)
    expect_step(other, 31)
    expect(other.locator(".tick.match")).to_have_count(1)

    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.wait_for_function(f"() => ({LIT})().length === 0")
    expect(page).not_to_have_url(re.compile("search="))
    expect_step(page, 31)


@pytest.fixture(scope="module")
def removed(workshop: Workshop) -> list[str]:
    """See `write_what_was_removed`."""
    with ThreadPoolExecutor(1) as writer:
        return writer.submit(write_what_was_removed, workshop.url).result()


def test_a_search_that_was_left_changes_nothing(page: Page, long_chat: str) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/transcript", hold)
    page.goto(f"{long_chat}/{links.address(links.REPLAY, episode=EPISODE_ID, search='31')}")
    expect_step(page, 0)
    # On a busy machine a click in the page's first run has changed the address and not the page.
    app = page.get_by_test_id("stApp")
    expect(app).to_have_attribute("data-test-script-state", "notRunning")
    page.wait_for_function("window.history.pushState.name === 'pushStateOfThisPage'")
    page.locator(".trail").get_by_role("link", name="group").click()
    page.wait_for_url("**/group?*")
    page.locator(".line .head").last.click()
    other = f"{EPISODE_ID[:-4]}/1/0"
    expect_step(page, 0, episode_id=other)
    assert len(held) == 1
    with page.expect_response("**/transcript"):
        held[0].continue_()
    page.wait_for_timeout(1000)  # longer than an address waits to be written
    expect_step(page, 0, episode_id=other)
    expect_address(page, f"episode={other.replace('/', '%2F')}")
    assert page.evaluate(LIT) == []


def write_older_run(url: str) -> str:
    """A trained episode whose tokens have no entropy."""
    trained = make_record(make_trajectory(), run_id="older")
    pieces = TokenPieces(run_id="older", pieces={n: f" word{n}".encode() for n in range(10)})
    with StoreWriter(url) as writer:
        writer.write([run_started("older"), trained, pieces])
        writer.write([*make_decisions([trained]), make_credit(trained)])
    with closing(sqlite3.connect(url)) as connection, connection:
        connection.execute(
            "UPDATE call_tokens SET policy_entropies = NULL WHERE episode_id = ?",
            [trained.episode_id],
        )
    return trained.episode_id


def test_a_finger_on_a_token_shows_its_entropy_and_each_level_has_a_colour(
    phone: Page, long_chat: str
) -> None:
    open_replay(phone, long_chat, EPISODE_ID, step=3, colour="entropy")
    token = phone.locator(".tokens:not(.tall) .t").nth(5)
    expect(token).to_have_class(re.compile(r"\be3\b"))
    token.tap()
    expect(phone.locator(".inspector").first).to_contain_text("entropy1.250 nats")
    expect(phone.locator(".legend .t")).to_have_count(6)
    colours = phone.locator(".legend .t").evaluate_all(
        "each => each.map(one => getComputedStyle(one).backgroundColor)"
    )
    assert len(set(colours)) == 6


def test_where_no_entropy_is_stored_the_page_says_why(page: Page, workshop: Workshop) -> None:
    with ThreadPoolExecutor(1) as writer:
        episode_id = writer.submit(write_older_run, workshop.url).result()
    open_replay(page, workshop.viewer, episode_id, colour="entropy")
    expect(page.locator(".step")).to_contain_text("No entropy is stored for this reply: ")
    expect(page.locator(".legend")).to_have_count(0)
    page.keyboard.press("]")
    expect(page.locator(".inspector").first).to_contain_text("logprob")
    expect(page.locator(".inspector").first).not_to_contain_text("entropy")
    page.locator(".choice button", has_text="probability").click()
    expect(page.locator(".legend")).to_be_visible()


def test_groups_are_gone_through_by_key(page: Page, viewer: str, sample: SampleStore) -> None:
    first = f"{sample.run_id}/0/train/3/0/0/0"
    open_replay(page, viewer, first)
    page.keyboard.press("n")
    expect_step(page, 0, episode_id=f"{sample.run_id}/0/train/3/1/0/0")
    page.keyboard.press("p")
    expect_step(page, 0, episode_id=first)


def test_twenty_presses_60_ms_apart_are_twenty_steps(page: Page, long_chat: str) -> None:
    open_replay(page, long_chat, EPISODE_ID)
    for _ in range(20):
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(60)
    expect_step(page, 20)
    expect_address(page, "step=20")


def test_a_page_that_is_left_is_not_asked_for_again(changed: Page, long_chat: str) -> None:
    """Python is told of a step when the reader has stopped there, which may be on another page."""
    held: list[str | bytes] = []
    sends: list[Callable[[str | bytes], None]] = []
    holds = False

    def slow_server(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()
        socket.on_message(server.send)
        server.on_message(lambda message: (held.append if holds else socket.send)(message))
        sends.append(socket.send)

    changed.route_web_socket("**/_stcore/stream", slow_server)
    open_replay(changed, long_chat, EPISODE_ID)
    changed.keyboard.press("ArrowRight")
    expect_step(changed, 1)
    holds = True
    changed.locator(".trail").last.get_by_role("link", name="Episodes").click()
    changed.wait_for_timeout(1000)  # longer than the reader must stop for
    holds = False
    for message in held:
        sends[-1](message)

    expect(changed.locator("tr.link")).not_to_have_count(0)
    expect(changed.locator(".alert")).to_have_text([])


CLICKS = {
    "a colour": ".choice button >> text=mask",
    "a token": ".tokens .t >> nth=3",
    "the tokens of the prompt": ".choice button >> text=tokens",
    "a step of the strip": ".tick >> nth=5",
    "play and pause": ".play",
    "the transcript": "button >> text=Transcript",
    "a jump": ".jump >> text=highest",
}


def test_keys_are_alive_after_any_click(page: Page, long_chat: str) -> None:
    open_replay(page, long_chat, EPISODE_ID, step=3)
    for click, place in CLICKS.items():
        page.locator(place).first.click()
        if click == "play and pause":
            page.locator(".play").click()
        page.keyboard.press("Home")
        expect_step(page, 0)
        for key in ("ArrowRight", "l", "ArrowRight"):
            page.keyboard.press(key)
        expect_step(page, 3)


def test_a_link_opens_on_what_was_looked_at_in_another_browser(
    page: Page, other: Page, programs: str, program: ProgramStore
) -> None:
    open_replay(page, programs, program.episode_id)
    page.get_by_role("tab", name="remember").click()
    page.locator(".choice button >> text=messages").click()
    page.locator(".choice button >> text=raw").click()
    expect_address(page, "call=2", "prompt=messages", "observation=raw")
    address = page.url
    other.goto(address)
    expect_step(other, 0, episode_id=program.episode_id)
    tab = other.get_by_role("tab", name="remember")
    expect(tab).to_have_attribute("aria-selected", "true")
    pressed = other.locator('.choice button[aria-pressed="true"]')
    expect(pressed.filter(has_text="messages")).to_have_count(1)
    expect(pressed.filter(has_text="raw")).to_have_count(1)
    other.goto(f"{address}&step=99999&call=7")
    expect_step(other, 0, episode_id=program.episode_id)


def test_back_goes_through_the_episodes_that_were_looked_at(page: Page, long_chat: str) -> None:
    open_replay(page, long_chat, EPISODE_ID, step=4)
    page.keyboard.press("ArrowRight")
    expect_step(page, 5)
    page.keyboard.press("j")
    expect_step(page, 0, episode_id=f"{EPISODE_ID[:-4]}/1/0")
    page.go_back()
    expect_step(page, 5)
    page.locator(".trail").get_by_role("link", name="group").click()
    page.wait_for_url("**/group?*")
    page.go_back()
    expect_step(page, 5)


def test_what_a_model_wrote_is_text_in_every_part_of_the_page(
    page: Page, viewer: str, sample: SampleStore
) -> None:
    dialogs: list[str] = []

    def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)
    index = next(s.step_index for s in sample.hostile.steps if "<script>" in first_reply(s))
    episode_id = sample.hostile.summary.episode_id
    for prompt in ("changes", "messages", "tokens"):
        query: dict[str, str | int] = {"step": index, "prompt": prompt, "transcript": 1}
        open_replay(page, viewer, episode_id, **query)
        reply = page.locator(".tokens").first
        expect(reply).to_contain_text("<script>alert(1)</script>")
        expect(page.locator(".transcript article").nth(index)).to_contain_text("<script>")
        for part in (".step", ".transcript", ".facts", ".strip"):
            assert page.locator(f"{part} script, {part} img, {part} iframe").count() == 0
    assert dialogs == []


def test_markup_in_messages_tools_and_names_is_text(
    page: Page, programs: str, program: ProgramStore
) -> None:
    open_replay(page, programs, program.episode_id, step=0, call=0)
    expect(page.locator(".step")).to_contain_text(HOSTILE)
    assert page.locator(".step script").count() == 0
    assert page.locator('.step img[src="x"]').count() == 0


def test_other_scripts_are_drawn_whole_and_in_their_direction(page: Page, long_chat: str) -> None:
    open_replay(page, long_chat, EPISODE_ID, step=2)
    reply = page.locator(".tokens").first
    expect(reply).to_have_text(re.compile("^" + re.escape(SCRIPTS)), use_inner_text=True)
    assert reply.evaluate("element => getComputedStyle(element).direction") == "rtl"
    expect(reply.locator(".t.joined").first).to_have_text(SCRIPTS[0])


def test_a_prompt_of_15000_tokens_is_shown_from_its_newest_end(page: Page, long_chat: str) -> None:
    open_replay(page, long_chat, EPISODE_ID, step=49, prompt="tokens")
    view = page.locator(".tokens.tall")
    expect(view.locator(".chunk.added").first).to_be_attached()
    view.scroll_into_view_if_needed()  # spans are built where they are looked at
    expect(view.locator(".t").first).to_be_attached()
    page.wait_for_function(
        "view => view.scrollTop + view.clientHeight >= view.scrollHeight - 4",
        arg=view.element_handle(),
    )
    length, built = view.evaluate(
        "view => [view.textContent.length, view.querySelectorAll('.t').length]"
    )
    assert length > 4 * PROMPT_TOKENS
    assert 0 < built < PROMPT_TOKENS / 4
    view.evaluate("view => { view.scrollTop = 0 }")
    expect(view.locator(".chunk").first.locator(".t").first).to_be_visible()
    view.locator(".t").first.click()
    expect(page.locator(".inspector").last).to_contain_text("place0")


def test_a_prompt_marks_what_was_kept_dropped_and_added(page: Page, long_chat: str) -> None:
    open_replay(page, long_chat, EPISODE_ID, step=26)
    messages = page.locator(".messages")
    expect(messages.locator("summary").first).to_have_text(re.compile("1 message kept"))
    expect(messages.locator(".message.dropped")).to_have_count(4)
    expect(messages.locator(".message.added")).to_have_count(2)
    page.wait_for_function(
        "box => box.scrollTop + box.clientHeight >= box.scrollHeight - 4",
        arg=messages.element_handle(),
    )
    page.locator(".choice button", has_text="tokens").click()
    expect(page.locator(".tokens.tall .gone")).to_contain_text("dropped")


def test_boards_pictures_tools_and_steps_without_a_call_are_shown(
    page: Page, long_chat: str, programs: str, program: ProgramStore
) -> None:
    open_replay(page, long_chat, EPISODE_ID, step=1)
    expect(page.locator(".observed .square")).to_have_count(20)
    open_replay(page, programs, program.episode_id, step=0)
    room, *_ = program.pictures
    for place in (".thumb img", ".step .pictures img"):
        expect(page.locator(f"{place}[src$='{room}']").first).to_be_attached()
    page.wait_for_function(
        "img => img.naturalWidth > 0",
        arg=page.locator(".step .pictures img").first.element_handle(),
    )
    expect(page.locator(".asks").first).to_contain_text("look")
    page.get_by_role("tab", name="judge").click()
    expect(page.locator(".step")).to_contain_text("No tokens recorded")
    page.get_by_role("tab", name="remember").click()
    fact = page.get_by_role("row")
    expect(fact.filter(has_text="Its sampling")).to_contain_text("temperature 0.5, top_p 0.9")
    expect(fact.filter(has_text="Overridden")).to_contain_text("tools.web_search, max_tokens")
    expect(page.locator(".step")).to_contain_text("recalls steps 0, 12")
    page.keyboard.press("End")
    expect(page.locator(".step")).to_contain_text("No model chose the action")


def write_what_was_removed(url: str) -> list[str]:
    """Episodes of replies without text, of which a run dropped tokens or kept numbers alone."""
    look = ToolCall(id="a", name="look", arguments="{}")
    made = make_trajectory(rewards=(0.0, 0.0))
    first, second = made.steps
    steps = (with_call(first, reply=""), with_call(second, reply="", tool_calls=(look,)))
    records = [
        make_record(replace(made, steps=steps), run_id=run_id) for run_id in ("tokens", "text")
    ]
    with StoreWriter(url) as writer:
        for record in records:
            writer.write([run_started(record.run_id), record, *make_decisions([record])])
    engine = open_store(url)
    maintenance.drop_tokens(engine, run_id="tokens", force=True)
    Retention(engine, run_id="text", sampled_groups=0).remove_some(up_to=9)
    engine.dispose()
    return [record.episode_id for record in records]


def test_a_reply_without_text_says_why_and_draws_no_empty_box(
    page: Page, workshop: Workshop, removed: list[str]
) -> None:
    viewer, (pruned, numbers_alone) = workshop.viewer, removed
    reply, said = page.locator(".step .text.reply"), page.locator(".transcript .wrote")
    open_replay(page, viewer, pruned, step=0, transcript=1)
    expect(page.locator(".step")).to_contain_text("Its tokens and logprobs were pruned.")
    expect(reply).to_have_text("(no text)")
    expect(said.first).to_have_text("(no text)")
    page.keyboard.press("End")
    expect_step(page, 1, episode_id=pruned)
    expect(page.locator(".step .asks").first).to_contain_text("look")
    expect(reply).to_have_count(0)
    expect(said.last).to_be_hidden()
    open_replay(page, viewer, numbers_alone, step=0, transcript=1)
    expect(page.locator(".step section").nth(1)).to_contain_text("Removed by the run's retention")
    expect(said.first).to_have_text("(removed by the run's retention)")
    page.goto(f"{viewer}/{links.address(links.COMPARE, left=pruned, right=numbers_alone)}")
    wrote = page.locator(".pair .wrote")
    expect(wrote).to_have_text(["(no text)", "(removed by the run's retention)"])


def test_a_conversation_that_begins_anew_names_its_cure(page: Page, workshop: Workshop) -> None:
    talk = [
        Message(role="system", content="It is 10:00."),
        Message(role="user", content="Where?"),
        Message(role="assistant", content="In the cellar."),
        Message(role="user", content="Go on."),
    ]
    again = list(talk)
    again[2] = Message(role="assistant", content="Another text.")
    made = make_trajectory(rewards=(0.0, 0.0))
    first, second = (
        replace(
            step,
            calls=(replace(step.calls[0], messages=tuple(messages), continuation=continuation),),
        )
        for step, messages, continuation in zip(
            made.steps,
            (talk, again),
            (Continuation.START, Continuation.CHANGED),
            strict=True,
        )
    )
    record = make_record(replace(made, steps=(first, second)), run_id="anew")
    write(workshop.url, run_started(record.run_id), record)

    open_replay(page, workshop.viewer, record.episode_id, step=1)

    row = page.get_by_role("row").filter(has_text="Cure")
    expect(row).to_contain_text("have the client send replies back as they came")
    open_replay(page, workshop.viewer, record.episode_id, step=0)
    begins = page.get_by_role("row").filter(has_text="Conversation")
    expect(begins).to_contain_text("begins here")
    expect(row).to_have_count(0)


def test_a_continuation_leads_to_the_step_that_it_continues(
    page: Page, workshop: Workshop, removed: list[str]
) -> None:
    given = make_record(make_trajectory(), run_id="branches", phase="branch", branched_action="up")
    continued = replace(given, branched_from=removed[0])
    write(workshop.url, run_started("branches"), continued)
    open_replay(page, workshop.viewer, continued.episode_id)
    link = page.get_by_role("link", name="another episode from step 1 on")
    expect(link).to_have_attribute("title", re.compile("replayed, and up was given"))
    link.click()
    expect_step(page, 1, episode_id=removed[0])


def test_a_failed_episode_says_why_and_an_unknown_one_what_to_do(
    page: Page, viewer: str, sample: SampleStore
) -> None:
    last = len(sample.failed.steps) - 1
    open_replay(page, viewer, sample.failed.summary.episode_id)
    expect(page.locator(".failure")).to_contain_text("server gone")
    page.get_by_role("button", name="where it failed").click()
    expect_step(page, last, episode_id=sample.failed.summary.episode_id)
    page.goto(f"{viewer}/{links.address(links.REPLAY, episode='none')}")
    expect(page.get_by_role("alert")).to_contain_text("there is no episode 'none'")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()


def test_what_could_not_be_read_is_asked_for_again(page: Page, long_chat: str) -> None:
    parts = re.compile("/(texts|transcript)")
    page.route(parts, lambda route: route.abort())
    page.goto(f"{long_chat}/{links.address(links.REPLAY, episode=EPISODE_ID, step=3)}")
    step = page.locator(".step")
    expect(step.get_by_role("alert")).to_contain_text("This step cannot be read")
    page.keyboard.press("t")
    transcript = page.locator("nav.transcript")
    expect(transcript).to_contain_text("The server does not answer")
    page.keyboard.press("/")
    page.keyboard.type("east")
    expect(page.locator(".hits")).to_have_text(re.compile("The server does not answer"))
    page.unroute(parts)
    step.get_by_role("button", name="Try again").click()
    expect_step(page, 3)
    transcript.get_by_role("button", name="Try again").click()
    expect(transcript.locator("article")).to_have_count(50)


def test_an_answer_that_does_not_come_ends_no_following(page: Page, workshop: Workshop) -> None:
    records = [
        make_record(make_trajectory(sample_index=sample), run_id="live") for sample in range(2)
    ]
    asked: list[str] = []

    def lose_the_second(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 2:
            route.abort()
        else:
            route.continue_()

    write(workshop.url, run_started("live"), records[0])
    page.route("**/neighbours", lose_the_second)
    with page.expect_event("requestfailed", lambda request: "neighbours" in request.url):
        open_replay(page, workshop.viewer, records[0].episode_id)
        expect(page.locator(".member")).to_have_count(1)
    write(workshop.url, records[1])
    expect(page.locator(".member")).to_have_count(2)


def test_a_step_is_copied_as_messages_that_were_read(page: Page, long_chat: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_replay(page, long_chat, EPISODE_ID, step=1)
    page.locator(".facts").get_by_role("button", name="messages").click()
    expect(page.locator(".facts").get_by_role("button", name="copied")).to_be_visible()
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert [message["role"] for message in copied] == ["system", "user", "assistant", "user"]


def test_a_phone_shows_all_of_it(phone: Page, long_chat: str) -> None:
    open_replay(phone, long_chat, EPISODE_ID, step=2)
    wide = phone.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
    assert wide <= 390
    for part in (".strip", ".play", ".jumps", ".observed", ".tokens", ".messages", ".facts"):
        box = phone.locator(part).first.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
